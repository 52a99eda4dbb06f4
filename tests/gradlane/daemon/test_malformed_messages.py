# SPDX-License-Identifier: Apache-2.0
"""Random messages to an agent that runs, on its Unix socket and on the port of the control connections.

`make fuzz` tries more. Whatever comes, the agent goes on, holds no more than before, and serves a job.
"""

import asyncio
import contextlib
import json
import socket
import ssl
import struct
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gradlane import job, wire
from gradlane.client import agent_socket
from gradlane.control import handshake
from gradlane.control.security import Credentials
from gradlane.ipc import messages
from tests.support.agents import Agent, loopback
from tests.support.communicators import each, joined
from tests.support.effort import tries
from tests.support.members import Member, job_file
from tests.support.resources import holds_no_more_after

ONE, TWO = loopback(1, first=21), loopback(2, first=21)
# An example has an agent that others had before, and joins jobs that these have left.
REAL = settings(
    max_examples=tries(40),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
PATIENCE = 30.0  # for what the agent does at once

# None that would be taken as a size, and take long.
NUMBERS = st.one_of(st.integers(-2, 300), st.sampled_from([1 << 45, 1 << 63, (1 << 64) + 1, -(1 << 70), 10**400]))
TEXTS = st.one_of(st.text(max_size=20), st.sampled_from(["", "w", "float32", "mean", "\ud800", "x" * 5000, "\0"]))
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, st.floats(), TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(TEXTS, inner, max_size=3)),
    max_leaves=8,
)
DEEP = "[" * 20_000
GOOD: dict[str, dict[str, Any]] = {
    "statistics": {"all": True},
    "close": {},
    "region": {"bytes": 5000},
    "release": {"region": 0},
    "tensor": {"name": "w", "elements": 9, "dtype": "float32", "reduction": "mean", "exact": False, "layers": [[0, 0]]},
    "forget": {"name": "w"},
    "residual": {"name": "w"},
    "load": {"name": "w", "region": 0},
    "group": {"ranks": [0], "label": "", "pair": False},
}
HELLO = {"version": handshake.VERSION, "job": 7, "rank": 1, "to": 0, "nonce": "n", "digest": "d", "proof": "p"}
FROM_MEMBERS: list[dict[str, Any]] = [
    {"stage": 1},
    {"waiting": "it", "seconds": 2.5},
    {"topic": "paths", "content": {"packet": 1500, "rank": 0, "latency": 0.0, "rate": None, "runners": 1}},
    {"ask": 1, "question": {"kind": "group", "name": "g", "shape": 2}},
    {"answer": 0, "content": {}},
    {"report": [[{"kind": "group", "name": "g", "shape": 2}, {"id": 0}]], "whole": True},
    {"lost": {"2": "it is silent"}},
    {"dead": {"2": "it is silent"}},
    {"closed": 3, "hosts": [0, 1]},
    {"closed": 3, "by": 1},
    {"beat": "AQEB"},
    {"reached": 2},
    {"left": [1]},
    {"waits": "it", "ranks": [1], "seconds": [2.5]},
    {"missing": [2]},
    {"topic": "ownership", "content": {"report": {"step": 3, "steps": 3, "late": {"0": [3, 1, 0.0, 0.1, 0.2]}}}},
    {"topic": "ownership", "content": {"bound": 5, "number": 1}},
    {"topic": "ownership", "content": {"propose": 1, "ahead": 5}},
    {"topic": "ownership", "content": {"decide": 5, "plan": [1, 1], "reason": "it is late"}},
    {"topic": "sums", "content": {"overdue": 0}},
    {"topic": "sums", "content": {"halt": 1}},
    {"topic": "sums", "content": {"halted": 1, "waits": 0.5, "streams": [[0, 3, 4]]}},
    {"failed": "it has"},
]


@st.composite
def changed(draw: st.DrawFn, good: dict[str, Any]) -> bytes:
    """A good message, of which some fields are others, too many, or gone, and which may be cut off."""
    message = dict(good)
    for name in draw(st.lists(st.sampled_from([*good, "request", "other"]), max_size=3)):
        if draw(st.booleans()):
            message[name] = draw(VALUES)
        else:
            message.pop(name, None)
    text = json.dumps(message)
    if draw(st.integers(0, 9)) == 0:
        text = text.replace("0", DEEP, 1)
    data = text.encode()
    return data[: draw(st.integers(0, len(data)))] if draw(st.integers(0, 9)) == 0 else data


def requests(joining: dict[str, Any]) -> st.SearchStrategy[bytes]:
    ops = st.sampled_from([*GOOD.items(), ("join", joining)])
    return st.one_of(ops.flatmap(lambda op: changed({"op": op[0], **op[1]})), st.binary(max_size=200))


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    folder = tmp_path_factory.mktemp("agent")
    one = Agent(ONE[0], folder / "0.sock")
    try:
        one.wait_for("ready")
        file = job_file(folder, ONE)
        with joined([one], file, 1) as ranks:  # all threads are there
            each(ranks, lambda c: c.all_reduce(1.0))
        with holds_no_more_after(one):
            yield one
            with joined([one], file, 1) as ranks:
                assert each(ranks, lambda c: c.all_reduce(2.0)) == [2.0]
        assert not [line for line in one.log if "Traceback" in line]
    finally:
        assert one.end() == 0


def hung_up_or_quiet(sock: socket.socket) -> None:
    """Takes in what the agent says, until it has nothing more to say."""
    with contextlib.suppress(EOFError, OSError, ValueError):
        messages.send(sock, {"op": "statistics"})
        while True:
            message, descriptors = messages.receive(sock)
            messages.close(descriptors)
            if message["op"] == "statistics":
                return


@REAL
@given(data=st.data(), joins=st.booleans())
def test_processes_may_send_anything(agent: Agent, data: st.DataObject, joins: bool) -> None:
    file = agent.socket.parent / "one.toml"
    if not file.exists():
        job_file(agent.socket.parent, ONE, file.name)
    joining = {"version": messages.VERSION, "job": file.read_text(), "file": str(file), "rank": 0, "process": 0}
    sending = data.draw(st.lists(st.tuples(requests(joining), st.integers(0, 3)), max_size=6))
    with agent_socket.connect(agent.socket, PATIENCE) as sock, contextlib.suppress(OSError):
        if joins:
            messages.send(sock, {"op": "join", **joining})
        for content, count in sending:
            socket.send_fds(sock, [content], [sock.fileno()] * count)
        hung_up_or_quiet(sock)
    assert agent.process.poll() is None


def call(content: bytes, abort: bool) -> None:
    with socket.create_connection((ONE[0], wire.CONTROL_PORT), PATIENCE, (TWO[1], 0)) as plain:
        if abort:  # a reset, and no end of TLS
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        with contextlib.suppress(OSError), Credentials(None).calling.wrap_socket(plain) as sock:
            sock.sendall(content)
            if not abort and content.endswith(b"\n"):
                while sock.recv(4096):
                    pass


@REAL
@given(
    content=st.one_of(changed(HELLO).map(lambda line: line + b"\n"), st.binary(max_size=300), st.just(b"x" * 70_000)),
    abort=st.booleans(),
)
def test_callers_may_say_anything(agent: Agent, content: bytes, abort: bool) -> None:
    """To a job that waits for them: it goes on waiting."""
    file = agent.socket.parent / "two.toml"
    if not file.exists():
        job_file(agent.socket.parent, TWO, file.name)
    with Member(file, 0, agent) as member:
        call(content, abort)
        messages.send(member.socket, {"op": "statistics"})
        while (said := member.hear(PATIENCE))[0] != "statistics":
            assert said[0] == "notice"


@REAL
@given(lines=st.lists(st.sampled_from(FROM_MEMBERS).flatmap(changed), min_size=1, max_size=6))
def test_a_member_may_say_anything(agent: Agent, lines: list[bytes]) -> None:
    """One that knows the key: its job may fail, and nothing else."""
    file = agent.socket.parent / "two.toml"
    if not file.exists():
        job_file(agent.socket.parent, TWO, file.name)
    parsed, credentials = job.load(file), Credentials(None)

    async def talk() -> None:
        reader, writer = await asyncio.open_connection(
            ONE[0], wire.CONTROL_PORT, ssl=credentials.calling, local_addr=(TWO[1], 0)
        )
        try:
            await asyncio.wait_for(handshake.introduce(reader, writer, parsed, 1, 0, credentials), PATIENCE)
            writer.write(b"\n".join([*lines, b'{"failed": "enough"}', b""]))
            await writer.drain()
            with contextlib.suppress(asyncio.IncompleteReadError, OSError, ssl.SSLError):
                await asyncio.wait_for(reader.readuntil(b'"failed"'), PATIENCE)
        except (OSError, EOFError):
            pass  # it has hung up
        finally:
            writer.transport.abort()

    with Member(file, 0, agent) as member:
        asyncio.run(talk())
        said, _ = member.next(PATIENCE)
        assert said not in ("joined", "closed")
