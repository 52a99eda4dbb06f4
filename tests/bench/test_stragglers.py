# SPDX-License-Identifier: Apache-2.0
"""The benchmark of late workers and slow links: a short one for real, its theories, and a link that changes."""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from bench.agent import stragglers
from bench.agent.stragglers import Case, Team, theory
from bench.harness.agent_hosts import Hosts
from gradlane.client import agent_socket
from tests.support.needs import needs_root

RATE = 50_000_000
SECONDS = 150  # that a busy machine may take until it has found out


@pytest.mark.alone
@needs_root
def test_who_owns_nothing_when_it_comes_late_is_done_sooner(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Among four: after its arrival one contribution crosses the ports instead of one and a half."""
    if not request.config.getoption("--thorough"):
        pytest.skip("takes more than a minute; --thorough runs it")
    command = [sys.executable, "-m", "bench.agent.stragglers", "--hosts", "4", "--repeats", "3", "--rate", "50mbit"]
    command += ["--size", "1MiB", "--cases", "late", "--delays", "0,1.5", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stderr
    runs = {
        (run["arm"], run["delay"] > 0): run for run in json.loads((tmp_path / "stragglers.json").read_text())["runs"]
    }
    assert set(runs) == {(arm, late) for arm in stragglers.arms(4) for late in (False, True)}
    for run in runs.values():
        assert run["fastest"] >= 0.9 * run["least"]  # a port sends some at once
    assert runs["adaptive", False]["plan"] == "ring"
    assert runs["adaptive", True]["plan"] == "direct 33:33:33:0"
    assert runs["adaptive", True]["seconds"] < 0.85 * runs["even", True]["seconds"]


class Watched(Team):
    """A team whose adaptive job goes on until its status is as it should be, at all hosts."""

    def until(self, right: Callable[[Any], bool]) -> list[Any]:
        end = time.monotonic() + SECONDS
        while True:
            for _ in range(3):
                self.run("adaptive", 0, 0.0)
            jobs = [agent_socket.status(socket)["jobs"][self.adaptive] for socket in self.sockets]
            if all(map(right, jobs)):
                return jobs
            assert time.monotonic() < end, [(job.get("ownership"), job.get("stragglers")) for job in jobs]


def is_slow(job: Any) -> bool:
    return [it["rank"] for it in job["stragglers"] if it["link"]] == [3] and job["ownership"]["shares"][3] < 0.01


@needs_root
@pytest.mark.alone
def test_a_link_at_half_rate_is_found_named_and_relieved_and_is_used_again_when_it_recovers(tmp_path: Path) -> None:
    """From the ring on, in which all are as slow as the slow one; sums are exact all the time."""
    options = argparse.Namespace(rate=RATE, size=1 << 20)
    with Hosts(4, rate=RATE) as hosts, ExitStack() as stack:
        team = Watched(hosts, tmp_path, stack, options)
        team.until(lambda job: job["ownership"]["algorithm"] == "ring")
        hosts.limit_both_ways(3, RATE // 2)
        for job in team.until(is_slow):
            (found,) = [it for it in job["stragglers"] if it["link"]]
            assert 0.35 * RATE < found["link"] < 0.65 * RATE
            assert job["ownership"]["algorithm"] == "direct"
            assert "rank 3 (h3, " in job["ownership"]["reason"]
            assert "its link carries 2" in job["ownership"]["reason"]
        hosts.limit_both_ways(3, RATE)
        for job in team.until(lambda job: job["ownership"]["algorithm"] == "ring"):
            assert job["ownership"]["shares"] == [0.25] * 4
            assert not any(it["link"] for it in job["stragglers"])


def test_what_crosses_the_busiest_port() -> None:
    late = {n: Case("late", n, 1, 1.5) for n in (4, 8)}
    assert theory("even", late[4]) == theory("ring", Case("in time", 4)) == pytest.approx(1.5)
    assert theory("gloo", Case("slow link", 4, link=0.5)) == pytest.approx(3.0)
    assert theory("adaptive", late[8]) == pytest.approx(1.0)
    # An owner that is in time, of x, receives x from both, and 1 - x of results; a late one of y sends 1 + 6 y.
    assert theory("adaptive", Case("two late", 8, 2, 1.5)) == pytest.approx(1 + 6 / 38)
    assert theory("adaptive", Case("in time", 8)) == pytest.approx(1.75)
    assert theory("adaptive", Case("slow link", 4, link=0.5)) == pytest.approx(2.0)
    assert theory("stragglar", late[4]) == pytest.approx(4 / 3)
    assert theory("stragglar", late[8]) == pytest.approx(9 / 7)
    assert theory("stragglar", Case("late", 4, 1, 0.5)) == pytest.approx(4 / 3 + 2 / 3 - 0.5 * 3 / 4)
    assert theory("stragglar", Case("two late", 4, 2, 1.5)) == pytest.approx(2)
    assert theory("stragglar", Case("slow link", 4, link=0.5)) == pytest.approx(2 / 3 + 2 * 4 / 3)
