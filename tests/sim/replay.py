# SPDX-License-Identifier: Apache-2.0
"""Parts of the simulator as programs of their own, without ns-3, that packets are replayed through."""

import fcntl
import json
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support.paths import ROOT

SIM = ROOT / "sim"
PATIENCE = 300  # s


class Entering(NamedTuple):
    """A packet that enters. `members`: the egress ports of its route; `packet` begins with the IPv4 header."""

    at: int
    frame_bytes: int
    port: int
    from_fabric: bool
    chosen_bits: int
    members: Sequence[int]
    packet: bytes


class Fate(NamedTuple):
    """What becomes of it. `copies`: of a sum that goes to several, the ports and TOS; `head`: of the packet as it
    leaves, as far as it decides, of a SUM all."""

    reason: int
    egress: int
    queue_class: int
    precedence: int
    trimmed: bool
    copies: list[list[int]]
    head: bytes


class Replayed(NamedTuple):
    """`reasons`: counts by number; `drops`: of what the policy took, by layer and upper half of the magnitude;
    `sums`: what became of SUMs, by job and event."""

    fates: list[Fate]
    reasons: list[int]
    drops: dict[tuple[int, int], int]
    sums: dict[tuple[int, int], int]


@cache
def program(name: str) -> Path:
    """Built with the sanitizers for addresses and undefined behaviour: what they find ends it."""
    if shutil.which("g++") is None or not Path("/usr/include/nlohmann/json.hpp").exists():
        pytest.skip("g++ and nlohmann-json3-dev are not there: the simulator's parts are not tested")
    # Other processes of these tests may build it, too, or run it already.
    with (SIM / "Makefile").open() as whose_turn:
        fcntl.flock(whose_turn, fcntl.LOCK_EX)
        subprocess.run(["make", "-s", "-C", str(SIM), f"build/{name}"], check=True, timeout=PATIENCE)
    return SIM / "build" / name


def ask(name: str, request: Any) -> Any:
    """What a program of the simulator, without ns-3, answers."""
    done = subprocess.run(
        [program(name)],
        input=json.dumps(request),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def replay(policy: dict[str, Any], packets: Sequence[Entering]) -> Replayed:
    """Runs packets through a policy as gradlane_sim.tables makes it."""
    rows = [it._asdict() | {"bytes": it.packet.hex(), "packet": None} for it in packets]
    told = ask("policy-replay", {"policy": policy, "packets": rows})
    fates = [Fate(*it[:-1], bytes.fromhex(it[-1])) for it in told["fates"]]
    drops = {(layer, upper): count for layer, upper, count in told["drops"]}
    return Replayed(fates, told["reasons"], drops, {(job, event): count for job, event, count in told["sums"]})
