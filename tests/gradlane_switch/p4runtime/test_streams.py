# SPDX-License-Identifier: Apache-2.0
"""What a controller gets on its stream without asking: packets, digests, idle entries. And what it sends there."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from finsy.proto import p4i, p4r, rpc_code
from google.protobuf import text_format

from tests.gradlane_switch.flooding import LEARNED, digest_entry, frame, kind_entries, write_files
from tests.gradlane_switch.switch_process import Controller, Process, admin
from tests.support.paths import SWITCH_PROGRAMS

CPU = 500


@pytest.fixture(scope="module")
def switch() -> Iterator[Process]:
    with Process("--device-id", "1", "--cpu-port", str(CPU)) as process:
        yield process


@pytest.fixture(scope="module")
def elections() -> Iterator[int]:
    return iter(range(10, 1 << 30))


@pytest.fixture
def controller(switch: Process, elections: Iterator[int]) -> Iterator[Controller]:
    with Controller(switch.address, next(elections)) as made:
        assert made.arbitrate().status.code == rpc_code.OK
        yield made


def files(name: str) -> tuple[Path, Path]:
    return SWITCH_PROGRAMS / f"{name}.json", SWITCH_PROGRAMS / f"{name}.p4info.txtpb"


def ids(name: str) -> dict[str, int]:
    info = text_format.Parse(files(name)[1].read_text(), p4i.P4Info())
    parts = (info.tables, info.actions, info.digests)
    return {item.preamble.alias: item.preamble.id for part in parts for item in part}


def packet(payload: bytes, *metadata: tuple[int, bytes]) -> Any:
    message = p4r.PacketOut(payload=payload)
    for number, value in metadata:
        message.metadata.add(metadata_id=number, value=value)
    return p4r.StreamMessageRequest(packet=message)


def test_a_packet_out_that_comes_back_is_a_packet_in(controller: Controller) -> None:
    controller.set_pipeline(*files("attached"))
    controller.send(packet(b"\x96\x2bback again, hello", (1, CPU.to_bytes(2, "big"))))
    message = next(controller.stream).packet
    # The first two bytes are what the program's packet_in header would be: 9 bits and 7.
    assert message.payload == b"back again, hello"
    assert [(item.metadata_id, item.value) for item in message.metadata] == [(1, b"\x01\x2c"), (2, b"\x2b")]


def test_a_wrong_packet_out_gets_an_error_that_repeats_it(controller: Controller) -> None:
    controller.set_pipeline(*files("attached"))
    request = packet(b"hello")
    controller.send(request)
    error = next(controller.stream).error
    assert (error.canonical_code, error.packet_out.packet_out) == (rpc_code.INVALID_ARGUMENT, request.packet)
    assert "egress_port (1) is missing" in error.message


def test_only_a_primary_sends_packets(controller: Controller, switch: Process) -> None:
    controller.set_pipeline(*files("attached"))
    with Controller(switch.address, 1) as backup:
        assert backup.arbitrate().status.code == rpc_code.ALREADY_EXISTS
        backup.send(packet(b"hello", (1, b"\x01")))
        assert next(backup.stream).error.canonical_code == rpc_code.PERMISSION_DENIED


def want_digests(controller: Controller, **config: int) -> int:
    """Sets the program that learns, and wants its digest, as p4.v1.DigestEntry.Config says; the digest's id."""
    controller.set_pipeline(*files("packet_paths"))
    number = ids("packet_paths")["learned_t"]
    wanted = p4r.DigestEntry(digest_id=number, config=p4r.DigestEntry.Config(**config))
    controller.insert(p4r.Entity(digest_entry=wanted))
    return number


def learn(controller: Controller, *ops: int) -> None:
    """The digests of op 7 and of op 10; the latter comes back once, and is no digest then."""
    for op in ops:
        controller.send(packet(bytes([op]) + bytes(70)))


def test_digests_come_in_lists_and_are_told_once_until_acknowledged(controller: Controller) -> None:
    number = want_digests(controller, max_list_size=2, max_timeout_ns=10**10, ack_timeout_ns=10**11)
    learn(controller, 7, 7, 10)
    first = next(controller.stream).digest
    assert (first.digest_id, [item.struct.members[0].bitstring for item in first.data]) == (number, [b"\x07", b"\x0a"])
    learn(controller, 7, 10)
    controller.send(p4r.StreamMessageRequest(digest_ack=p4r.DigestListAck(digest_id=number, list_id=first.list_id)))
    learn(controller, 10, 7)
    second = next(controller.stream).digest
    assert second.list_id != first.list_id
    assert [item.struct.members[0].bitstring for item in second.data] == [b"\x0a", b"\x07"]


def test_a_list_is_told_as_soon_as_it_is_full(controller: Controller, tmp_path: Path) -> None:
    began = time.monotonic()
    controller.set_pipeline(*write_files(tmp_path))
    controller.insert(*kind_entries(), digest_entry(max_list_size=2, max_timeout_ns=60 * 10**9))
    controller.send(packet(frame(LEARNED, 5)))
    time.sleep(0.2)  # The switch looks at the list, and as it is not full, waits for its time or for news.
    controller.send(packet(frame(LEARNED, 6)))
    assert [item.struct.members[1].bitstring for item in next(controller.stream).digest.data] == [b"\x05", b"\x06"]
    assert time.monotonic() - began < 60


def test_a_digest_that_waits_alone_is_told_when_its_time_is_up(controller: Controller) -> None:
    want_digests(controller, max_list_size=2, max_timeout_ns=10**7)
    learn(controller, 7)
    assert [item.struct.members[0].bitstring for item in next(controller.stream).digest.data] == [b"\x07"]


def test_an_idle_entry_is_told(controller: Controller) -> None:
    controller.set_pipeline(*files("attached"))
    names = ids("attached")
    message = p4r.TableEntry(table_id=names["ageing"], idle_timeout_ns=20_000_000, metadata=b"who")
    message.match.add(field_id=1, exact=p4r.FieldMatch.Exact(value=b"\x05"))
    message.action.action.action_id = names["NoAction"]
    controller.insert(p4r.Entity(table_entry=message))
    for _ in range(2):
        [told] = next(controller.stream).idle_timeout_notification.table_entry
        assert (told.table_id, told.metadata) == (names["ageing"], b"who")


def test_without_a_cpu_port_a_packet_out_is_refused() -> None:
    with Process("--device-id", "1") as process, Controller(process.address, 1) as lonely:
        lonely.arbitrate()
        lonely.send(packet(b"hello"))
        assert next(lonely.stream).error.canonical_code == rpc_code.FAILED_PRECONDITION
        lonely.set_pipeline(*files("packet_paths"))
        lonely.send(packet(b"hello"))
        assert "--cpu-port" in next(lonely.stream).error.message


def test_packets_without_end_are_counted_at_the_admin_socket(tmp_path: Path) -> None:
    path = tmp_path / "admin"
    with Process("--cpu-port", str(CPU), "--admin", str(path)) as process, Controller(process.address, 1) as lonely:
        assert admin(path, {"op": "program"})["program"] == {}
        lonely.arbitrate()
        lonely.set_pipeline(*files("packet_paths"))
        lonely.send(packet(bytes([14]) + bytes(70)))
        lonely.arbitrate()  # Answered once the packet has been dealt with.
        assert admin(path, {"op": "program"})["program"]["endless"] == 1
