# SPDX-License-Identifier: Apache-2.0
"""What hosts make the program tell its controller is bounded, shared out among the ports, and told once."""

import random
from typing import Any

import pytest
from finsy.proto import p4r

from gradlane_switch import Switch
from gradlane_switch.p4runtime.notifications import notifications
from tests.gradlane_switch.flooding import (
    CLONED,
    DIGEST,
    LEARNED,
    PUNTED,
    digest_entry,
    frame,
    punting,
    punting_switch,
    station,
)
from tests.gradlane_switch.small_programs import const

ROOM = 4096
LIST = 128


def learn(switch: Switch, values: Any) -> None:
    for value in values:
        assert switch.process(1, frame(LEARNED, value)) == []


def told(switch: Switch) -> list[tuple[int, list[int]]]:
    """The lists that are due: number and values."""
    lists = [message.digest for message in switch.notifications()]
    return [(it.list_id, [int.from_bytes(v.struct.members[1].bitstring, "big") for v in it.data]) for it in lists]


def acknowledge(switch: Switch, number: int) -> None:
    switch.acknowledge(p4r.DigestListAck(digest_id=DIGEST, list_id=number))


@pytest.fixture
def switch() -> Switch:
    return punting_switch()


def test_what_packets_repeat_is_told_once(switch: Switch) -> None:
    switch.insert(digest_entry(ack_timeout_ns=1000))
    learn(switch, [5, 6, 5] * 500)
    [(number, values)] = told(switch)
    assert values == [5, 6]
    learn(switch, [5, 6, 7])
    [(_, values)] = told(switch)
    assert values == [7]
    acknowledge(switch, number)
    learn(switch, [7, 6, 5, 6])
    assert [values for _, values in told(switch)] == [[6, 5]]
    assert switch.losses.digests == 0


def test_values_beyond_the_room_are_lost_and_counted_until_there_is_room_again(switch: Switch) -> None:
    switch.insert(digest_entry(ack_timeout_ns=1000))
    learn(switch, range(ROOM + 100))
    first = told(switch)
    assert [value for _, values in first for value in values] == list(range(ROOM))
    assert max(len(values) for _, values in first) == LIST
    assert switch.losses.digests == 100
    learn(switch, range(ROOM, ROOM + 10))  # All were told, and none is acknowledged.
    assert told(switch) == []
    assert switch.losses.digests == 110
    acknowledge(switch, first[3][0])
    learn(switch, range(ROOM, ROOM + LIST + 1))
    assert [value for _, values in told(switch) for value in values] == list(range(ROOM, ROOM + LIST))
    assert switch.losses.digests == 111
    switch.now = 1000  # Nothing of that will be acknowledged any more.
    learn(switch, range(ROOM))
    assert [value for _, values in told(switch) for value in values] == list(range(ROOM))
    assert switch.losses.digests == 111


def test_without_acknowledgements_only_what_waits_takes_room(switch: Switch) -> None:
    switch.insert(digest_entry())
    for start in (0, ROOM):
        learn(switch, range(start, start + ROOM))
        assert sum(len(values) for _, values in told(switch)) == ROOM
    assert switch.losses.digests == 0
    switch.now = 1000
    learn(switch, [1])
    assert [values for _, values in told(switch)] == [[1]]
    switch.now = 999  # A packet that came before it was told, and is processed afterwards.
    learn(switch, [1])
    assert [values for _, values in told(switch)] == [[1]]


def test_a_digest_that_nobody_wants_any_more_leaves_nothing_behind(switch: Switch) -> None:
    entry = digest_entry(ack_timeout_ns=10**9)
    switch.insert(entry)
    learn(switch, range(ROOM))
    told(switch)
    switch.write(p4r.Update(type=p4r.Update.DELETE, entity=entry))
    learn(switch, [1])
    switch.insert(entry)
    learn(switch, [1])
    assert [values for _, values in told(switch)] == [[1]]


def test_digests_are_what_a_model_says_of_them(switch: Switch) -> None:
    """Learning, taking, acknowledging and time in random order, against a model that keeps lists and times."""
    draw = random.Random(3)
    timeout, ack_timeout, most = 50, 400, 5
    switch.insert(digest_entry(max_timeout_ns=timeout, ack_timeout_ns=ack_timeout, max_list_size=most))
    waiting: dict[int, int] = {}
    reported: dict[int, tuple[int, int]] = {}  # value: (list, time)
    lists = 0
    for _ in range(4000):
        switch.now += draw.choice([0, 0, 1, 30])
        reported = {value: it for value, it in reported.items() if switch.now - it[1] < ack_timeout}
        match draw.randrange(4):
            case 0 | 1:
                value = draw.randrange(40)
                learn(switch, [value])
                if value not in reported:
                    waiting.setdefault(value, switch.now)
            case 2:
                expected: list[tuple[int, list[int]]] = []
                while waiting and (len(waiting) >= most or switch.now - next(iter(waiting.values())) >= timeout):
                    lists += 1
                    values = list(waiting)[:most]
                    for value in values:
                        del waiting[value]
                        reported[value] = lists, switch.now
                    expected.append((lists, values))
                assert told(switch) == expected
            case _ if lists:
                number = draw.randrange(max(1, lists - 6), lists + 2)
                acknowledge(switch, number)
                reported = {value: it for value, it in reported.items() if it[0] != number}
            case _:
                pass
    assert lists > 100


def test_digests_take_turns() -> None:
    document, info = punting()
    document["learn_lists"].append(document["learn_lists"][0] | {"id": 2, "name": "also"})
    [copying] = (it for it in document["actions"] if it["name"] == "copy")
    copying["primitives"][0] = {"op": "generate_digest", "parameters": [const(2), const(2)]}
    also = info.digests.add()
    also.CopyFrom(info.digests[0])
    also.preamble.id, also.preamble.name = DIGEST + 1, "also"
    switch = punting_switch(document, info)
    for number in (DIGEST, DIGEST + 1):
        entry = digest_entry()
        entry.digest_entry.digest_id = number
        switch.insert(entry)
    for kind in (LEARNED, CLONED):
        for value in range(3 * LIST):
            switch.process(1, frame(kind, value))
    order = [message.digest.digest_id for message in switch.notifications()]
    assert len(order) == 6
    assert [set(order[n : n + 2]) for n in (0, 2, 4)] == [{DIGEST, DIGEST + 1}] * 3


# Packets


def sizes(messages: list[Any]) -> list[int]:
    return [len(message.packet.payload) for message in messages]


@pytest.mark.parametrize("kind", [PUNTED, CLONED])
def test_one_port_takes_no_room_from_others_and_does_not_delay_them(switch: Switch, kind: int) -> None:
    for _ in range(3000):
        switch.process(1, frame(kind))
    for port in (2, 3):
        switch.process(port, frame(kind, size=100 + port))
    messages = switch.notifications()
    assert sizes(messages[:3]) == [84, 102, 103]
    assert set(sizes(messages[3:])) == {84}
    assert 200 < len(messages) < 1000
    assert switch.losses.packets == 3002 - len(messages)
    assert switch.notifications() == []


def test_packets_of_one_port_come_in_their_order(switch: Switch) -> None:
    for number in range(100):
        switch.process(number % 3, frame(PUNTED, number))
    found = [int.from_bytes(message.packet.payload[1:7], "big") for message in switch.notifications()]
    assert sorted(found) == list(range(100))
    for port in range(3):
        assert [number for number in found if number % 3 == port] == list(range(port, 100, 3))


def test_what_was_taken_makes_room(switch: Switch) -> None:
    for _ in range(40):
        for _ in range(100):
            switch.process(1, frame(PUNTED))
        assert len(switch.notifications()) == 100


# In one go


def test_no_call_makes_more_than_a_few_messages(switch: Switch) -> None:
    switch.insert(digest_entry())
    for number in range(1000):
        switch.insert(station(number, idle_timeout_ns=5))
    learn(switch, range(1000))
    for _ in range(400):
        switch.process(1, frame(PUNTED))
    switch.now = 5
    packets, values, idle = 0, 0, list[bytes]()
    due: int | None = 0
    while due is not None and due <= switch.now:
        messages, due = notifications(switch.pipeline, switch.now)
        kinds = [message.WhichOneof("update") for message in messages]
        assert kinds.count("packet") <= 16
        assert kinds.count("digest") <= 1
        assert kinds.count("idle_timeout_notification") <= 1
        for message in messages:
            packets += message.HasField("packet")
            assert len(message.digest.data) <= LIST
            values += len(message.digest.data)
            entries = message.idle_timeout_notification.table_entry
            assert len(entries) <= LIST
            idle += [entry.match[0].exact.value for entry in entries]
    assert (packets, values, len(idle), len(set(idle))) == (400, 1000, 1000, 1000)
