# SPDX-License-Identifier: Apache-2.0
"""v1model's own behaviour: parsing, dropping, replication, checksums, counters, registers, hashes, metadata."""

import binascii
from typing import Any

import pytest
from finsy.proto import p4r
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Raw

from gradlane_switch import Switch, SwitchError
from gradlane_switch.state.counts import CounterValue
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


def one_action(fields: list[tuple[str, int]], *primitives: Json, **parts: Any) -> Switch:
    run = action(0, "run", [], *primitives)
    return load(program(fields, [run], [table(0, "t", [], [run], run)], **parts))


def checksum(data: bytes) -> int:
    total = sum(int.from_bytes(data[n : n + 2].ljust(2, b"\0"), "big") for n in range(0, len(data), 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total ^ 0xFFFF


def parser_with(states: list[Json]) -> list[Json]:
    return [{"name": "parser", "id": 0, "init_state": "start", "parse_states": states}]


def state(
    name: str, operations: list[Json], keys: list[Json], *transitions: tuple[str | None, str | None, str | None]
) -> Json:
    return {
        "name": name,
        "id": 0,
        "parser_ops": operations,
        "transition_key": keys,
        "transitions": [
            {"type": "default" if value is None else "hexstr", "value": value, "mask": mask, "next_state": following}
            for value, mask, following in transitions
        ],
    }


EXTRACT = {"op": "extract", "parameters": [{"type": "regular", "value": "h"}]}


def test_a_short_packet_is_parsed_as_far_as_it_goes_and_says_so() -> None:
    valid = expression("d2b", None, field("h", "$valid$"))
    body = [
        assign(field("standard_metadata", "egress_spec"), field("standard_metadata", "parser_error")),
        {"op": "_jump_if_zero", "parameters": [valid, const(3)]},
        assign(field("standard_metadata", "egress_spec"), const(7)),
    ]
    switch = one_action([("a", 32)], *body)
    assert switch.process(0, b"abc") == [(1, b"abc")]  # PacketTooShort is 1
    assert switch.process(0, b"abcd") == [(7, b"abcd")]


def test_select_by_value_mask_and_several_keys() -> None:
    count = [{"op": "set", "parameters": [field("scalars", "m0"), const(n)]} for n in range(4)]
    # Keys of 4 and 12 bits are each padded to whole bytes in values and masks.
    first = [("0x01000a", None, "one"), ("0x020000", "0x0f0000", "two"), (None, None, None)]
    states = [
        state("start", [EXTRACT], [field("h", "a"), field("h", "b")], *first),
        state("one", [count[1]], [], (None, None, None)),
        state("two", [count[2]], [{"type": "lookahead", "value": [4, 8]}], ("0xbc", None, "three"), (None, None, None)),
        state("three", [count[3]], [], (None, None, None)),
    ]
    body = [assign(field("h", "a"), field("scalars", "m0")), SEND]
    switch = one_action([("a", 4), ("b", 12)], *body, parsers=parser_with(states))
    expected = {"100a": "1", "100b": "0", "2fff": "2", "2fffabcd": "3", "2fffab": "2"}
    assert {frame: switch.process(0, bytes.fromhex(frame))[0][1].hex()[0] for frame in expected} == expected


def test_no_matching_transition_accepts_as_on_bmv2() -> None:
    states = [
        state("start", [EXTRACT], [field("h", "a")], ("0x01", None, "more")),
        state("more", [{"op": "set", "parameters": [field("scalars", "m0"), const(7)]}], [], (None, None, None)),
    ]
    error = assign(field("h", "error"), field("standard_metadata", "parser_error"))
    body = [assign(field("h", "a"), field("scalars", "m0")), error, SEND]
    switch = one_action([("a", 8), ("error", 8)], *body, parsers=parser_with(states))
    assert [switch.process(0, frame)[0][1] for frame in (b"\x01!", b"\x05!")] == [b"\x07\x00", b"\x00\x00"]


def test_verify_and_advance() -> None:
    low = expression("<", field("h", "a"), const(4))
    skip = {"op": "advance", "parameters": [expression("<<", field("h", "a"), const(3))]}
    states = [state("start", [EXTRACT, {"op": "verify", "parameters": [low, const(9)]}, skip], [], (None, None, None))]
    body = [assign(field("h", "a"), field("standard_metadata", "parser_error")), SEND]
    switch = one_action([("a", 8)], *body, parsers=parser_with(states))
    assert switch.process(0, b"\x02xyz") == [(1, b"\x00z")]
    assert switch.process(0, b"\x03xy") == [(1, b"\x01xy")]
    assert switch.process(0, b"\x04xy") == [(1, b"\x09xy")]


def test_headers_come_and_go() -> None:
    header = {"type": "header", "value": "h"}
    remove, add = ({"op": op, "parameters": [header]} for op in ("remove_header", "add_header"))
    assert one_action([("a", 16)], remove, SEND).process(0, b"abrest") == [(1, b"rest")]
    assert one_action([("a", 16)], remove, add, SEND).process(0, b"abrest") == [(1, b"\0\0rest")]
    assert one_action([("a", 16)], add, SEND).process(0, b"abrest") == [(1, b"abrest")]


def test_mark_to_drop_and_the_default_port() -> None:
    drop = {"op": "mark_to_drop", "parameters": [{"type": "header", "value": "standard_metadata"}]}
    assert one_action([("a", 8)], SEND, drop).process(0, b"x") == []
    assert one_action([("a", 8)]).process(0, b"x") == [(0, b"x")]


def test_metadata_of_a_packet() -> None:
    names = ["ingress_port", "packet_length", "ingress_global_timestamp", "instance_type"]
    fields = [(name, 64) for name in names]
    body = [assign(field("h", name), field("standard_metadata", name)) for name in names]
    switch = one_action(fields, *body, SEND)
    switch.now = 123_456_789
    [(_, out)] = switch.process(5, bytes(100))
    values = [int.from_bytes(out[n : n + 8], "big") for n in range(0, 32, 8)]
    assert values == [5, 100, 123_456, 0]


def test_registers_counters_and_their_bounds() -> None:
    register, counter = {"type": "register_array", "value": "r"}, {"type": "counter_array", "value": "c"}
    index, value = field("h", "i"), field("scalars", "m0")
    body = [
        {"op": "register_read", "parameters": [value, register, index]},
        {"op": "register_write", "parameters": [register, index, expression("+", value, const(100))]},
        {"op": "count", "parameters": [counter, index]},
        assign(field("h", "v"), value),
        SEND,
    ]
    switch = one_action(
        [("i", 8), ("v", 8)],
        *body,
        register_arrays=[{"name": "r", "id": 0, "size": 4, "bitwidth": 8}],
        counter_arrays=[{"name": "c", "id": 0, "size": 4, "is_direct": False}],
    )
    out = [switch.process(0, bytes([3, 0]) + bytes(8))[0][1][1] for _ in range(4)]
    assert out == [0, 100, 200, 300 & 0xFF]
    assert switch.process(0, b"\x04\x63")[0][1] == b"\x04\x00"
    assert switch.read_register("r", 3) == 400 & 0xFF
    assert switch.read_counter("c", 3) == CounterValue(4, 40)
    switch.write_register("r", 1, 0x1FF)
    assert switch.read_register("r", 1) == 0xFF
    with pytest.raises(SwitchError, match=r"r: index 4 is not in 0\.\.3"):
        switch.read_register("r", 4)
    with pytest.raises(SwitchError, match="'x' is not one counter of the program: it has c"):
        switch.read_counter("x", 0)


@pytest.mark.parametrize("algorithm", ["crc16", "crc32", "csum16"])
def test_hashes(algorithm: str) -> None:
    calculation = {
        "name": "calc",
        "id": 0,
        "algo": algorithm,
        "input": [{"type": "field", "value": ["h", name]} for name in ("a", "b", "c")],
    }
    hashing = {
        "op": "modify_field_with_hash_based_offset",
        "parameters": [field("h", "out"), const(10), {"type": "calculation", "value": "calc"}, const(1 << 33)],
    }
    fields = [("a", 4), ("b", 48), ("c", 28), ("out", 48)]
    switch = one_action(fields, hashing, SEND, calculations=[calculation])
    data = b"123456789\xff"
    reference = {"crc16": crc16_arc(data), "crc32": binascii.crc32(data), "csum16": checksum(data)}
    assert crc16_arc(b"123456789") == 0xBB3D
    [(_, out)] = switch.process(0, data + bytes(6))
    assert int.from_bytes(out[10:], "big") == reference[algorithm] + 10


def crc16_arc(data: bytes) -> int:
    crc = 0
    for octet in data:
        crc ^= octet
        for _ in range(8):
            crc = (crc >> 1) ^ (0xA001 if crc & 1 else 0)
    return crc


def test_a_random_number_stays_in_its_bounds() -> None:
    draw = {"op": "modify_field_rng_uniform", "parameters": [field("h", "a"), const(5), const(9)]}
    switch = one_action([("a", 8)], draw, SEND)
    assert {switch.process(0, b"x")[0][1][0] for _ in range(200)} == {5, 6, 7, 8, 9}


def test_checksums_are_verified_and_updated() -> None:
    parts: dict[str, Any] = {
        "calculations": [
            {
                "name": "calc",
                "id": 0,
                "algo": "csum16",
                "input": [{"type": "field", "value": ["h", name]} for name in ("a", "b")],
            }
        ],
        "checksums": [
            {
                "name": "cksum",
                "id": 0,
                "target": ["h", "sum"],
                "type": "generic",
                "calculation": "calc",
                "verify": True,
                "update": True,
                "if_cond": None,
            }
        ],
    }
    body = [assign(field("h", "error"), field("standard_metadata", "checksum_error")), SEND]
    switch = one_action([("a", 40), ("b", 56), ("sum", 16), ("error", 8)], *body, **parts)
    data = bytes(range(200, 212))
    good = checksum(data).to_bytes(2, "big")
    assert switch.process(0, data + good + b"\xee") == [(1, data + good + b"\x00")]
    assert switch.process(0, data + b"\x00\x00\xee") == [(1, data + good + b"\x01")]


# The project's own program


def by_name(switch: Switch, name: str) -> Any:
    return next(item for item in switch.pipeline.schema.tables.values() if item.name.endswith(f".{name}"))


def insert(switch: Switch, table_name: str, match: list[Any], action_name: str, *values: bytes) -> None:
    schema = by_name(switch, table_name)
    chosen = next(item for item in schema.actions if item.name.endswith(f".{action_name}"))
    message = p4r.TableEntry(table_id=schema.id, match=match)
    message.action.action.action_id = chosen.id
    for (number, _), value in zip(chosen.params, values, strict=True):
        message.action.action.params.add(param_id=number, value=value)
    switch.insert(p4r.Entity(table_entry=message))


def route(switch: Switch, prefix: str, length: int, action_name: str, *values: bytes) -> None:
    lpm = p4r.FieldMatch.LPM(value=bytes(map(int, prefix.split("."))), prefix_len=length)
    insert(switch, "routes", [p4r.FieldMatch(field_id=1, lpm=lpm)], action_name, *values)


def test_forwarding_rewrites_ethernet_ttl_and_checksum(router: Switch) -> None:
    route(router, "10.0.2.0", 24, "forward", b"\x02", b"\x02\x00\x00\x00\x02\x02", b"\x02\x00\x00\x00\x01\x02")
    frame = Ether(dst="02:00:00:00:01:01") / IP(src="10.0.1.2", dst="10.0.2.2", ttl=9) / UDP(dport=7) / Raw(b"payload")
    [(port, out)] = router.process(1, bytes(frame))
    assert port == 2
    expected = (
        Ether(dst="02:00:00:00:02:02", src="02:00:00:00:01:02")
        / IP(src="10.0.1.2", dst="10.0.2.2", ttl=8)
        / UDP(dport=7)
        / Raw(b"payload")
    )
    assert out == bytes(expected)
    assert router.process(1, bytes(Ether() / IP(dst="10.9.9.9"))) == []
    assert router.process(1, bytes(Ether() / IP(dst="10.0.2.2", ttl=1))) == []


def test_multicast_replicates_to_the_group_but_not_to_its_sender(router: Switch) -> None:
    group = p4r.MulticastGroupEntry(multicast_group_id=9)
    for port in (1, 2, 3, 4):
        group.replicas.add(port=bytes([port]), instance=1)
    message = p4r.PacketReplicationEngineEntry(multicast_group_entry=group)
    route(router, "239.1.0.1", 32, "replicate", b"\x09")
    frame = bytes(
        Ether(dst="01:00:5e:01:00:01") / IP(src="10.0.3.2", dst="239.1.0.1", ttl=4) / UDP(dport=7) / Raw(bytes(900))
    )
    assert router.process(3, frame) == []
    router.insert(p4r.Entity(packet_replication_engine_entry=message))
    copies = router.process(3, frame)
    assert [port for port, _ in copies] == [1, 2, 4]
    expected = bytes(Ether(frame[:14]) / IP(src="10.0.3.2", dst="239.1.0.1", ttl=3) / UDP(dport=7) / Raw(bytes(900)))
    assert all(out == expected for _, out in copies)
    assert (
        router.read(p4r.Entity(packet_replication_engine_entry=message))[0].packet_replication_engine_entry == message
    )


def test_the_program_sees_any_bytes_and_survives(gradlane: Switch) -> None:
    whole = bytes(Ether() / IP(dst="10.0.2.2") / UDP(dport=47400) / Raw(bytes.fromhex("10") + bytes(60)))
    for length in range(len(whole) + 1):
        assert gradlane.process(1, whole[:length]) == []
    total = sum(gradlane.read_counter("decisions", index).packets for index in range(32768))
    assert total == len(whole) + 1
