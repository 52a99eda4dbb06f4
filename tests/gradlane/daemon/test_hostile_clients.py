# SPDX-License-Identifier: Apache-2.0
"""Local users on the agent's Unix socket who want no training: they cost little, and nobody else notices."""

import contextlib
import os
import signal
import socket
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from gradlane.client import agent_socket
from gradlane.daemon.clients import MAX_GUESTS, MAX_REQUESTS
from gradlane.ipc import messages
from tests.support.agents import PATIENCE, Agent, agents, loopback, running, until
from tests.support.communicators import joined
from tests.support.members import Member, job_file
from tests.support.resources import cpu_seconds, descriptors, holds_no_more_after

ALONE = loopback(1, first=11)  # of an agent that is not shared
DEEP = b"[" * 50_000  # deeper than a parser goes that calls itself
JOIN = b'{"op": "join", "version": %d, ' % messages.VERSION
GARBAGE = {
    "nothing": b"",
    "no JSON": b"GET / HTTP/1.1\r\n\r\n",
    "half a message": b'{"op": "join", "job": "',
    "not an object": b'["op"]',
    "nested": DEEP,
    "nested value": b'{"op": "statistics", "all": ' + DEEP,
    "not UTF-8": b'{"op": "\xff"}',
    "op of another type": b'{"op": ["join"]}',
    "unknown op": b'{"op": "' + b"x" * 100_000 + b'"}',
    "join of other types": JOIN + b'"job": [], "file": {}, "rank": 1e999}',
    "join of a lone surrogate": JOIN + b'"job": "\\ud800", "file": "f", "rank": 0}',
    "dotted TOML": JOIN + b'"file": "f", "rank": 0, "job": "' + b"a." * 30_000 + b'a = 1"}',
    "nested TOML": JOIN + b'"file": "f", "rank": 0, "job": "a = ' + DEEP + b'"}',
    "join before a join": b'{"op": "region", "bytes": 1}',
    "the longest": b'{"op": "' + b"x" * 199_000,
}


@pytest.fixture
def agent(tmp_path: Path) -> Any:
    with agents(tmp_path, ALONE) as (one,):
        yield one


@pytest.mark.parametrize("what", GARBAGE)
def test_garbage_with_descriptors_leaves_nothing_behind(hosts: list[Agent], tmp_path: Path, what: str) -> None:
    with holds_no_more_after(hosts[0]), contextlib.ExitStack() as stack:
        file = stack.enter_context(tempfile.TemporaryFile())
        for count in (1, 4, 253):  # 253: as many as the kernel takes
            sock = stack.enter_context(agent_socket.connect(hosts[0].socket, 30))
            socket.send_fds(sock, [GARBAGE[what]], [file.fileno()] * count)
            with contextlib.suppress(ConnectionError, EOFError):
                assert messages.receive(sock)[0]["op"] == "error"
                messages.receive(sock)  # then it hangs up
                pytest.fail("the agent went on")
    with joined(hosts, job_file(tmp_path, loopback(1)), 1) as ranks:
        ranks[0].barrier()


def test_who_says_nothing_loses_the_place_and_nobody_else(agent: Agent, tmp_path: Path) -> None:
    pid = agent.process.pid
    with Member(job_file(tmp_path, ALONE), 0, agent) as member:
        assert member.next()[0] == "joined"
        before = descriptors(pid)
        with contextlib.ExitStack() as stack:
            for _ in range(3 * MAX_GUESTS):
                stack.enter_context(agent_socket.connect(agent.socket))
            until(lambda: descriptors(pid) == before + MAX_GUESTS, lambda: descriptors(pid) - before)
            assert agent.status()["clients"] == 1
        assert member.silent(0)
        until(lambda: descriptors(pid) == before)


def test_a_user_who_floods_takes_places_of_their_own(agent: Agent) -> None:
    """Another user's connection stays, though it came first."""
    with contextlib.ExitStack() as stack:
        os.chmod(agent.socket, 0o666)
        os.chmod(agent.socket.parent, 0o755)
        for folder in agent.socket.parents:
            with contextlib.suppress(PermissionError):
                os.chmod(folder, folder.stat().st_mode | 0o011)
        os.seteuid(65534)
        try:
            other = stack.enter_context(agent_socket.connect(agent.socket, 30))
        finally:
            os.seteuid(0)
        for _ in range(2 * MAX_GUESTS):
            stack.enter_context(agent_socket.connect(agent.socket))
        messages.send(other, {"op": "statistics", "all": True})
        assert messages.receive(other)[0]["op"] == "statistics"


def test_at_the_limit_of_descriptors_the_agent_waits_and_does_not_spin(tmp_path: Path) -> None:
    limited = Agent(ALONE[0], tmp_path / "0.sock", prefix=("prlimit", "--nofile=48:48"))
    with running(limited) as (agent,), contextlib.ExitStack() as stack:
        for _ in range(MAX_GUESTS):
            stack.enter_context(agent_socket.connect(agent.socket))
        agent.wait_for("a training process could not be accepted")
        pid, began = agent.process.pid, time.monotonic()
        before = cpu_seconds(pid)
        time.sleep(1.5)
        assert cpu_seconds(pid) - before < (time.monotonic() - began) / 10
        stack.close()
        assert agent.status()["clients"] == 0


def test_a_process_that_asks_without_end_is_not_read_any_more(hosts: list[Agent], tmp_path: Path) -> None:
    """Of rank 1, whose questions rank 0's agent answers, which is stopped meanwhile."""
    file = job_file(tmp_path, loopback(2))
    with holds_no_more_after(hosts[1]), Member(file, 0, hosts[0]) as first, Member(file, 1, hosts[1]) as member:
        assert (first.next()[0], member.next()[0]) == ("joined", "joined")
        asked = 0
        hosts[0].kill(signal.SIGSTOP)
        try:
            member.socket.settimeout(1)
            with contextlib.suppress(TimeoutError):
                for asked in range(5000):
                    group = {"op": "group", "ranks": [0, 1], "label": f"{asked}", "pair": False, "request": asked}
                    messages.send(member.socket, group)
        finally:
            hosts[0].kill(signal.SIGCONT)
        assert MAX_REQUESTS <= asked < 2000  # most of them wait in the socket
        member.socket.settimeout(30)
        answers = [messages.receive(member.socket)[0] for _ in range(asked)]
        assert sorted(answer["request"] for answer in answers) == list(range(asked))
        assert len({answer["group"] for answer in answers}) == asked


def test_a_process_that_does_not_read_its_answers_is_dropped(agent: Agent, tmp_path: Path) -> None:
    with Member(job_file(tmp_path, ALONE), 0, agent) as member:
        assert member.next()[0] == "joined"
        begun = time.monotonic()
        with contextlib.suppress(ConnectionError):
            for number in range(20_000):
                messages.send(member.socket, {"op": "statistics", "request": number})
                assert time.monotonic() < begun + PATIENCE, f"the agent has taken {number} questions, and goes on"
            pytest.fail("the agent went on")
        assert "does not read its answers; dropped" in agent.wait_for("does not read")
        until(lambda: not agent.status()["jobs"])


def test_a_message_of_any_length_reaches_a_process() -> None:
    """The counts of hundreds of ranks are more than a packet of the socket."""
    status = {"op": "statistics", "agent": {f"rank {k}": "x" * 100 for k in range(10_000)}}
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs, tempfile.TemporaryFile() as file:
        before = descriptors(os.getpid())
        messages.answer(ours, status, (file.fileno(),))
        received, (descriptor,) = messages.receive(theirs)
        assert received == status
        assert os.path.samestat(os.fstat(descriptor), os.fstat(file.fileno()))
        messages.close([descriptor])
        assert descriptors(os.getpid()) <= before
