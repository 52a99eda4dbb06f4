# SPDX-License-Identifier: Apache-2.0
"""log_msg, assert and assume: what a program says to the log, and what it stakes a packet on."""

import pytest

from gradlane_switch import ProgramError, Switch
from gradlane_switch.state.mailbox import LogMessage
from tests.gradlane_switch.small_programs import SEND, Json, action, const, expression, field, load, program, table

PLACE = {"source_info": {"filename": "small.p4", "line": 23}}


def one_action(*primitives: Json) -> Switch:
    run = action(0, "run", [], *primitives)
    document = program([("a", 8), ("b", 16)], [run], [table(0, "t", [], [run], run)])
    document["header_types"][2]["fields"][1][2] = True
    return load(document)


def log(text: str, *values: Json) -> Json:
    vector = {"type": "parameters_vector", "value": list(values)}
    return {"op": "log_msg", "parameters": [{"type": "string", "value": text}, vector], **PLACE}


def claim(op: str) -> Json:
    return {"op": op, "parameters": [expression("b2d", None, expression("<", field("h", "a"), const(9)))], **PLACE}


def test_a_message_has_its_values_and_its_place() -> None:
    switch = one_action(log("a {} b {}!", field("h", "a"), field("h", "b")), log("again"), SEND)
    assert switch.process(0, b"\x07\xff\xfe") == [(1, b"\x07\xff\xfe")]
    assert list(switch.pipeline.state.mailbox.take()) == [
        LogMessage("a 7 b -2!", "small.p4:23"),
        LogMessage("again", "small.p4:23"),
    ]


def test_a_message_shows_wide_and_signed_values_and_as_many_as_it_has() -> None:
    digits = [field("h", "d")] * 10
    run = action(0, "run", [], SEND, log("{} {} " + "{}" * 10, field("h", "w"), field("h", "n"), *digits))
    document = program([("w", 200), ("n", 72), ("d", 8)], [run], [table(0, "t", [], [run], run)])
    document["header_types"][2]["fields"][1][2] = True
    switch = load(document)
    frame = bytes(range(25)) + (-5).to_bytes(9, "big", signed=True) + b"\x07"
    assert switch.process(0, frame) == [(1, frame)]
    [message] = switch.pipeline.state.mailbox.take()
    assert message == LogMessage(f"{int.from_bytes(bytes(range(25)), 'big')} -5 7777777777", "small.p4:23")


def test_messages_are_limited_to_a_hundred_in_a_second() -> None:
    switch = one_action(log("a"), SEND)
    for _ in range(250):
        switch.process(0, bytes(3))
    assert len(list(switch.pipeline.state.mailbox.take())) == 100
    assert switch.pipeline.state.losses.log == 150
    switch.now = 1_000_000_000
    switch.process(0, bytes(3))
    assert len(list(switch.pipeline.state.mailbox.take())) == 1


@pytest.mark.parametrize("op", ["assert", "assume"])
def test_a_packet_that_breaks_an_assertion_is_dropped_counted_and_logged(op: str) -> None:
    switch = one_action(SEND, claim(op))
    assert switch.process(0, b"\x08bc") == [(1, b"\x08bc")]
    assert switch.process(0, b"\x09bc") == []
    assert switch.pipeline.state.losses.assertions == 1
    assert list(switch.pipeline.state.mailbox.take()) == [LogMessage(f"{op} failed", "small.p4:23")]


def test_a_deparser_has_its_say_and_what_breaks_its_assertion_is_dropped() -> None:
    send = action(0, "send", [], SEND)
    document = program([("a", 8)], [send], [table(0, "t", [], [send], send)])
    document["deparsers"][0]["primitives"] = [log("a {}", field("h", "a")), claim("assert")]
    switch = load(document)
    assert switch.process(0, b"\x08") == [(1, b"\x08")]
    assert switch.process(0, b"\x09") == []
    assert switch.pipeline.state.losses.assertions == 1
    said = [message.text for message in switch.pipeline.state.mailbox.take() if isinstance(message, LogMessage)]
    assert said == ["a 8", "a 9", "assert failed"]


def test_a_message_with_more_places_than_values_is_refused() -> None:
    with pytest.raises(ProgramError, match=r"2 places for 1 values in log_msg \(small.p4:23\)"):
        one_action(log("{} {}", field("h", "a")))
