# SPDX-License-Identifier: Apache-2.0
"""Strangers on the port of the control connections: no job ends because of them, and nothing is left of them."""

import contextlib
import json
import signal
import socket
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gradlane import wire
from gradlane.control import handshake
from gradlane.control.listener import MAX_PENDING_OF_ONE, PARK_SECONDS
from gradlane.control.security import Credentials
from tests.support.agents import Agent, loopback, until
from tests.support.members import Member, job_file
from tests.support.resources import descriptors, holds_no_more_after

HELLO = {"version": handshake.VERSION, "job": 7, "rank": 1, "to": 0, "nonce": "n", "digest": "d", "proof": "p"}
DEEP = "[" * 10_000


def connect(address: str, source: str) -> socket.socket:
    return socket.create_connection((address, wire.CONTROL_PORT), 30, (source, 0))


def over_tls(plain: socket.socket) -> ssl.SSLSocket:
    return Credentials(None).calling.wrap_socket(plain)


def line(message: Any) -> bytes:
    return (message if isinstance(message, str) else json.dumps(message)).encode() + b"\n"


def distrust(plain: socket.socket) -> None:
    with pytest.raises(ssl.SSLError):
        ssl.create_default_context().wrap_socket(plain, server_hostname="rank0")  # as a browser, or curl


def said(text: bytes) -> Callable[[socket.socket], None]:
    return lambda plain: over_tls(plain).sendall(text)


STRAYS: dict[str, Callable[[socket.socket], None]] = {
    "nothing": lambda _: None,
    "HTTP": lambda plain: plain.sendall(b"GET / HTTP/1.1\r\nHost: rank0\r\n\r\n"),
    "HTTPS": distrust,
    "HTTP in TLS": said(b"GET / HTTP/1.1\r\nHost: rank0\r\n\r\n"),
    "another version": said(line({"version": "1.1", "job": 7, "rank": 1})),
    "no version": said(line({})),
    "a false proof": said(line(HELLO)),
    "a false rank": said(line({**HELLO, "rank": 0})),
}


# What an agent of that address may have done, so that the members are told.
TOLD = ("HTTP", "HTTPS", "another version", "a false proof", "a false rank")


@pytest.mark.parametrize("what", STRAYS)
def test_a_stray_call_from_a_members_address_does_not_end_a_join(hosts: list[Agent], tmp_path: Path, what: str) -> None:
    addresses = loopback(2)
    file = job_file(tmp_path, addresses)
    with Member(file, 0, hosts[0]) as first:
        until(lambda: hosts[0].status()["jobs"])
        for _ in range(3):
            with connect(addresses[0], addresses[1]) as plain:
                STRAYS[what](plain)
                until(lambda: hosts[0].status()["control"]["calls_pending"] == 0 or what == "nothing")
        with Member(file, 1, hosts[1]) as second:
            assert (first.next()[0], second.next()[0]) == ("joined", "joined")
        assert len(first.notices) <= (what in TOLD)


MALFORMED = {
    "job": {**HELLO, "job": []},
    "job of a number": {**HELLO, "job": 7.0},
    "truth": {**HELLO, "job": True},
    "rank": {**HELLO, "rank": {"rank": 1}},
    "large rank": {**HELLO, "rank": 1 << 70},
    "proof": {**HELLO, "proof": [1]},
    "surrogate": {**HELLO, "proof": "\ud800"},
    "version": {**HELLO, "version": {"a": 1}},
    "nested": DEEP,
    "nested job": json.dumps(HELLO).replace('"job": 7', f'"job": {DEEP}'),
    "list": [HELLO],
    "null": None,
    "number": 10**4000,
    "lacking": {"version": handshake.VERSION},
}


@pytest.mark.parametrize("what", MALFORMED)
def test_a_malformed_introduction_is_hung_up_at_once(hosts: list[Agent], tmp_path: Path, what: str) -> None:
    file = job_file(tmp_path, loopback(2))

    def broken() -> int:
        return hosts[0].status()["control"]["calls_broken"]

    before = broken()
    with holds_no_more_after(hosts[0]), Member(file, 0, hosts[0]), over_tls(connect(*loopback(2))) as sock:
        sock.sendall(line(MALFORMED[what]))
        began = time.monotonic()
        with contextlib.suppress(OSError):
            while sock.recv(4096):
                pass
        assert time.monotonic() - began < PARK_SECONDS / 2
        until(lambda: broken() == before + 1)


def test_who_waits_for_a_job_that_does_not_come_is_hung_up(hosts: list[Agent]) -> None:
    """It calls again; so one that is gone keeps no place."""
    with holds_no_more_after(hosts[0]), contextlib.ExitStack() as stack:
        for _ in range(5):
            sock = stack.enter_context(over_tls(stack.enter_context(connect(*loopback(2)))))
            sock.sendall(line({**HELLO, "job": 77}))
        until(lambda: hosts[0].status()["control"]["calls_pending"] == 5)
        began = time.monotonic()
        until(lambda: hosts[0].status()["control"]["calls_pending"] == 0)
        assert time.monotonic() - began < 2 * PARK_SECONDS


def test_who_is_refused_and_stays_keeps_no_connection(hosts: list[Agent]) -> None:
    """Whoever is refused is to hang up; whoever does not is hung up, whatever it leaves unread or unsaid."""
    pid = hosts[0].process.pid

    def pending() -> int:
        return hosts[0].status()["control"]["calls_pending"]

    until(lambda: pending() == 0)
    before = descriptors(pid)
    with contextlib.ExitStack() as stack:
        for _ in range(20):
            sock = stack.enter_context(over_tls(stack.enter_context(connect(*loopback(2)))))
            sock.sendall(line({**HELLO, "version": "1.1"}))
        began = time.monotonic()
        until(lambda: pending() == 0 and descriptors(pid) <= before)
        assert time.monotonic() - began < 10


def test_calls_that_came_while_the_agent_was_busy_are_taken_one_by_one(hosts: list[Agent]) -> None:
    """Not all that wait before anything else: as many descriptors, and as long a turn."""
    process = hosts[0].process
    before, most = descriptors(process.pid), 0
    broken = hosts[0].status()["control"]["calls_broken"]
    process.send_signal(signal.SIGSTOP)
    try:
        for _ in range(MAX_PENDING_OF_ONE * 4):
            with connect(*loopback(2)) as plain:
                plain.sendall(b"\n" * 4096)
    finally:
        process.send_signal(signal.SIGCONT)
    deadline = time.monotonic() + 2
    while time.monotonic() < deadline:
        most = max(most, descriptors(process.pid) - before)
    assert hosts[0].status()["control"]["calls_broken"] > broken
    assert most <= 2 * MAX_PENDING_OF_ONE
