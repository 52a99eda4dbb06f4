# SPDX-License-Identifier: Apache-2.0
"""What breaks while a job runs is named at every rank that is left, within the time of docs/control-connections.md."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.agents import PATIENCE, Agent, agents, loopback, running, until
from tests.support.lan import Lan
from tests.support.members import Member, job_file, members
from tests.support.paths import ROOT
from tests.support.resources import holds_no_more_after

pytestmark = pytest.mark.long

# What is documented, whatever the fault.
SECONDS = 10.0


def all_joined(joining: Sequence[Member]) -> None:
    assert [member.next()[0] for member in joining] == ["joined"] * len(joining)


def named(waiting: Sequence[Member], within: float) -> list[str]:
    """What these are told, within so many seconds from now."""
    began = time.monotonic()
    said = [member.next(within)[0] for member in waiting]
    assert time.monotonic() - began < within
    return said


def test_a_killed_agent_is_named_at_once_and_a_new_one_takes_the_next_join(tmp_path: Path) -> None:
    addresses = loopback(3)
    file = job_file(tmp_path, addresses)
    with agents(tmp_path, addresses) as hosts:
        with members(file, hosts) as joining:
            all_joined(joining)
            hosts[1].kill()
            said = named((joining[0], joining[2]), within=SECONDS)
            assert all(f"rank 1 (h1, {addresses[1]}) is gone: its agent closed the connection" in text for text in said)
            assert joining[1].next()[0] == "the agent closed its socket"
        hosts[1].process.wait()
        hosts[1].start()  # its socket's file is still there
        hosts[1].wait_for("ready")
        with members(file, hosts) as joining:
            all_joined(joining)


def test_an_agent_that_was_told_to_stop_says_so_to_all(tmp_path: Path) -> None:
    addresses = loopback(2)
    with agents(tmp_path, addresses) as hosts, members(job_file(tmp_path, addresses), hosts) as joining:
        all_joined(joining)
        hosts[0].kill(signal.SIGTERM)
        for text in named(joining, within=SECONDS):
            assert f"the agent at {addresses[0]} was stopped" in text
        assert hosts[0].process.wait(PATIENCE) == 0


def test_a_stopped_agent_is_named_and_names_nobody_when_it_goes_on(tmp_path: Path) -> None:
    addresses = loopback(3)
    with agents(tmp_path, addresses) as hosts, members(job_file(tmp_path, addresses), hosts) as joining:
        all_joined(joining)
        hosts[2].kill(signal.SIGSTOP)
        said = named(joining[:2], within=SECONDS)
        assert all(f"rank 2 (h2, {addresses[2]})" in text and "no answer for" in text for text in said)
        hosts[2].kill(signal.SIGCONT)
        assert f"rank 2 (h2, {addresses[2]})" in joining[2].next()[0]  # what it had been told meanwhile


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_training_process_that_is_killed_or_stopped_is_named(tmp_path: Path, number: signal.Signals) -> None:
    addresses = loopback(2)
    file = job_file(tmp_path, addresses)
    join = (
        "import sys, time; from pathlib import Path; from tests.support.members import Member\n"
        "class At: socket = sys.argv[2]\n"
        "member = Member(Path(sys.argv[1]), 1, At); print(member.next()[0], flush=True); time.sleep(100)"
    )
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"}
    with agents(tmp_path, addresses) as hosts, Member(file, 0, hosts[0]) as member:
        command = [sys.executable, "-c", join, str(file), str(hosts[1].socket)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "joined\n"
            all_joined([member])
            process.send_signal(number)
            [said] = named([member], within=SECONDS)
        finally:
            process.kill()
            process.wait()
        assert f"rank 1 (h1, {addresses[1]}): its training process" in said
        assert "ended without leaving" in said if number == signal.SIGKILL else f"(pid {process.pid}) has been" in said
        assert hosts[1].status()["jobs"] == {}


def test_what_a_dead_process_had_is_given_back(tmp_path: Path) -> None:
    addresses = loopback(2)
    file = job_file(tmp_path, addresses)
    with agents(tmp_path, addresses) as hosts, holds_no_more_after(hosts[0]):
        for _ in range(4):
            with members(file, hosts) as joining:
                all_joined(joining)
            until(lambda: not any(host.status()["jobs"] for host in hosts))


def test_the_link_may_be_down_for_five_seconds(tmp_path: Path) -> None:
    with Lan(3) as lan, lan.agents(tmp_path) as hosts, members(job_file(tmp_path, lan.addresses), hosts) as joining:
        all_joined(joining)
        lan.port(1, "down")
        assert joining[0].silent(5.0)
        lan.port(1, "up")
        assert all(member.silent(3.0 if rank == 0 else 0.1) for rank, member in enumerate(joining))
        states = [peer["control"] for host in hosts for peer in host.status()["jobs"]["trial"]["peers"].values()]
        assert states == ["connected"] * 6
        for member in joining:
            member.leave()
        assert [member.next()[0] for member in joining] == ["closed"] * 3


@pytest.mark.parametrize("what", ["link", "switch", "switch, port by port"])
def test_a_link_or_switch_that_stays_away_is_named(tmp_path: Path, what: str) -> None:
    with Lan(3) as lan, lan.agents(tmp_path) as hosts:
        with members(job_file(tmp_path, lan.addresses), hosts) as joining:
            all_joined(joining)
            for port in (1,) if what == "link" else (0, 1, 2):
                lan.port(port, "down")
                time.sleep(1.5 if what.endswith("by port") else 0)
            said = named(joining, within=SECONDS)
        assert re.search(r"the switch or the link of rank 1 \(h1, 10\.77\.0\.2\) is down", said[1])
        for rank in (0, 2):
            own = rf"the switch or the link of rank {rank} "
            other = r"rank 1 \(h1, 10\.77\.0\.2\): no answer for"
            assert re.search(other if what == "link" else own, said[rank]), said


def test_setting_the_clock_changes_nothing(tmp_path: Path) -> None:
    """The agents' clocks differ by days, and one's runs a hundred times as fast: only the real-time clock."""
    addresses = loopback(2)
    shifted = (
        "import sys, time; real, real_ns = time.time, time.clock_gettime_ns; begun = real()\n"
        "time.time = lambda: real() + 1e6 + 99 * (real() - begun)\n"
        "time.clock_gettime_ns = lambda clock: real_ns(clock) - 10**15 * (clock == time.CLOCK_REALTIME)\n"
        "from gradlane.cli import main; sys.exit(main())"
    )
    starting = (
        Agent(addresses[0], tmp_path / "0.sock", program=("-c", shifted)),
        Agent(addresses[1], tmp_path / "1.sock"),
    )
    with running(*starting) as hosts, members(job_file(tmp_path, addresses), hosts) as joining:
        all_joined(joining)
        assert joining[0].silent(2)
        conditions = hosts[1].status()["jobs"]["trial"]["conditions"]
        assert conditions["latency"] >= 0
        assert 0 < conditions["rate"] <= 1e9
