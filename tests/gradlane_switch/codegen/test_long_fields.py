# SPDX-License-Identifier: Apache-2.0
"""Long fields are cleared and copied only where they have been set; nobody sees that.

Every program has `h` (op, 8 bits; out, 1024) and, if op is odd, a long header `l` behind it; `k` is another one of its
kind, and `wide` is metadata of 1024 bits. Frames with and without `l` alternate, so that remains of one would show in
the next.
"""

from typing import Any

import pytest

from gradlane_switch import Switch
from tests.gradlane_switch.codegen.test_header_collections import extract, stack_of, state
from tests.gradlane_switch.compiled_programs import group, session
from tests.gradlane_switch.small_programs import (
    SEND,
    Json,
    action,
    assign,
    const,
    expression,
    field,
    load,
    program,
    table,
)

OCTETS = 128
ONES, ZEROS = b"\xff" * OCTETS, bytes(OCTETS)
OUT, WIDE, L, K = field("h", "out"), field("scalars", "wide"), field("l", "value"), field("k", "value")
TAIL = b"payload"


def header(name: str) -> Json:
    return {"type": "header", "value": name}


def long_fields(*body: Json, out: int = 8 * OCTETS, egress: tuple[Json, ...] = (), **parts: Any) -> Switch:
    run, late = action(0, "run", [], *body), action(1, "late", [], *egress)
    document = program([("op", 8), ("out", out)], [run, late], [table(0, "t", [], [run], run)])
    document["header_types"][0]["fields"].append(["wide", 8 * OCTETS, False])
    document["header_types"].append({"name": "long_t", "id": 3, "fields": [["value", 8 * OCTETS, False]]})
    document["headers"] += [
        {"name": name, "id": number, "header_type": "long_t", "metadata": False}
        for number, name in enumerate(("l", "k"), 3)
    ]
    start = state("start", [extract("regular", "h")], [field("h", "op")], ("0x01", "long"), (None, None))
    start["transitions"][0]["mask"] = "0x01"
    long = state("long", [extract("regular", "l")], [], (None, None))
    parser = {"name": "parser", "id": 0, "init_state": "start", "parse_states": [start, long]}
    pipelines = document["pipelines"]
    pipelines[1].update(init_table="late", tables=[table(1, "late", [], [late], late)])
    deparser = {"name": "deparser", "id": 0, "order": ["h", "l", "k"], "primitives": []}
    document.update(parsers=[parser], deparsers=[deparser], **parts)
    return load(document)


def frame(op: int, out: bytes, *longs: bytes) -> bytes:
    return b"".join([bytes([op]), out, *longs, TAIL])


def more(value: bytes, by: int) -> bytes:
    return ((int.from_bytes(value, "big") + by) % (1 << 8 * OCTETS)).to_bytes(OCTETS, "big")


def test_a_field_that_was_never_set_is_zero_whatever_the_packet_before_had() -> None:
    switch = long_fields(assign(OUT, L), SEND)
    for value in (ONES, bytes(range(OCTETS))):
        assert switch.process(0, frame(1, ZEROS, value)) == [(1, frame(1, value, value))]
        assert switch.process(0, frame(0, ONES)) == [(1, frame(0, ZEROS))]


def test_what_is_added_to_it_is_added_to_zero() -> None:
    switch = long_fields(assign(OUT, expression("+", OUT, WIDE)), assign(WIDE, OUT), SEND)
    for _ in range(2):
        assert switch.process(0, frame(1, ONES, ONES)) == [(1, frame(1, ONES, ONES))]


def test_a_header_that_becomes_valid_is_zero() -> None:
    switch = long_fields({"op": "add_header", "parameters": [header("k")]}, SEND)
    assert switch.process(0, frame(1, ONES, ONES)) == [(1, frame(1, ONES, ONES, ZEROS))]
    assert switch.process(0, frame(0, ONES)) == [(1, frame(0, ONES, ZEROS))]
    again = [{"op": f"{verb}_header", "parameters": [header("l")]} for verb in ("remove", "add")]
    switch = long_fields(*again, SEND)
    assert switch.process(0, frame(1, ONES, ONES)) == [(1, frame(1, ONES, ZEROS))]
    assert switch.process(0, frame(0, ONES)) == [(1, frame(0, ONES, ZEROS))]


def test_a_header_that_becomes_valid_is_sent_if_no_long_field_has_been_set() -> None:
    switch = long_fields({"op": "add_header", "parameters": [header("k")]}, SEND, out=8)
    assert switch.process(0, frame(0, b"\x07")) == [(1, frame(0, b"\x07", ZEROS))]


def test_a_header_is_copied_with_its_field_if_it_is_valid() -> None:
    switch = long_fields({"op": "assign_header", "parameters": [header("k"), header("l")]}, SEND)
    assert switch.process(0, frame(1, ONES, ONES)) == [(1, frame(1, ONES, ONES, ONES))]
    assert switch.process(0, frame(0, ONES)) == [(1, frame(0, ONES))]
    made = [{"op": "add_header", "parameters": [header(name)]} for name in ("k", "l")]
    switch = long_fields(*made, {"op": "assign_header", "parameters": [header("l"), header("k")]}, SEND)
    assert switch.process(0, frame(1, ONES, ONES)) == [(1, frame(1, ONES, ZEROS, ZEROS))]


def test_elements_of_a_stack_are_moved_read_and_set() -> None:
    stack = {"type": "header_stack", "value": "s"}
    picked = {"op": "dereference_header_stack", "left": stack, "right": field("h", "op")}
    inner = {"op": "access_field", "left": {"type": "expression", "value": picked}, "right": 0}
    element = {"type": "expression", "value": inner}
    body = [
        {"op": "push", "parameters": [stack, const(1)]},
        assign(OUT, expression("+", element, const(1))),
        assign({"type": "expression", "value": element}, expression("+", OUT, const(1))),
        SEND,
    ]
    switch = long_fields(*body, header_stacks=[stack_of("s", "long_t", [3, 4])])
    for _ in range(2):
        # The push has moved l to k, which is element 1.
        assert switch.process(0, frame(1, ONES, ONES)) == [(1, frame(1, ZEROS, more(ZEROS, 1)))]
        assert switch.process(0, frame(0, ONES)) == [(1, frame(0, more(ZEROS, 1)))]
        assert switch.process(0, frame(3, ONES, ONES)) == [(1, frame(3, more(ZEROS, 1), ONES))]


def copies(*fate: Json, **parts: Any) -> Switch:
    """Ingress sets metadata and adds a header; egress shows both."""
    body = [
        assign(WIDE, expression("+", OUT, const(1))),
        {"op": "add_header", "parameters": [header("k")]},
        assign(K, expression("+", L, const(2))),
        *fate,
    ]
    return long_fields(*body, egress=(assign(OUT, WIDE), assign(K, expression("+", K, const(4)))), **parts)


def copied(op: int, value: bytes) -> bytes:
    """A frame that egress leaves."""
    longs = [value] if op % 2 else []
    return frame(op, more(value, 1), *longs, more(value if longs else ZEROS, 6))


def sent(op: int, value: bytes) -> bytes:
    return frame(op, value, value) if op % 2 else frame(op, value)


FRAMES = [(1, ONES), (0, ONES), (1, bytes(range(OCTETS))), (2, bytes(range(OCTETS))), (0, ZEROS)]


def test_every_replica_of_a_packet_has_what_the_packet_had() -> None:
    switch = copies(assign(field("standard_metadata", "mcast_grp"), const(7)))
    switch.insert(group(7, [(2, 1), (3, 2)]))
    for op, value in FRAMES:
        assert switch.process(0, sent(op, value)) == [(port, copied(op, value)) for port in (2, 3)]


def test_packets_that_wait_in_a_queue_keep_what_they_have() -> None:
    switch = copies(SEND)
    packets = [(100 * number, 0, sent(op, value)) for number, (op, value) in enumerate(FRAMES)]
    found = switch.replay(packets, {0: "", 1: "rate=1mbit,buffer=64kB"}).sent
    assert [data for _, _, data in found] == [copied(op, value) for op, value in FRAMES]


@pytest.mark.parametrize("kept", [True, False])
def test_a_clone_has_the_long_fields_of_its_list(kept: bool) -> None:
    lists = [
        {"id": 1, "name": "kept", "elements": [WIDE]},
        {"id": 2, "name": "lost", "elements": [field("scalars", "m0")]},
    ]
    clone = {"op": "clone_ingress_pkt_to_egress", "parameters": [const(5), const(1 if kept else 2)]}
    switch = copies(clone, SEND, field_lists=lists)
    switch.insert(session(5, [(4, 0)]))
    for op, value in FRAMES:
        longs = [value] if op % 2 else []
        clone_of = frame(op, more(value, 1) if kept else ZEROS, *longs)
        assert switch.process(0, sent(op, value)) == [(4, clone_of), (1, copied(op, value))]
