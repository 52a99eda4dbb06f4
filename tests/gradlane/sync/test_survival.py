# SPDX-License-Identifier: Apache-2.0
"""Ripples with `deaths = "survive"` over agents and processes: whoever dies, the others take steps again within the
documented time, name it, and end the job in order."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gradlane import PeerLost, job
from gradlane.client.connection import Group
from gradlane.job import JobError
from gradlane.sync import DsSync, Ripples, Synchroniser
from gradlane.sync.asynchronous import Over
from gradlane.sync.worker import Worker as Part
from tests.support import zygote
from tests.support.agents import Agent, agents, command, loopback, until
from tests.support.communicators import each, join
from tests.support.members import job_file
from tests.support.paths import ROOT

pytestmark = pytest.mark.long

# What is documented: for a rank that is silent, and for one whose death its host's kernel tells.
SECONDS, AT_ONCE = 10.0, 3.0
SURVIVE = '[sync]\nscheme = "ripples"\n'


class Worker:
    """surviving_worker.py, whose output goes to a file."""

    def __init__(self, file: Path, rank: int, agent: Agent, folder: Path) -> None:
        self.rank = rank
        self._output = folder / f"worker{rank}.txt"
        argv = [sys.executable, "-m", "tests.gradlane.sync.surviving_worker", str(file), str(rank), str(agent.socket)]
        with self._output.open("w") as output:
            self.process = zygote.start(
                argv, stdin=subprocess.PIPE, stdout=output, stderr=subprocess.STDOUT, text=True, cwd=ROOT
            )

    def output(self) -> list[str]:
        return self._output.read_text().splitlines()

    def steps(self) -> int:
        """That it has taken."""
        return sum(line.startswith("step") for line in self.output())

    def say(self, word: str) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(word + "\n")
            self.process.stdin.flush()


@contextlib.contextmanager
def training(folder: Path, count: int, patience: int = 60) -> Iterator[tuple[list[Agent], list[Worker]]]:
    addresses = loopback(count)
    file = job_file(folder, addresses, deaths="survive", patience=patience, lines=SURVIVE)
    with agents(folder, addresses) as hosts:
        workers = [Worker(file, rank, agent, folder) for rank, agent in enumerate(hosts)]
        try:
            until(lambda: all(worker.steps() > 5 for worker in workers), lambda: [w.output() for w in workers])
            yield hosts, workers
        finally:
            for worker in workers:
                worker.process.kill()
                worker.process.wait()


def go_on(workers: Sequence[Worker], within: float) -> None:
    """Each of them takes two steps more within that time: the first may have been begun before."""
    began, before = time.monotonic(), [worker.steps() for worker in workers]
    until(lambda: all(worker.steps() > step + 1 for worker, step in zip(workers, before, strict=True)))
    assert time.monotonic() - began < within


def end(workers: Sequence[Worker]) -> None:
    """All of them average with one another, and leave."""
    for worker in workers:
        worker.say("end")
    until(lambda: all("closed" in worker.output() for worker in workers), lambda: [w.output()[-9:] for w in workers])
    averages = {next(line for line in worker.output() if line.startswith("average")) for worker in workers}
    assert len(averages) == 1, "all have the same parameters"
    assert float(averages.pop().split()[-1]) < 1e-9, "and all elements are alike, but for the order of a ring's sums"
    assert [worker.process.wait(10) for worker in workers] == [0] * len(workers)


_SAMPLE = [(0, "agent"), (2, "process"), (2, "agent stopped")]


@pytest.mark.timed
@pytest.mark.parametrize("victim", [2, 0], ids=["a worker", "where the generator is"])
@pytest.mark.parametrize("what", ["process", "agent", "agent stopped"])
def test_the_others_go_on_and_name_who_died(
    tmp_path: Path, victim: int, what: str, request: pytest.FixtureRequest
) -> None:
    if (victim, what) not in _SAMPLE and not request.config.getoption("--thorough"):
        pytest.skip("each victim and each way to die has another case; --thorough runs all")
    with training(tmp_path, 4) as (hosts, workers):
        others = [worker for worker in workers if worker.rank != victim]
        if what == "process":
            workers[victim].process.kill()
        else:
            hosts[victim].kill(signal.SIGKILL if what == "agent" else signal.SIGSTOP)
        go_on(others, SECONDS if what == "agent stopped" else AT_ONCE)
        name = f"rank {victim} (h{victim}, {hosts[victim].address})"
        how = {
            "process": "its training process ended without leaving the job",
            "agent": "is gone: its agent closed the connection",
            "agent stopped": "no answer for 7.5 s",
        }[what]
        for worker in others:
            line = hosts[worker.rank].wait_for(f"goes on without rank {victim}")
            assert name in line
            assert how in line
            status = hosts[worker.rank].status()["jobs"]["trial"]
            assert list(status["dead"]) == [str(victim)]
            assert status["peers"][str(victim)]["control"] == "dead"
        shown = command("status", "--socket", hosts[others[0].rank].socket).stdout
        assert f"goes on without: {name}" in shown
        if what == "agent stopped":
            hosts[victim].kill(signal.SIGCONT)
            assert name in hosts[victim].wait_for("the others have gone on without this rank")
        end(others)


@pytest.mark.timed
def test_one_after_the_other_dies_until_one_is_left(tmp_path: Path) -> None:
    with training(tmp_path, 4) as (hosts, workers):
        hosts[0].kill()
        workers[3].process.kill()
        go_on(workers[1:3], AT_ONCE)
        hosts[1].kill()
        go_on(workers[2:3], AT_ONCE)
        assert sorted(hosts[2].status()["jobs"]["trial"]["dead"]) == ["0", "1", "3"]
        end(workers[2:3])


def test_one_that_dies_while_all_average_is_left_out(tmp_path: Path) -> None:
    with training(tmp_path, 3) as (hosts, workers):
        for worker in workers[:2]:
            worker.say("end")
        workers[2].say("hang")
        until(lambda: hosts[0].status()["jobs"]["trial"]["in_flight"] or "closed" in workers[0].output())
        workers[2].process.kill()
        end(workers[:2])


@pytest.mark.timed
def test_who_is_late_for_too_long_is_left_behind(tmp_path: Path) -> None:
    with training(tmp_path, 3, patience=10) as (hosts, workers):
        workers[1].say("hang")
        hosts[0].wait_for("goes on without rank 1")
        go_on([workers[0], workers[2]], AT_ONCE)
        assert "the others have gone on without this rank" in hosts[1].wait_for("failed")
        end([workers[0], workers[2]])


@pytest.mark.timed
def test_nothing_grows_while_the_others_go_on(tmp_path: Path) -> None:
    """Of what was in flight with the dead nothing is kept, nor does going on without them take memory."""
    with training(tmp_path, 4) as (hosts, workers):
        hosts[3].kill()
        go_on(workers[:3], AT_ONCE)

        def used(agent: Agent) -> int:
            pages = Path(f"/proc/{agent.process.pid}/statm").read_text().split()[1]
            return int(pages) * os.sysconf("SC_PAGE_SIZE")

        until(lambda: min(worker.steps() for worker in workers[:3]) > 50)
        before = [used(agent) for agent in hosts[:3]]
        steps = min(worker.steps() for worker in workers[:3])
        until(lambda: min(worker.steps() for worker in workers[:3]) > steps + 150)
        assert max(after - first for after, first in zip(map(used, hosts[:3]), before, strict=True)) < 8 << 20
        end(workers[:3])
        until(lambda: not any(agent.status()["jobs"] for agent in hosts[:3]))


def test_a_restarted_agent_is_told_that_the_others_have_gone_on(tmp_path: Path) -> None:
    with training(tmp_path, 3) as (hosts, workers):
        hosts[2].kill()
        hosts[2].process.wait()
        hosts[0].wait_for("goes on without rank 2")
        hosts[1].wait_for("goes on without rank 2")
        hosts[2].start()
        hosts[2].wait_for("ready")
        again = Worker(tmp_path / "job.toml", 2, hosts[2], tmp_path)
        until(lambda: any("AgentError" in line for line in again.output()), again.output)
        again.process.wait(10)
        assert "goes on without rank 2, which died" in again.output()[-1]
        end(workers[:2])


def test_an_operation_with_the_dead_is_lost_and_the_connection_stays(tmp_path: Path) -> None:
    addresses = loopback(3)
    file = job_file(tmp_path, addresses, deaths="survive", lines=SURVIVE)
    with agents(tmp_path, addresses) as hosts:
        ranks = join(file, hosts, 3)
        pending = [c.all_reduce(np.ones(1000), op="sum", asynchronous=True) for c in ranks[:2]]
        beside = each(ranks[:2], lambda c: c.group([0, 1]))
        hosts[2].kill()
        for it in pending:
            with pytest.raises(PeerLost, match=r"the operation is lost: rank 2 .* is gone") as caught:
                it.wait(SECONDS)
            assert caught.value.ranks == (2,)
        with pytest.raises(PeerLost):
            ranks[0].all_reduce(np.ones(1000), op="sum")
        for total in each(beside, lambda c: c.all_reduce(np.ones(1000), op="sum")):
            np.testing.assert_array_equal(total, 2)
        each(ranks[:2], lambda c: c.close())


def test_what_can_not_survive_is_refused_by_name(tmp_path: Path) -> None:
    addresses = loopback(2)
    for lines, processes, what in (
        ("", 1, "sync.scheme = ripples"),
        ('[sync]\nscheme = "ds-sync"', 1, "sync.scheme = ripples"),
        (SURVIVE, 2, "one process on each host"),
        (f'ownership = "adaptive"\n{SURVIVE}', 1, 'no transport.ownership = "adaptive"'),
    ):
        file = job_file(tmp_path, addresses, deaths="survive", lines=lines, processes=processes)
        with pytest.raises(JobError, match=f'job.deaths: is "survive", which goes with {what}'):
            job.load(file)
    file = job_file(tmp_path, addresses, deaths="survive", lines=SURVIVE)
    with agents(tmp_path, addresses) as hosts:
        ranks = join(file, hosts, 2)
        for c in ranks:
            with pytest.raises(ValueError, match="can't go on without a worker that is dead"):
                Synchroniser(c, [], DsSync())
            with pytest.raises(Exception, match="is reduced by all ranks, and this job goes on without"):
                c.all_reduce(np.ones(10, np.float32), name="gradient")
        each(ranks, lambda c: c.close())


def test_workers_that_differ_are_named_by_their_ranks_though_one_is_dead() -> None:
    """Ranks 1, 2 and 3 are left, and compare again after a state was loaded."""

    class Survivor:
        job = SimpleNamespace(survives=True, workers=[None] * 4)
        processes, rank, world_rank = 1, 1, 1
        empty = staticmethod(np.empty)

        def group(self, ranks: list[int], _: str) -> Group:
            return Group(0, tuple(ranks), 0)

        def collective(self, _: str, source: np.ndarray, target: np.ndarray, group: Group) -> Over:
            if 0 in group.ranks:
                raise PeerLost("rank 0 is gone", [0])
            target[:] = source
            target[group.ranks.index(3)] += 1
            return Over()

        def meet(self, _: str, __: int, agreed: bool) -> tuple[bool, tuple[int, ...]]:
            return agreed, (1, 2, 3)

    connection: Any = Survivor()
    first = Part(connection, Ripples())
    with pytest.raises(ValueError, match=r"rank 1 and ranks \[3\] have different schemes; rank 1 has Ripples"):
        first.next()
