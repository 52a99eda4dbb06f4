# SPDX-License-Identifier: Apache-2.0
"""Who is let in on the control connections, and that nobody else can do harm there."""

import asyncio
import contextlib
import os
import select
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import pytest

from gradlane import job, wire
from gradlane.control import handshake
from gradlane.control.handshake import HANDSHAKE_SECONDS, Call, Refused
from gradlane.control.listener import MAX_PENDING, MAX_PENDING_OF_ONE
from gradlane.control.security import Credentials
from tests.gradlane.control.certificates import Authority
from tests.support.agents import Agent, agents, loopback, running, until
from tests.support.members import KEY, Member, job_file, members
from tests.support.resources import descriptors


def configured(
    folder: Path, addresses: Sequence[str], configs: Sequence[Path | None]
) -> contextlib.AbstractContextManager[list[Agent]]:
    options = [("--config", config) if config else () for config in configs]
    places = enumerate(zip(addresses, options, strict=True))
    return running(*(Agent(address, folder / f"{number}.sock", *more) for number, (address, more) in places))


def what_both_say(files: Sequence[Path], hosts: Sequence[Agent]) -> list[str]:
    """What both ends say of each other, which must come at once.

    For the caller, rank 1, it is the end; the listener has no proof of who called, tells of it, and goes on waiting.
    """
    with members(files, hosts) as joining:
        listener, caller = joining[0].hear(2), joining[1].hear(2)
        assert (listener[0], caller[0]) == ("notice", "error")
        assert joining[0].silent(0.1)
    return [listener[1], caller[1]]


def test_another_key_is_named_at_both_ends_at_once(tmp_path: Path) -> None:
    addresses = loopback(2)
    files = [job_file(tmp_path, addresses, f"{key}.toml", key=key) for key in (KEY, KEY[:-1] + "b")]
    with agents(tmp_path, addresses) as hosts:
        for order in (files, files[::-1]):
            said = what_both_say(order, hosts)
            assert any(f"rank 1 (h1, {addresses[1]}) does not know the key of job 'trial'" in text for text in said)
            assert any("says that this agent does not know the key of job 'trial'" in text for text in said)


def test_another_version_is_named_at_both_ends_at_once(tmp_path: Path) -> None:
    addresses = loopback(2)
    file = job_file(tmp_path, addresses)
    newer = (
        "import gradlane.control.handshake as h, sys; h.VERSION = '0.1'; from gradlane.cli import main; "
        "sys.exit(main())"
    )
    mixed = Agent(addresses[0], tmp_path / "0.sock"), Agent(addresses[1], tmp_path / "1.sock", program=("-c", newer))
    with running(*mixed) as hosts:
        said = what_both_say([file, file], hosts)
    assert f"speaks version 0.1 of the agents' protocol, this agent version {handshake.VERSION}" in said[0]
    assert f"speaks version {handshake.VERSION} of the agents' protocol, this agent version 0.1" in said[1]


def test_a_job_needs_a_key_or_certificates(tmp_path: Path) -> None:
    addresses = loopback(1)
    with agents(tmp_path, addresses) as hosts, members(job_file(tmp_path, addresses, key=""), hosts) as joining:
        assert "job.key: is missing, and this agent has no certificates" in joining[0].next()[0]


@pytest.mark.parametrize("key", ["", KEY])
def test_certificates_authenticate_with_and_without_a_key(tmp_path: Path, key: str) -> None:
    addresses = loopback(3)
    authority = Authority(tmp_path, "ca")
    configs = [authority.issue(f"a{k}", address=address) for k, address in enumerate(addresses[:2])]
    configs.append(authority.issue("a2", host="h2"))
    file = job_file(tmp_path, addresses, key=key)
    with configured(tmp_path, addresses, configs) as hosts, members(file, hosts) as joining:
        assert [member.next()[0] for member in joining] == ["joined"] * 3


def test_wrong_certificates_are_named(tmp_path: Path) -> None:
    addresses = loopback(2)
    authority = Authority(tmp_path, "ca")
    good = [authority.issue(f"good{rank}", address=address) for rank, address in enumerate(addresses)]
    misnamed = authority.issue("misnamed", address="10.9.9.9")
    file = job_file(tmp_path, addresses)
    words = "shows a certificate for 10.9.9.9; it must name"
    for config, expected in (
        (misnamed, words),
        (None, "shows no certificate, but the other agent has [tls] in its file"),
    ):
        with configured(tmp_path, addresses, [good[0], config]) as hosts:
            said = what_both_say([file] * 2, hosts)
            assert any(expected in text for text in said), said
    with configured(tmp_path, addresses, [misnamed, good[1]]) as hosts, members(file, hosts) as joining:
        op, said = joining[1].hear(2)
        assert op == "error"
        assert words in said


@pytest.mark.parametrize("who", ["both", "the caller", "the listener"])
def test_distrust_is_named_at_both_ends_at_once(tmp_path: Path, who: str) -> None:
    addresses = loopback(2)
    names = [f"rank {rank} (h{rank}, {address})" for rank, address in enumerate(addresses)]
    authority, other = Authority(tmp_path, "ca"), Authority(tmp_path, "other")
    configs = [
        authority.issue("listener", address=addresses[0], trust=other if who == "the caller" else None),
        other.issue("caller", address=addresses[1], trust=authority if who == "the listener" else None),
    ]
    with configured(tmp_path, addresses, configs) as hosts:
        said = what_both_say([job_file(tmp_path, addresses)] * 2, hosts)
    shows = "shows a certificate that this agent does not trust: "
    distrusts = "does not trust this agent's certificate: unknown ca"
    expected = [f"{names[1]} {distrusts}", f"{names[0]} {shows}"]
    if who == "the listener":
        expected = [f"{names[1]} {shows}", f"{names[0]} {distrusts}"]
    assert all(text.startswith(words) for text, words in zip(said, expected, strict=True)), said


def test_who_has_certificates_and_who_has_not_are_told_so_at_once(tmp_path: Path) -> None:
    addresses = loopback(2)
    authority = Authority(tmp_path, "ca")
    for certified in (0, 1):
        configs: list[Path | None] = [None, None]
        configs[certified] = authority.issue(f"a{certified}", address=addresses[certified])
        with configured(tmp_path, addresses, configs) as hosts:
            said = what_both_say([job_file(tmp_path, addresses)] * 2, hosts)
        assert all("[tls] in its file" in text or "does not trust: self-signed" in text for text in said), said


def test_who_stands_in_the_middle_gets_nowhere(tmp_path: Path) -> None:
    parsed = job.load(job_file(tmp_path, loopback(2)))
    real, middle = Credentials(None), Credentials(None)

    async def through(relayed: bool) -> tuple[str, str]:
        """What the listener finds wrong with rank 1, and rank 1 with the listener."""
        problems: list[str] = []
        done = asyncio.Event()

        async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            call = Call(reader, writer, real)
            await call.listen()
            problems.append(call.problem(parsed, 0))
            if problems[0]:
                await call.refuse(problems[0])
            else:
                call.accept(parsed, 0)
            await done.wait()
            writer.close()

        async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while data := await reader.read(4096):
                writer.write(data)

        async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            onwards = await asyncio.open_connection("127.0.0.1", port(server), ssl=real.calling)
            await asyncio.wait(
                [asyncio.ensure_future(pump(reader, onwards[1])), asyncio.ensure_future(pump(onwards[0], writer))]
            )

        def port(of: asyncio.Server) -> int:
            return of.sockets[0].getsockname()[1]

        server = await asyncio.start_server(listen, "127.0.0.1", 0, ssl=real.listening)
        proxy = await asyncio.start_server(relay, "127.0.0.1", 0, ssl=middle.listening)
        target = port(proxy if relayed else server)
        reader, writer = await asyncio.open_connection("127.0.0.1", target, ssl=real.calling)
        refused = ""
        try:
            await asyncio.wait_for(handshake.introduce(reader, writer, parsed, 1, 0, Credentials(None)), 60)
        except Refused as error:
            refused = str(error)
        done.set()
        writer.close()
        server.close()
        proxy.close()
        return problems[0], refused

    assert asyncio.run(through(relayed=False)) == ("", "")
    found, refused = asyncio.run(through(relayed=True))
    assert "does not know the key" in found
    assert "does not know the key" in refused


Answer = Callable[[Call, job.Job], Coroutine[Any, Any, None]]


def introduced(parsed: job.Job, answer: Answer, rank: int = 1, to: int = 0) -> str:
    """Why `rank` does not take who answers it for rank `to`; "": it does."""
    credentials = Credentials(None)

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        call = Call(reader, writer, credentials)
        await call.listen()
        await answer(call, parsed)

    async def call() -> str:
        server = await asyncio.start_server(listen, "127.0.0.1", 0, ssl=credentials.listening)
        port = server.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=credentials.calling)
        try:
            await asyncio.wait_for(handshake.introduce(reader, writer, parsed, rank, to, credentials), 60)
        except Refused as error:
            return str(error)
        finally:
            writer.close()
            server.close()
        return ""

    return asyncio.run(call())


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, ""),
        ({"proof": "0" * 64}, "does not know the key of job 'trial'"),
        ({"proof": None}, "does not know the key of job 'trial'"),
        ({"digest": "0"}, "has another job file for job 'trial'"),
        ({"version": "0.1"}, "speaks version 0.1"),
    ],
)
def test_a_caller_takes_nobody_who_does_not_know_the_key_and_the_job(
    tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    async def answer(call: Call, parsed: job.Job) -> None:
        honest = {"version": handshake.VERSION, "digest": parsed.digest}
        proof = call._binding(0).proof(parsed, "listener")  # pyright: ignore[reportPrivateUsage]
        handshake.write(call.writer, {**honest, "proof": proof, **changes})

    said = introduced(job.load(job_file(tmp_path, loopback(2))), answer)
    assert words in said
    assert bool(said) == bool(words)


def test_what_the_caller_has_proved_proves_nothing_of_a_listener(tmp_path: Path) -> None:
    async def answer(call: Call, parsed: job.Job) -> None:
        proof = call._hello["proof"]  # pyright: ignore[reportPrivateUsage]
        handshake.write(call.writer, {"version": handshake.VERSION, "digest": parsed.digest, "proof": proof})

    assert "does not know the key" in introduced(job.load(job_file(tmp_path, loopback(2))), answer)


@pytest.mark.parametrize(("rank", "to"), [(0, 0), (2, 0), (1, 1)])
def test_a_member_calls_lower_ranks_as_itself_alone(tmp_path: Path, rank: int, to: int) -> None:
    async def answer(call: Call, parsed: job.Job) -> None:
        await call.refuse(call.problem(parsed, 0) or "takes it")

    assert "must not call rank 0" in introduced(job.load(job_file(tmp_path, loopback(2))), answer, rank, to)


def test_control_connections_are_tls_1_3_alone(tmp_path: Path) -> None:
    addresses = loopback(1)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with agents(tmp_path, addresses):
        with socket.create_connection((addresses[0], wire.CONTROL_PORT)) as plain:
            assert context.wrap_socket(plain).version() == "TLSv1.3"
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        with socket.create_connection((addresses[0], wire.CONTROL_PORT)) as plain, pytest.raises(ssl.SSLError):
            context.wrap_socket(plain)


def hung_up(connection: socket.socket) -> bool:
    return bool(select.select([connection], [], [], 0)[0])


def test_neither_a_flood_nor_garbage_nor_slowness_keeps_a_job_out(tmp_path: Path) -> None:
    addresses = loopback(2)
    file = job_file(tmp_path, addresses)
    target = (addresses[0], wire.CONTROL_PORT)
    with agents(tmp_path, addresses) as hosts, contextlib.ExitStack() as stack:
        before = descriptors(hosts[0].process.pid)
        # Half-open and slow: they never finish, some not even TLS's first message.
        strangers = [(f"127.44.0.{number // 50}", 0) for number in range(MAX_PENDING + 100)]
        flood = [stack.enter_context(socket.create_connection(target, None, stranger)) for stranger in strangers]
        for number, connection in enumerate(flood):
            with contextlib.suppress(ConnectionError):  # the oldest have lost their places
                connection.send([b"", b"\x16\x03"][number % 2])
        for number in range(50):
            with socket.create_connection(target, None, ("127.44.1.1", 0)) as connection:
                connection.send([b"GET / HTTP/1.0\r\n\r\n", os.urandom(5000)][number % 2])
        until(lambda: hosts[0].status()["control"]["calls_evicted"] >= 100)
        until(lambda: all(hung_up(connection) for connection in flood[:100]))  # the oldest
        assert not any(hung_up(connection) for connection in flood[-100::2])  # that say nothing
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            for port in (wire.UDP_PORT, wire.CONTROL_PORT):
                for size in (0, 1, 36, 40, 1400):
                    sock.sendto(os.urandom(size), (addresses[0], port))
        # An endless line inside TLS, and silence.
        context = Credentials(None).calling
        for _ in range(5):
            stack.enter_context(context.wrap_socket(stack.enter_context(socket.create_connection(target))))
        talker = stack.enter_context(context.wrap_socket(stack.enter_context(socket.create_connection(target))))
        with contextlib.suppress(OSError):
            for _ in range(100):
                talker.send(b"x" * 10_000)
        with members(file, hosts) as joining:
            answers = [member.next() for member in joining]
        assert [said for said, _ in answers] == ["joined"] * 2
        assert max(seconds for _, seconds in answers) < 5
        control = hosts[0].status()["control"]
        assert control["calls_evicted"] >= 100
        assert control["calls_broken"] > 0
        deadline = time.monotonic() + HANDSHAKE_SECONDS + 5
        while descriptors(hosts[0].process.pid) > before + 2 and time.monotonic() < deadline:
            assert hosts[0].status()["control"]["calls_pending"] <= MAX_PENDING
            time.sleep(0.2)
        assert descriptors(hosts[0].process.pid) <= before + 2  # the slow ones have been hung up


def test_an_address_has_few_places(tmp_path: Path) -> None:
    with agents(tmp_path, loopback(1)) as hosts, contextlib.ExitStack() as stack:
        target = (loopback(1)[0], wire.CONTROL_PORT)
        for last in (1, 2):
            for _ in range(MAX_PENDING_OF_ONE + 10):
                stack.enter_context(socket.create_connection(target, None, (f"127.44.0.{last}", 0)))
        until(lambda: hosts[0].status()["control"]["calls_evicted"] == 2 * 10)
        assert hosts[0].status()["control"]["calls_pending"] == 2 * MAX_PENDING_OF_ONE


def test_a_stranger_who_claims_a_rank_does_not_end_the_job(tmp_path: Path) -> None:
    """Only the address of a rank that is missing can be the reason why a job does not begin."""
    addresses = loopback(3)
    file = job_file(tmp_path, addresses[:2])
    other = job_file(tmp_path, addresses[:2], "other.toml", key=KEY[:-1] + "b")
    claim = (
        "import asyncio, sys; from gradlane import job; from gradlane.control import handshake\n"
        "from gradlane.control.security import Credentials\n"
        "async def main():\n"
        "    c = Credentials(None)\n"
        f"    r, w = await asyncio.open_connection('{addresses[0]}', {wire.CONTROL_PORT}, ssl=c.calling,\n"
        f"        local_addr=('{addresses[2]}', 0))\n"
        f"    await handshake.introduce(r, w, job.load('{other}'), 1, 0, c)\n"
        "asyncio.run(main())"
    )
    with agents(tmp_path, addresses[:2]) as hosts, Member(file, 0, hosts[0]) as first:
        refused = subprocess.run([sys.executable, "-c", claim], capture_output=True, text=True, timeout=60, check=False)
        assert "does not know the key" in refused.stderr
        assert first.silent(0.5)
        with Member(file, 1, hosts[1]) as second:
            assert (first.next()[0], second.next()[0]) == ("joined", "joined")
