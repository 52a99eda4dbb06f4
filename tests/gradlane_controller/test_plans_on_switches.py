# SPDX-License-Identifier: Apache-2.0
"""Whole plans on switches in this process: as many jobs as a fabric carries, and flows through three tiers."""

from collections import Counter
from collections.abc import Iterable
from copy import copy
from functools import cache
from itertools import pairwise

import pytest
from scapy.layers.inet import TCP

from gradlane import job
from gradlane_controller.desired import pipeline
from gradlane_controller.desired.plan import make_plan
from gradlane_controller.network import fabric_file
from gradlane_controller.network.fabric import Fabric
from gradlane_controller.policy import Entity, desired_entities
from gradlane_controller.session.convergence import difference
from gradlane_controller.session.counters import decode_decision
from gradlane_switch import Switch
from gradlane_switch.state.pipeline import Pipeline
from gradlane_switch.state.program_state import Lock
from tests.gradlane_controller.texts import fabric_text, job_text
from tests.support.gradlane_packets import H1, H2, gradient, ip
from tests.support.paths import P4INFO, PIPELINE, PROGRAM

JOBS = 255
PROGRAM_OF_SWITCHES = pipeline.load(PIPELINE)


@cache
def program() -> Pipeline:
    return Switch.load(PROGRAM, P4INFO).pipeline


def switch_with(entities: Iterable[Entity]) -> Switch:
    """A switch that holds these entities."""
    own = copy(program())
    own.begin(Lock())
    switch = Switch(own)
    switch.write(*difference(PROGRAM_OF_SWITCHES.schema, [], entities))
    return switch


def test_a_fabric_carries_255_jobs_each_with_its_own_budget_and_counts() -> None:
    jobs = [
        job.parse(job_text(f"j{n}", 60_000 + n, hosts=(1, 2, 3, 4), base=256 * (n - 1), mask=255), f"j{n}.toml")
        for n in range(1, JOBS + 1)
    ]
    plan = make_plan(
        pipeline.Programs(PIPELINE), fabric_file.parse(fabric_text(), "f.toml"), {it.name: it for it in jobs}
    )
    assert sorted(plan.numbers.indices.values()) == [*range(1, JOBS + 1)]
    switch = switch_with(plan.entities["s1"])
    (decisions,) = (n for n, it in enumerate(switch.pipeline.program.counters) if it.name.endswith("decisions"))
    names = {plan.numbers.indices[it.id]: it.name for it in jobs}
    budget = 3
    for n in (1, 15, 16, 128, JOBS):
        left = dropped = 0
        # 300 frames of the same instant: more than the port's queue, and than what is droppable of the job's share.
        for number in range(300):
            frame = gradient(
                H1, H2, job=60_000 + n, message=n, slice=number, slices=300, budget=budget, magnitude=0, layer=1
            )
            found = switch.process(H1.port, frame)
            left, dropped = left + len(found), dropped + (not found)
        assert (left, dropped) == (300 - budget, budget), n
        counts = switch.pipeline.state.read_counters(decisions, n << 11, 1 << 11)
        cells = [
            decode_decision("s1", names, (n << 11) + cell, count.packets, count.bytes)
            for cell, count in enumerate(counts)
            if count.packets
        ]
        assert sum(it.packets for it in cells) == 300
        assert {it.job for it in cells} == {f"j{n}"}
        assert sum(it.packets for it in cells if it.reason.startswith("dropped")) == budget


def tiers_text(width: int) -> str:
    """A leaf, `width` switches, `width` more, `width` more, and a leaf; every two of neighbouring tiers are linked."""
    tiers = [["left"], *([f"{kind}{n}" for n in range(width)] for kind in ("up", "core", "down")), ["right"]]
    text = "".join(
        f'[[switch]]\nname = "{name}"\naddress = "127.0.0.1:{9559 + n}"\n'
        for n, name in enumerate(name for tier in tiers for name in tier)
    )
    for number, leaf in ((1, "left"), (9, "right")):
        text += (
            f'[[port]]\nswitch = "{leaf}"\nnumber = 400\nhost = "h{number}"\nmac = "02:00:00:00:0{number}:01"\n'
            f'host_mac = "02:00:00:00:0{number}:02"\naddress = "10.0.{number}.2"\nprefix = "10.0.{number}.0/24"\n'
            'rate = "1gbit"\nbuffer = "64kB"\n'
        )
    for lower, upper in pairwise(tiers):
        for a, one in enumerate(lower):
            for b, other in enumerate(upper):
                ends = f'["{one}:{100 + b}", "{other}:{1 + a}"]'
                text += f'[[link]]\nends = {ends}\nrate = "1gbit"\nbuffer = "64kB"\n'
    return text


def chi_square(counts: Iterable[int]) -> float:
    """Of an even choice."""
    counts = list(counts)
    expected = sum(counts) / len(counts)
    return sum((count - expected) ** 2 / expected for count in counts)


class Fleet:
    """The switches of a fabric, linked."""

    def __init__(self, where: Fabric) -> None:
        self._switches = {name: switch_with(entities) for name, entities in desired_entities(where, []).items()}
        self._links = {(end.switch, end.number): (end.peer, end.peer_number) for end in where.link_ports}

    def way(self, switch: str, port: int, frame: bytes) -> list[str]:
        """The switches that a frame passes, which enters there."""
        passed = [switch]
        while True:
            ((leaving, frame),) = self._switches[passed[-1]].process(port, frame)
            if (passed[-1], leaving) not in self._links:
                return passed
            peer, port = self._links[passed[-1], leaving]
            passed.append(peer)


@pytest.mark.parametrize("width", [3, 4])
def test_flows_are_even_over_three_tiers_in_which_every_switch_has_a_choice(width: int) -> None:
    where = fabric_file.parse(tiers_text(width), "f.toml")
    fleet = Fleet(where)
    ways: Counter[tuple[str, ...]] = Counter()
    count = 30 * width**3
    frame = bytes(ip(H1, "10.0.9.2") / TCP(dport=5001))
    for port in range(32768, 32768 + count):
        # One client's ports in a row. A switch does not look at TCP's checksum.
        ways[tuple(fleet.way("left", 400, frame[:34] + port.to_bytes(2, "big") + frame[36:]))] += 1
    assert {(way[0], way[-1]) for way in ways} == {("left", "right")}
    assert len(ways) == width**3, "every way is used"
    # Of the ways themselves, not only of each switch's choices. Expected by chance: its degrees of freedom, and half as
    # much again once in 1000 tries; a choice among three leaves the next ones a little uneven.
    assert chi_square(ways.values()) < (1.7 if width == 4 else 2.5) * (width**3 - 1)
