# SPDX-License-Identifier: Apache-2.0
"""Training processes that break the rules, die, or lose their agent: their job fails with its reason, and no other."""

import contextlib
import math
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gradlane._core import ffi, lib

from gradlane import AgentError, Communicator
from tests.support import members
from tests.support.agents import NETWORK, Agent, agents, loopback, until
from tests.support.communicators import beside, each, job_file, join, joined


@pytest.fixture(autouse=True, scope="module")
def _another_job(started: list[Agent], tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No fault here may disturb it."""
    with beside(started[:2], tmp_path_factory.mktemp("beside")):
        yield


@pytest.fixture
def hosts(started: list[Agent]) -> Iterator[list[Agent]]:
    """The agents; after the test they have no job but the other one."""
    yield started
    until(lambda: not any(set(agent.status()["jobs"]) - {"beside"} for agent in started))


def bad(command: dict[str, Any]) -> Callable[[Communicator], Any]:
    """Puts a command into the ring that the library would not."""
    return lambda c: c.connection.link.submit(ffi.new("gl_command *", command), ()).wait(60)


COLLECTIVE = {"kind": 2, "collective": 1, "element_type": 1, "reduction": 3, "elements": 16}
BAD_COMMANDS = {
    "command 9 does not exist": {"kind": 9},
    "tensor 77, which is not registered": {"kind": 1, "target": 77},
    "there is no such group": {**COLLECTIVE, "target": 4000},
    "there is no such collective": {**COLLECTIVE, "collective": 77},
    "no such element type": {**COLLECTIVE, "element_type": 99},
    "number of elements": {**COLLECTIVE, "elements": 1 << 60},
    "no such reduction": {**COLLECTIVE, "reduction": 0},
    "out of bounds": {**COLLECTIVE, "in": 1 << 40},
    "out of bounds, or": {**COLLECTIVE, "in": (1 << 64) - 8},
    "memory is missing": {**COLLECTIVE, "in_region": 4095},
    "out of bounds or": {**COLLECTIVE, "in_region": 65534, "out_region": 65534, "in": 4096, "out": 4096},  # an address
    "half overlapping": {**COLLECTIVE, "in": 0, "out": 8},
    "send and receive need a pair": {**COLLECTIVE, "collective": 7},
    "only send and receive may lose": {**COLLECTIVE, "loss": 1},
    "only a receive is standing": {**COLLECTIVE, "standing": 1},
    "the root is not in the group": {**COLLECTIVE, "collective": 4, "root": 60000},
}


@pytest.mark.parametrize("problem", BAD_COMMANDS)
def test_a_command_of_a_faulty_process_fails_its_job_and_no_other(
    hosts: list[Agent], tmp_path: Path, problem: str
) -> None:
    file = job_file(tmp_path, 2)
    ranks = join(file, hosts, 2)
    array = ranks[0].empty(100)  # region 0
    assert ranks[0].connection.is_shared(array)
    words = problem.removesuffix(", or")
    for outcome in each(ranks, lambda c: told(c, bad(BAD_COMMANDS[problem]) if c.rank == 0 else Communicator.barrier)):
        assert f"process 0 of rank 0 (h0, {NETWORK}.1)" in outcome
        assert words in outcome
    with joined(hosts, file, 2) as after:
        each(after, Communicator.barrier)


BAD_MESSAGES = {
    "releases region 99": {"op": "release", "region": 99},
    "it has no tensor 'v'": {"op": "forget", "name": "v"},
    "message 'load' lacks 'region'": {"op": "load", "name": "w"},
    "message 'release' has inf as 'region'": {"op": "release", "region": math.inf},
    "message 'forget' has a name of 100000 characters": {"op": "forget", "name": "x" * 100_000},
    "message 'forget' has a name with characters that can't be printed: 'a\\nb'": {"op": "forget", "name": "a\nb"},
    "unknown message 'reduce'": {"op": "reduce"},
    "message 'release' lacks 'region'": {"op": "release"},
}


@pytest.mark.parametrize("problem", BAD_MESSAGES)
def test_a_message_of_a_faulty_process_fails_its_job(hosts: list[Agent], tmp_path: Path, problem: str) -> None:
    file = job_file(tmp_path, 2)
    ranks = join(file, hosts, 2)

    def send(c: Communicator) -> None:
        c.connection.link.tell(BAD_MESSAGES[problem])
        c.barrier()

    for outcome in each(ranks, lambda c: told(c, send if c.rank == 0 else Communicator.barrier)):
        assert f"process 0 of rank 0 (h0, {NETWORK}.1)" in outcome
        assert problem in outcome


BAD_REQUESTS = {
    "a region of -5 bytes": {"op": "region", "bytes": -5},
    "message 'tensor' lacks 'name'": {"op": "tensor"},
    "group .*each rank once": {"op": "group", "ranks": [0, 0], "label": "", "pair": False},
    "has no tensor 'v'": {"op": "residual", "name": "v"},
    "group' has \\[0, \\[\\]\\] as 'ranks'": {"op": "group", "ranks": [0, []], "label": "", "pair": False},
    "it has no tensor 'w'": {"op": "load", "name": "w", "region": 77},
    "releases region 99": {"op": "release", "region": 99},
}


def test_a_request_that_makes_no_sense_is_answered_so_and_the_job_goes_on(hosts: list[Agent], tmp_path: Path) -> None:
    with joined(hosts, job_file(tmp_path, 2), 2) as ranks:
        for problem, message in BAD_REQUESTS.items():
            with pytest.raises(AgentError, match=problem):
                ranks[0].connection.link.request(message)
        each(ranks, Communicator.barrier)


def test_a_process_that_is_killed_amid_an_all_reduce_is_named(hosts: list[Agent], tmp_path: Path) -> None:
    file = job_file(tmp_path, 2, 2)
    script = (
        "import sys, numpy, gradlane; c = gradlane.Communicator(sys.argv[1], 3, sys.argv[2]); "
        "c.all_reduce(numpy.ones(1000), asynchronous=True); print('in flight', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", script, str(file), str(hosts[1].socket)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        ranks = join(file, hosts, 3, 2)
        assert other.stdout is not None
        assert other.stdout.readline() == "in flight\n"
        first = ranks[0].all_reduce(np.ones(1000), asynchronous=True)
        other.kill()
        with pytest.raises(AgentError, match=rf"rank 1 \(h1, {NETWORK}.2\): its training process 1 of 2 ended"):
            first.wait(60)
    for c in ranks:
        with contextlib.suppress(AgentError):
            c.close()


def told(c: Communicator, function: Callable[[Communicator], Any]) -> str:
    with pytest.raises(AgentError) as failure:
        function(c)
    with contextlib.suppress(AgentError):
        c.close()
    return str(failure.value)


def test_a_ring_that_claims_more_commands_than_fit_fails_the_job(hosts: list[Agent], tmp_path: Path) -> None:
    ranks = join(job_file(tmp_path, 2), hosts, 2)
    head = np.frombuffer(ranks[0].connection.link.channels[0]._channel.map, np.uint32, 1)
    head[0] += lib.GL_SLOTS
    del head
    for outcome in each(ranks, lambda c: told(c, bad({"kind": 1}) if c.rank == 0 else Communicator.barrier)):
        assert "its command ring makes no sense" in outcome


def test_random_bytes_in_the_ring_fail_the_job_and_nothing_else(hosts: list[Agent], tmp_path: Path) -> None:
    file = job_file(tmp_path, 2)
    for seed in range(5):
        ranks = join(file, hosts, 2)
        completions = ranks[0].connection.link.channels[0]
        channel = completions._channel
        noise = np.random.default_rng(seed).integers(0, 256, channel.nbytes).astype(np.uint8)
        words = np.frombuffer(channel.map, np.uint8)
        head, armed = words[:64].copy(), words[64:128].copy()
        words[:] = noise
        words[:64], words[64:128] = head, armed
        del words
        outcome = told(ranks[0], bad({"kind": 200}))
        assert "rank 0" in outcome
        told(ranks[1], Communicator.barrier)
        assert hosts[0].process.poll() is None
    with joined(hosts, file, 2) as after:
        each(after, Communicator.barrier)


def test_an_agent_that_dies_amid_a_collective_ends_the_waits(tmp_path: Path) -> None:
    addresses = loopback(2, first=11)  # the other agents live on
    file = members.job_file(tmp_path, addresses)
    with agents(tmp_path, addresses) as started:
        ranks = join(file, started, 2)
        called = threading.Event()
        errors: list[str] = []

        def callback(error: AgentError | None) -> None:
            errors.append(str(error))
            called.set()

        pending = ranks[0].connection.collective("barrier", None, None)
        pending.add_done_callback(callback)
        began = time.monotonic()
        started[0].kill()
        with pytest.raises(AgentError, match="the agent of this host is gone"):
            pending.wait(60)
        assert time.monotonic() - began < 5
        assert called.wait(60)
        assert "the agent of this host is gone" in errors[0]
        with pytest.raises(AgentError, match=f"rank 0 .h0, {NETWORK}.11.*is gone"):
            ranks[1].barrier()
        # None of the ranks is closed.
        until(lambda: "gradlane-completions" not in {thread.name for thread in threading.enumerate()})
