# SPDX-License-Identifier: Apache-2.0
"""No packet is missing from the counts: those of ports that are gone, of the controller, and of the kernel included."""

import asyncio
import json
import random
import signal
import socket
import string
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from finsy.proto import p4r, rpc_code
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gradlane_switch.dataplane.forwarding import DataPlane
from gradlane_switch.dataplane.port_config import parse_port
from gradlane_switch.p4runtime.outbox import MOST_ARBITRATION, MOST_BYTES, MOST_MESSAGES, End, Outbox, StreamLosses
from gradlane_switch.state.program_state import Lock
from tests.gradlane_switch.replaying import balance, drops, frame, steering_pipeline
from tests.gradlane_switch.switch_process import Process, admin
from tests.gradlane_switch.tunnel_lab import TunnelLab
from tests.support.effort import tries


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Callable[..., TunnelLab]]:
    running: list[TunnelLab] = []

    def start(*settings: str, **rest: Any) -> TunnelLab:
        running.append(TunnelLab(tmp_path, *settings, **rest))
        return running[-1]

    yield start
    for made in running:
        made.close()


def whole(accounts: dict[str, Any]) -> list[dict[str, Any]]:
    """Everything that has counts."""
    return [*accounts["ports"], accounts["removed"], accounts["controller"]]


def test_what_removed_ports_counted_stays_in_a_sum(lab: Callable[..., TunnelLab]) -> None:
    made = lab("rx-delay=3600s", "delay=3600s", "rate=1kbit,buffer=64kB", "")
    for number in range(10):
        made.hosts[4].send(frame(2, 0, 100, number))
        made.hosts[4].send(frame(3, 1, 100, number))
        made.hosts[1].send(frame(3, 1, 100, number))
    made.wait_until(lambda ports: ports[1]["rx"]["packets"] == 10 and ports[4]["rx"]["packets"] == 20)
    assert balance(whole(made.admin(op="ports"))) == 0
    for number in (1, 2, 3):
        assert made.admin(op="remove", port=number) == {"ok": True}
        accounts = made.admin(op="ports")
        assert balance(whole(accounts)) == 0
    removed = accounts["removed"]
    # Ten on the link from host 1, ten on that to host 2; of the ten for host 3 the first was on its way.
    assert removed["drops"]["cut"]["packets"] == 20
    assert removed["queues"][1]["flushed"]["packets"] == 9
    assert removed["tx"]["packets"] == 1
    assert removed["rx"] == {"packets": 10, "bytes": 1000}
    assert balance(accounts["ports"]) != 0
    assert made.admin(op="clear") == {"ok": True}
    assert drops(made.admin(op="ports")["removed"]) == 0


def test_packets_of_the_controller_are_accounted_for(tmp_path: Path) -> None:
    lock = Lock()
    dataplane = DataPlane(lock, [parse_port(f"2@pcap:,{tmp_path}/out.pcap")], 0)
    try:
        dataplane.install(steering_pipeline(lock))
        for port in (2, 2, 0, 9):
            dataplane.inject(500, frame(port, 0, 80))
        accounts = dataplane.accounts()
    finally:
        dataplane.stop()
    controller = accounts["controller"]
    assert controller["rx"] == {"packets": 4, "bytes": 320}
    assert (controller["drops"]["program"]["packets"], controller["drops"]["no_port"]["packets"]) == (1, 1)
    assert accounts["ports"][0]["tx"]["packets"] == 2
    assert balance(whole(accounts)) == 0


def test_what_a_socket_has_no_room_for_is_counted(lab: Callable[..., TunnelLab]) -> None:
    made = lab("", "")
    sent = 60_000
    made.process.pause()
    for number in range(sent):
        made.hosts[1].send(frame(2, 0, 60, number))
    made.process.signal(signal.SIGCONT)
    ports = made.wait_until(lambda ports: ports[1]["rx"]["packets"] + ports[1]["socket_drops"] == sent)
    assert ports[1]["socket_drops"] > 0
    assert made.admin(op="clear") == {"ok": True}
    assert made.ports()[1]["socket_drops"] == 0


# What controllers do not read


def packet(size: int) -> Any:
    return p4r.StreamMessageResponse(packet=p4r.PacketIn(payload=bytes(size)))


def arbitration() -> Any:
    return p4r.StreamMessageResponse(arbitration=p4r.MasterArbitrationUpdate(device_id=1))


async def taken(outbox: Outbox, count: int) -> list[Any]:
    return [await outbox.next() for _ in range(count)]


@pytest.mark.parametrize("size", [1, 10_000])
def test_a_controller_that_does_not_read_loses_messages_but_those_of_arbitration(size: int) -> None:
    losses = StreamLosses()
    outbox = Outbox(losses)
    for _ in range(MOST_MESSAGES + 10):
        outbox.send(packet(size))
    kept = min(MOST_MESSAGES, MOST_BYTES // packet(size).ByteSize())
    assert losses.unsent == MOST_MESSAGES + 10 - kept
    outbox.send(arbitration())
    outbox.end(None)
    outbox.send(packet(1))
    found = asyncio.run(taken(outbox, kept + 2))
    assert found[0] == packet(size)
    assert found[-2:] == [arbitration(), End(None)]
    assert losses.streams_ended == 0


def test_what_a_controller_has_read_makes_room() -> None:
    losses = StreamLosses()
    outbox = Outbox(losses)
    for _ in range(4):
        outbox.send(packet(MOST_BYTES // 2))
        outbox.send(packet(1))
        assert losses.unsent == 0
        asyncio.run(taken(outbox, 2))


def test_a_message_longer_than_all_may_be_goes_alone() -> None:
    losses = StreamLosses()
    outbox = Outbox(losses)
    outbox.send(packet(MOST_BYTES + 1))
    outbox.send(packet(1))
    assert losses.unsent == 1


def test_the_stream_of_a_controller_that_reads_not_even_arbitration_ends() -> None:
    losses = StreamLosses()
    outbox = Outbox(losses)
    for _ in range(MOST_MESSAGES + MOST_ARBITRATION + 5):
        outbox.send(arbitration())
    assert losses == StreamLosses(0, 1)
    [end] = asyncio.run(taken(outbox, 1))
    assert end.failure.code == rpc_code.RESOURCE_EXHAUSTED
    assert "this controller does not read its stream" in str(end.failure)


# Any request to the admin socket

KEYS = (
    "rate",
    "buffer",
    "ecn",
    "weights",
    "up",
    "loss",
    "burst-loss",
    "delay",
    "rx-jitter",
    "reorder",
    "port",
    "packets",
)
VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-2, 3),
        st.sampled_from([10**30, -(10**400), 1 << 62, 1 << 64, 1e308, float("inf"), float("nan"), -0.0]),
        st.sampled_from(["9" * 400 + "s", "9" * 30 + "gbit", "9" * 400 + "MB", "1ms", "1mbit", "0.5", "nan", "1e999"]),
        st.text(string.printable, max_size=8),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=9), st.dictionaries(st.text(max_size=3), inner, max_size=2)),
    max_leaves=9,
)
REQUESTS = st.fixed_dictionaries(
    {"op": st.one_of(st.sampled_from(["set", "set", "set", "add", "remove", "trace", "ports", "clear"]), VALUES)},
    optional=dict.fromkeys((*KEYS, "inject", "time"), VALUES),
)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TunnelLab]:
    made = TunnelLab(tmp_path_factory.mktemp("admin"), "", "")
    yield made
    made.close()


@settings(deadline=None, max_examples=tries(100), suppress_health_check=list(HealthCheck))
@given(request=REQUESTS, number=st.one_of(st.sampled_from([1, 2]), VALUES))
def test_any_request_to_the_admin_socket_is_answered(served: TunnelLab, request: dict[str, Any], number: Any) -> None:
    if request["op"] == "trace":
        request |= {"time": "0ms"}
    if request["op"] in ("set", "remove", "trace"):
        request["port"] = 3 if request["op"] == "remove" else number
    assert isinstance(served.admin(**request), dict)
    assert b"Traceback" not in served.process.unread()
    assert set(served.ports()) == {1, 2}


def test_any_bytes_at_the_admin_socket_are_answered(served: TunnelLab) -> None:
    draw = random.Random(5)
    for line in (b"[" * 60_000, b'{"op":' * 9000, *(draw.randbytes(draw.randrange(1, 300)) for _ in range(50))):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(served.path))
            connection.sendall(line.replace(b"\n", b" ") + b"\n")
            with connection.makefile() as lines:
                assert "error" in json.loads(lines.readline())
    assert b"Traceback" not in served.process.unread()


def test_a_process_without_ports_has_accounts(tmp_path: Path) -> None:
    with Process("--admin", str(tmp_path / "a.sock")):
        assert balance(whole(admin(tmp_path / "a.sock", {"op": "ports"}))) == 0
