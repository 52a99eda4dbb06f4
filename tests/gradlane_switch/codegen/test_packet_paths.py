# SPDX-License-Identifier: Apache-2.0
"""What becomes of a packet when a pipeline ends: clones, resubmission, recirculation, multicast, digests, drops."""

from typing import Any

import pytest
from finsy.proto import p4d, p4r, rpc_code

from gradlane_switch import Switch
from gradlane_switch.errors import EntityError
from gradlane_switch.state.program_state import Losses
from tests.gradlane_switch.compiled_programs import delete, group, ids, load, modify, session

PAYLOAD = bytes(range(50))
CLONES = [(3, 7), (4, 9)]


@pytest.fixture
def switch() -> Switch:
    made = load("packet_paths")
    made.insert(session(5, CLONES))
    made.insert(group(7, CLONES))
    return made


def request(op: int, argument: int = 0) -> bytes:
    return bytes([op, argument]) + bytes(8) + PAYLOAD


def seen(op: int, argument: int, kind: int, kept: int, lost: int, rid: int, port: int, length: int = 60) -> bytes:
    """The frame as egress leaves it."""
    notes = bytes([kind, kept, lost, rid]) + length.to_bytes(2, "big") + port.to_bytes(2, "big")
    return bytes([op, argument]) + notes + PAYLOAD


def test_a_clone_of_ingress_is_the_packet_as_it_arrived_with_its_field_list(switch: Switch) -> None:
    assert switch.process(2, request(1, 5)) == [
        (3, seen(1, 5, 1, 0x55, 0, 7, 0)),
        (4, seen(1, 5, 1, 0x55, 0, 9, 0)),
        (1, seen(1, 5, 0, 0x55, 0x66, 0xEE, 2)),
    ]


def test_a_clone_of_egress_is_the_packet_as_egress_left_it_and_follows_it(switch: Switch) -> None:
    assert switch.process(2, request(4, 5)) == [
        (1, seen(4, 5, 0, 0x55, 0x66, 0xEE, 2)),
        (3, seen(4, 5, 2, 0x55, 0, 7, 0)),
        (4, seen(4, 5, 2, 0x55, 0, 9, 0)),
    ]


@pytest.mark.parametrize(("op", "kind", "rids"), [(8, 1, (7, 9)), (12, 2, (7, 9))])
def test_a_clone_outlives_the_packet_that_is_dropped(switch: Switch, op: int, kind: int, rids: tuple[int, int]) -> None:
    expected = [(port, seen(op, 5, kind, 0, 0, rid, 0)) for port, rid in zip((3, 4), rids, strict=True)]
    assert switch.process(2, request(op, 5)) == expected


def test_a_session_that_does_not_exist_makes_no_clones(switch: Switch) -> None:
    assert [port for port, _ in switch.process(2, request(1, 6))] == [1]
    delete(switch, session(5, []))
    assert [port for port, _ in switch.process(2, request(1, 5))] == [1]


def test_a_session_cuts_its_clones_but_not_the_packet(switch: Switch) -> None:
    modify(switch, session(5, CLONES[:1], length=11))
    assert [(port, len(frame)) for port, frame in switch.process(2, request(1, 5))] == [(3, 11), (1, 60)]
    assert [(port, len(frame)) for port, frame in switch.process(2, request(4, 5))] == [(1, 60), (3, 11)]


@pytest.mark.parametrize("op", [1, 4])
def test_clones_have_the_class_of_service_of_their_session(switch: Switch, op: int) -> None:
    modify(switch, session(5, CLONES, priority=6))
    queues = {port: queue for port, queue, _ in switch.process_queued(2, request(op, 5))}
    assert queues == {1: 0, 3: 6, 4: 6}
    assert switch.read(session(5, [])) == [session(5, CLONES, priority=6)]


def test_a_resubmitted_packet_enters_ingress_again_with_its_field_list_and_no_port(switch: Switch) -> None:
    assert switch.process(2, request(2)) == [(1, seen(2, 0, 0, 0x55, 0x66, 0xEE, 0))]


def test_a_recirculated_packet_enters_as_it_would_have_left(switch: Switch) -> None:
    [(port, frame)] = switch.process(2, request(3, 5))
    # Its four bytes more are the front of what the parser takes as the header.
    assert (port, frame[:10]) == (1, bytes([3, 0, 0, 0x55, 0x66, 0xEE, 0, 64, 0, 0]))
    assert frame[10:] == seen(3, 5, 0, 0x55, 0x66, 0xEE, 2)[6:]


@pytest.mark.parametrize("op", [9, 14])
def test_a_packet_without_end_is_dropped_and_counted(switch: Switch, op: int) -> None:
    assert switch.process(2, request(op)) == []
    assert switch.losses == Losses(out_of_range=0, endless=1, packets=0, digests=0, log=0, assertions=0)


def test_truncate_cuts_the_packet_that_leaves(switch: Switch) -> None:
    assert [len(frame) for _, frame in switch.process(2, request(5, 12))] == [12]
    assert [len(frame) for _, frame in switch.process(2, request(5, 200))] == [60]


@pytest.mark.parametrize("op", [6, 11])
def test_multicast_wins_over_the_drop_port(switch: Switch, op: int) -> None:
    expected = [(port, seen(op, 7, 5, 0x55, 0x66, rid, 2)) for port, rid in CLONES]
    assert switch.process(2, request(op, 7)) == expected


def test_a_drop_in_egress_wins_over_recirculation(switch: Switch) -> None:
    assert switch.process(2, request(13)) == []


def test_clone_and_digest_come_before_resubmission_which_wins_over_multicast(switch: Switch) -> None:
    want_digests(switch)
    out = switch.process(2, request(10, 5))
    assert [port for port, _ in out] == [3, 4, 1]
    assert len(switch.notifications()) == 1


# Digests


def want_digests(switch: Switch, **config: int) -> int:
    number = ids(switch)["learned_t"]
    entity = p4r.Entity()
    entity.digest_entry.digest_id = number
    for name, value in config.items():
        setattr(entity.digest_entry.config, name, value)
    switch.insert(entity)
    return number


def learned(op: int, port: int) -> Any:
    def bits(value: int) -> Any:
        return p4d.P4Data(bitstring=value.to_bytes(max(1, (value.bit_length() + 7) // 8), "big"))

    return p4d.P4Data(struct=p4d.P4StructLike(members=[bits(op), bits(port), bits(0x1234)]))


def told(switch: Switch) -> list[Any]:
    return [message.digest for message in switch.notifications()]


def test_a_digest_is_told_at_once_if_it_need_not_wait(switch: Switch) -> None:
    switch.process(2, request(7))
    assert told(switch) == []  # Nobody had asked for it.
    number = want_digests(switch)
    switch.process(300, request(7))
    [message] = told(switch)
    assert (message.digest_id, message.list_id, list(message.data)) == (number, 1, [learned(7, 300)])


def test_digests_are_gathered_until_the_list_is_full_or_old(switch: Switch) -> None:
    want_digests(switch, max_list_size=3, max_timeout_ns=1000)
    for port in (1, 2, 2, 1):
        switch.process(port, request(7))
    assert told(switch) == []
    switch.process(3, request(7))
    assert [list(message.data) for message in told(switch)] == [[learned(7, port) for port in (1, 2, 3)]]
    switch.process(4, request(7))
    switch.now = 999
    assert told(switch) == []
    switch.now = 1000
    assert [list(message.data) for message in told(switch)] == [[learned(7, 4)]]


def test_the_same_digest_is_told_again_when_it_was_acknowledged_or_too_long_ago(switch: Switch) -> None:
    number = want_digests(switch, max_list_size=1, ack_timeout_ns=1000)

    def again() -> list[int]:
        switch.process(1, request(7))
        return [message.list_id for message in told(switch)]

    assert [again(), again()] == [[1], []]
    switch.acknowledge(p4r.DigestListAck(digest_id=number, list_id=1))
    assert [again(), again()] == [[2], []]
    switch.now = 1000
    assert [again(), again()] == [[3], []]


def test_digest_entries_read_back_and_end(switch: Switch) -> None:
    number = want_digests(switch, max_list_size=3, max_timeout_ns=4, ack_timeout_ns=5)
    wanted = p4r.Entity(digest_entry=p4r.DigestEntry())
    [found] = switch.read(wanted)
    config = found.digest_entry.config
    assert (config.max_list_size, config.max_timeout_ns, config.ack_timeout_ns) == (3, 4, 5)
    with pytest.raises(EntityError) as caught:
        want_digests(switch)
    assert caught.value.code == rpc_code.ALREADY_EXISTS
    delete(switch, p4r.Entity(digest_entry=p4r.DigestEntry(digest_id=number)))
    assert switch.read(wanted) == []


# Sessions


def test_clone_sessions_read_back_and_obey_the_rules(switch: Switch) -> None:
    wanted = p4r.Entity()
    wanted.packet_replication_engine_entry.clone_session_entry.SetInParent()
    assert switch.read(wanted) == [session(5, CLONES)]
    without_port = session(8, [(3, 1)])
    without_port.packet_replication_engine_entry.clone_session_entry.replicas[0].ClearField("port")
    refused = [
        (switch.insert, session(5, []), rpc_code.ALREADY_EXISTS),
        (switch.insert, session(0, []), rpc_code.INVALID_ARGUMENT),
        (switch.insert, session(1 << 15, []), rpc_code.INVALID_ARGUMENT),
        (switch.insert, session(8, [(3, 1), (3, 1)]), rpc_code.INVALID_ARGUMENT),
        (switch.insert, without_port, rpc_code.INVALID_ARGUMENT),
        (switch.insert, session(8, [], length=-1), rpc_code.INVALID_ARGUMENT),
        (switch.insert, session(8, [], priority=8), rpc_code.INVALID_ARGUMENT),
        (lambda entity: modify(switch, entity), session(8, []), rpc_code.NOT_FOUND),
        (lambda entity: delete(switch, entity), session(8, []), rpc_code.NOT_FOUND),
    ]
    for write, entity, code in refused:
        with pytest.raises(EntityError) as caught:
            write(entity)
        assert caught.value.code == code
