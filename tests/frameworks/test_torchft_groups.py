# SPDX-License-Identifier: Apache-2.0
"""torchft with replica groups of several processes, also its LocalSGD and DiLoCo: a group dies and comes anew."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.frameworks.ranks import needs
from tests.support.agents import AgentProcess, loopback, until
from tests.support.paths import EXAMPLES
from tests.support.ports import free_ports

pytestmark = needs("torchft")
PROCESSES = 2  # of each group
WORKER = Path(__file__).with_name("worker_torchft.py")


class Process:
    """One of a group, and what it has told."""

    def __init__(self, scheme: Sequence[str], file: Path, environment: dict[str, str]) -> None:
        self._file = file
        with file.open("w") as said:
            self.process = subprocess.Popen(
                [sys.executable, WORKER, *scheme],
                cwd=file.parent,
                env=os.environ | environment,
                stdout=said,
                stderr=subprocess.STDOUT,
            )

    @property
    def said(self) -> str:
        return self._file.read_text()

    def steps(self, groups: int) -> dict[str, str]:
        """Sums of the parameters that were averaged, by the step, of those in which that many groups took part."""
        return dict(re.findall(rf"^step (\d+) of {groups}: (\S+)$", self.said, re.MULTILINE))


Begin = Callable[[int], list[Process]]


@pytest.fixture(params=["ddp process", "ddp daemon", "local process", "diloco daemon", "fragments process"])
def begin(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Begin]:
    """Starts the replica group of that number, with an agent in each process, or one for a group."""
    from torchft.coordination import LighthouseServer

    *scheme, agents = request.param.split()
    lighthouse = LighthouseServer(bind="127.0.0.1:0", min_replicas=1, join_timeout_ms=100, heartbeat_timeout_ms=5000)
    begun: list[Process] = []
    with ExitStack() as stack:
        sockets = ["process"] * 2
        if agents == "daemon":
            sockets = [str(tmp_path / f"a{number}") for number in range(2)]
            for address, socket in zip(loopback(2, 61), sockets, strict=True):
                stack.callback(AgentProcess("--address", address, "--socket", socket).end)

        def begin(number: int) -> list[Process]:
            [port] = free_ports(1)
            environment = {"REPLICA": str(number), "TORCHFT_LIGHTHOUSE": lighthouse.address()}
            environment |= {"GRADLANE_SOCKET": sockets[number], "GRADLANE_JOB": str(EXAMPLES / "template.toml")}
            environment |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
            environment["OMP_NUM_THREADS"] = "1"  # as torchrun sets it
            environment |= {"WORLD_SIZE": str(PROCESSES), "LOCAL_WORLD_SIZE": str(PROCESSES)}
            group = [
                Process(scheme, tmp_path / f"said{len(begun) + rank}", environment | {"RANK": str(rank)})
                for rank in range(PROCESSES)
            ]
            begun.extend(group)
            return group

        yield begin
        for it in begun:
            it.process.kill()
            it.process.wait()
    lighthouse.shutdown()


def test_a_group_dies_and_comes_anew(begin: Begin) -> None:
    def all_said() -> str:
        return "\n".join(it.said[-3000:] for it in [*first, *second])

    first, second = begin(0), begin(1)
    until(lambda: all(len(it.steps(2)) > 5 for it in [*first, *second]), all_said)
    for it in second:
        it.process.kill()
        it.process.wait()
    until(lambda: all(len(it.steps(1)) > 5 for it in first), all_said)
    before, together = second, [len(it.steps(2)) for it in first]
    second = begin(1)
    until(lambda: all(len(it.steps(2)) > old + 5 for it, old in zip(first, together, strict=True)), all_said)
    until(lambda: all(len(it.steps(2)) > 5 for it in second), all_said)
    for group in (before, second):
        for one, other in zip(first, group, strict=True):
            both = one.steps(2).keys() & other.steps(2).keys()
            assert len(both) > 3
            assert {step: one.steps(2)[step] for step in both} == {step: other.steps(2)[step] for step in both}


@pytest.mark.parametrize("begin", ["buckets process", "buckets gloo process"], indirect=True)
def test_of_several_buckets_torchft_averages_the_last_one(begin: Begin) -> None:
    """Over any backend: once it does not, what the page says of it can go."""
    [one, *_], [other, *_] = begin(0), begin(1)
    until(lambda: len(one.steps(2).keys() & other.steps(2).keys()) > 3, lambda: one.said[-3000:] + other.said[-3000:])
    for step in sorted(one.steps(2).keys() & other.steps(2).keys(), key=int)[1:]:  # before, one has the other's model
        mine, its = (it.steps(2)[step].split(",") for it in (one, other))
        assert mine[2:] == its[2:]  # the second layer's
        assert mine[0] != its[0]
        assert mine[1] != its[1]
