# SPDX-License-Identifier: Apache-2.0
"""Options on the sockets of a library that has no options for them."""

import platform
import socket
from collections.abc import Iterator
from dataclasses import replace

import pytest

from lab.model.arms import Arm
from lab.training.sockets import check_congestion_control, set_timeouts, tune_process
from tests.support.needs import needs_root

TOS_OF_EF = 46 << 2
RENO_EF = Arm("test", "gloo", "", dscp=46, congestion_control="reno")


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket, socket.socket]]:
    with socket.create_server(("127.0.3.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname(), source_address=("127.0.3.2", 0))
        server, _ = listener.accept()
        with client, server:
            yield client, server, listener


def tos(sock: socket.socket) -> int:
    return sock.getsockopt(socket.IPPROTO_IP, socket.IP_TOS)


def congestion_control(sock: socket.socket) -> bytes:
    return sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0")


def test_connected_sockets_of_the_address_are_tuned(
    pair: tuple[socket.socket, socket.socket, socket.socket],
) -> None:
    client, server, listener = pair
    assert tune_process("127.0.3.2", RENO_EF) == 1
    assert (tos(client), congestion_control(client)) == (TOS_OF_EF, b"reno")
    assert (tos(server), tos(listener)) == (0, 0)
    client.sendall(b"still alive")
    assert server.recv(100) == b"still alive"


@needs_root
def test_the_kernel_marks_the_packets(pair: tuple[socket.socket, socket.socket, socket.socket]) -> None:
    client, _, _ = pair
    tune_process("127.0.3.2", RENO_EF)
    with socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x0800)) as watcher:
        watcher.bind(("lo", 0x0800))
        watcher.settimeout(60)
        client.sendall(b"marked")
        packet = b""
        while not packet.endswith(b"marked"):
            packet = watcher.recv(2048)
    assert packet[12:20] == socket.inet_aton("127.0.3.2") + socket.inet_aton("127.0.3.1")
    assert packet[1] == TOS_OF_EF


def test_other_addresses_are_left_alone(pair: tuple[socket.socket, socket.socket, socket.socket]) -> None:
    client, server, _ = pair
    assert tune_process("127.0.3.9", RENO_EF) == 0
    assert (tos(client), tos(server)) == (0, 0)


def test_ipv4_in_ipv6_counts() -> None:
    with (
        socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as listener,
        socket.create_connection(("127.0.3.4", listener.getsockname()[1])),
    ):
        server, _ = listener.accept()
        with server:
            assert tune_process("127.0.3.4", RENO_EF) == 1
            assert tos(server) == TOS_OF_EF


def test_the_retransmission_timeout_is_tuned_or_refused(
    pair: tuple[socket.socket, socket.socket, socket.socket],
) -> None:
    client, _, _ = pair
    arm = replace(RENO_EF, min_rto_ms=20)
    release = tuple(int(part) for part in platform.release().split(".")[:2])
    if release < (6, 15):
        with pytest.raises(ValueError, match=r"arm test needs the socket option TCP_RTO_MIN_US, of Linux 6\.15"):
            tune_process("127.0.3.2", arm)
    else:
        assert client.getsockopt(socket.IPPROTO_TCP, 45) == 200_000
        assert tune_process("127.0.3.2", arm) == 1
        assert client.getsockopt(socket.IPPROTO_TCP, 45) == pytest.approx(20_000, abs=10_000)  # in the kernel's ticks


def test_an_unknown_congestion_control_names_the_known() -> None:
    check_congestion_control("reno")
    with pytest.raises(ValueError, match=r"'warp' is not in this kernel; it has .*reno"):
        check_congestion_control("warp")


def test_a_blocking_receive_is_bounded(pair: tuple[socket.socket, socket.socket, socket.socket]) -> None:
    client, server, _ = pair
    set_timeouts(client, receive=0.05, send=0)
    with pytest.raises(BlockingIOError):
        client.recv(10)
    server.sendall(b"x")
    assert client.recv(10) == b"x"
