# SPDX-License-Identifier: Apache-2.0
"""Interfaces are what was asked for, in a namespace of their own; and what is not there is named."""

import subprocess
import sys
from collections.abc import Iterator

import pytest

from lab.model.errors import FabricError
from lab.net import interfaces
from lab.net.interfaces import PORT_OFFLOADS, Interface, Shape
from tests.support.needs import needs, needs_root

pytestmark = [needs_root, needs("tc", "ethtool", "nsenter")]
DSCP = {46: 5, 56: 7}


@pytest.fixture
def inside() -> Iterator[tuple[str, ...]]:
    """The command line that enters a namespace with the two ends of a link, "one" and "other"."""
    holder = subprocess.Popen(
        ["unshare", "--net", "sh", "-c", "ip link add one type veth peer name other && echo && exec sleep 60"],
        stdout=subprocess.PIPE,
    )
    assert holder.stdout is not None
    holder.stdout.readline()
    yield ("nsenter", "-t", str(holder.pid), "-n")
    holder.kill()
    holder.communicate()


def both(inside: tuple[str, ...], one: Shape, other: Shape) -> Interface:
    """The first end, after both have been set up."""
    end = Interface("one", PORT_OFFLOADS, one, inside)
    end.set_up()
    Interface("other", PORT_OFFLOADS, other, inside).set_up()
    return end


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("tc qdisc del dev one root", "qdisc htb at root of one is not there"),
        ("tc qdisc replace dev one parent 1:d bfifo limit 9000", "bfifo at 1:d of one has limit 9000; 16000"),
        ("tc qdisc del dev one parent 1:8", "qdisc bfifo at 1:8 of one is not there, only htb at root"),
        (
            "tc class change dev one parent 1:100 classid 1:c htb rate 8kbit ceil 9mbit",
            "class 1:c of one has a ceiling of 9000000 bit/s; 10000000 was asked for",
        ),
        ("ethtool -K one tso on tx on sg on", "offload .* of one is on; off was asked for"),
        ("ip link set dev one mtu 9000", "one has MTU 9000 .*; not 1500 and UP"),
    ],
)
def test_what_is_not_as_it_was_asked_for_is_named(inside: tuple[str, ...], command: str, words: str) -> None:
    end = both(inside, interfaces.priority_port(10_000_000, 16_000, DSCP), Shape())
    end.check()
    subprocess.run([*inside, *command.split()], check=True)
    with pytest.raises(FabricError, match=words):
        end.check()


def test_a_token_bucket_of_another_rate_is_named(inside: tuple[str, ...]) -> None:
    end = both(inside, interfaces.token_bucket(33_333_333, 50_000), Shape())
    command = "tc qdisc change dev one root tbf rate 3mbit burst 9000b limit 9000b"
    subprocess.run([*inside, *command.split()], check=True)
    with pytest.raises(FabricError, match="tbf at root of one has rate 375000; 4166666 was asked for"):
        end.check()


def test_what_the_kernel_does_not_know_is_said(inside: tuple[str, ...]) -> None:
    with pytest.raises(FabricError, match=r"one can't be set up: .*nosuch"):
        Interface("one", PORT_OFFLOADS, Shape(("qdisc add dev IF root nosuch",)), inside).set_up()


SEND = """
import socket
receiver, sender = (socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x88B5)) for _ in range(2))
receiver.bind(("one", 0x88B5))
sender.bind(("other", 0x88B5))
receiver.setblocking(False)
arrived = 0
for n in range(5000):
    sender.send(bytes(12) + bytes.fromhex("88b5") + bytes(100))
    try:
        arrived += len(receiver.recv(200)) > 0
    except BlockingIOError:
        pass
print(arrived)
"""


def test_frames_vanish_by_chance_and_the_sender_is_not_told(inside: tuple[str, ...]) -> None:
    both(inside, Shape(), interfaces.lossy(0.2))
    done = subprocess.run([*inside, sys.executable, "-c", SEND], capture_output=True, text=True, check=True)
    assert 3850 <= int(done.stdout) <= 4150  # five standard deviations
