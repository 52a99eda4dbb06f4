# SPDX-License-Identifier: Apache-2.0
"""Hashes and checksums, bit for bit as BMv2's buffer has their input."""

import binascii
from typing import Any

import pytest

from gradlane_switch import Switch
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


def crc16(data: bytes) -> int:
    """CRC-16/ARC."""
    remainder = 0
    for byte in data:
        remainder ^= byte
        for _ in range(8):
            remainder = remainder >> 1 ^ (0xA001 if remainder & 1 else 0)
    return remainder


def csum16(data: bytes) -> int:
    total = sum(int.from_bytes(data[n : n + 2].ljust(2, b"\0"), "big") for n in range(0, len(data), 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total ^ 0xFFFF


def xor16(data: bytes) -> int:
    result = 0
    for n in range(0, len(data), 2):
        result ^= int.from_bytes(data[n : n + 2].ljust(2, b"\0"), "big")
    return result


REFERENCE: dict[str, Any] = {
    "crc16": crc16,
    "crc16_custom": crc16,
    "crc32": binascii.crc32,
    "crc32_custom": binascii.crc32,
    "csum16": csum16,
    "xor16": xor16,
    "identity": lambda data: int.from_bytes(data[:8], "big"),
}


def calculation(algorithm: str, *inputs: Json) -> Json:
    return {"name": "calc", "id": 0, "algo": algorithm, "input": list(inputs)}


def constant(value: int, width: int) -> Json:
    return {"type": "hexstr", "value": hex(value), "bitwidth": width}


def hashed(fields: list[tuple[str, int]], calc: Json, *before: Json) -> Switch:
    """A program that puts a hash into `m0`, and that into a fresh field `out` of the header."""
    hashing = {
        "op": "modify_field_with_hash_based_offset",
        "parameters": [field("scalars", "m0"), const(0), {"type": "calculation", "value": "calc"}, const(1 << 63)],
    }
    add = {"op": "add_header", "parameters": [{"type": "header", "value": "h"}]}
    run = action(0, "run", [], *before, hashing, add, assign(field("h", "out"), field("scalars", "m0")), SEND)
    return load(program([*fields, ("out", 64)], [run], [table(0, "t", [], [run], run)], calculations=[calc]))


def result(switch: Switch, data: bytes) -> int:
    [(_, out)] = switch.process(0, data + bytes(8))
    return int.from_bytes(out[len(data) : len(data) + 8], "big")


@pytest.mark.parametrize("algorithm", REFERENCE)
def test_fields_are_hashed_without_gaps(algorithm: str) -> None:
    inputs = [field("h", name) for name in ("a", "b", "c")]
    switch = hashed([("a", 4), ("b", 48), ("c", 28)], calculation(algorithm, *inputs))
    data = b"123456789\xff"
    assert result(switch, data) == REFERENCE[algorithm](data) % (1 << 63)


@pytest.mark.parametrize("algorithm", REFERENCE)
def test_bits_that_fill_no_byte_are_followed_by_zeros(algorithm: str) -> None:
    inputs = [field("h", "b"), constant(5, 3), field("h", "a")]
    switch = hashed([("a", 4), ("b", 12)], calculation(algorithm, *inputs))
    # 12 bits of b, 3 of the constant, 4 of a: 19 bits.
    packed = (0x0BCD & 0xFFF) << 7 | 5 << 4 | 0xA
    data = (packed << 5).to_bytes(3, "big")
    assert result(switch, b"\xab\xcd") == REFERENCE[algorithm](data)


@pytest.mark.parametrize("algorithm", REFERENCE)
def test_wide_fields_are_hashed_whole(algorithm: str) -> None:
    switch = hashed([("a", 4), ("b", 132)], calculation(algorithm, field("h", "a"), field("h", "b")))
    data = bytes(range(100, 117))
    assert result(switch, data) == REFERENCE[algorithm](data) % (1 << 63)


@pytest.mark.parametrize("algorithm", REFERENCE)
def test_fields_of_an_invalid_header_are_left_out(algorithm: str) -> None:
    remove = {"op": "remove_header", "parameters": [{"type": "header", "value": "h"}]}
    inputs = [field("h", "a"), constant(0x31, 8), field("standard_metadata", "packet_length")]
    switch = hashed([("a", 16)], calculation(algorithm, *inputs), remove)
    # The header is made anew, with zeros, once the hash is there.
    data = b"\x31" + (10).to_bytes(4, "big")
    [(_, out)] = switch.process(0, b"ab" + bytes(8))
    assert int.from_bytes(out[2:10], "big") == REFERENCE[algorithm](data)


def test_a_random_hash_is_below_its_bound() -> None:
    hashing = {
        "op": "modify_field_with_hash_based_offset",
        "parameters": [field("h", "a"), const(16), {"type": "calculation", "value": "calc"}, const(3)],
    }
    run = action(0, "run", [], hashing, SEND)
    calc = calculation("random", field("h", "a"))
    switch = load(program([("a", 8)], [run], [table(0, "t", [], [run], run)], calculations=[calc]))
    assert {switch.process(0, b"x")[0][1][0] for _ in range(200)} == {16, 17, 18}


# Checksums


def checksum(algorithm: str, *inputs: Json, **rest: Any) -> dict[str, Any]:
    found = {"name": "cksum", "id": 0, "target": ["h", "sum"], "type": "generic", "calculation": "calc"}
    return {
        "calculations": [calculation(algorithm, *inputs)],
        "checksums": [found | {"verify": True, "update": True, "if_cond": None} | rest],
    }


def summed(fields: list[tuple[str, int]], *before: Json, width: int = 16, **parts: Any) -> Switch:
    body = [*before, assign(field("h", "error"), field("standard_metadata", "checksum_error")), SEND]
    run = action(0, "run", [], *body)
    return load(program([*fields, ("sum", width), ("error", 8)], [run], [table(0, "t", [], [run], run)], **parts))


@pytest.mark.parametrize("algorithm", ["csum16", "crc16", "crc32", "xor16", "identity"])
@pytest.mark.parametrize("octets", [2, 3])
@pytest.mark.parametrize("payload", [b"", b"\xff", b"even", b"uneven!"])
def test_a_checksum_may_cover_the_payload(algorithm: str, octets: int, payload: bytes) -> None:
    switch = summed([("a", 8 * octets)], width=64, **checksum(algorithm, field("h", "a"), {"type": "payload"}))
    head = bytes(range(250, 250 + octets))
    good = REFERENCE[algorithm](head + payload).to_bytes(8, "big")
    assert switch.process(0, head + good + b"\x00" + payload) == [(1, head + good + b"\x00" + payload)]
    bad = bytes([good[0] ^ 1, *good[1:]])
    assert switch.process(0, head + bad + b"\x00" + payload) == [(1, head + good + b"\x01" + payload)]


def test_a_checksum_is_neither_verified_nor_updated_unless_its_condition_holds() -> None:
    wanted = expression("==", field("h", "a"), const(1))
    switch = summed([("a", 8)], **checksum("csum16", field("h", "a"), if_cond=wanted))
    assert switch.process(0, b"\x02abx") == [(1, b"\x02ab\x00")]
    assert switch.process(0, b"\x01abx") == [(1, b"\x01\xfe\xff\x01")]


def test_a_checksum_in_a_header_that_is_not_there_is_not_verified() -> None:
    parts = checksum("csum16", field("h", "a"), update=False)
    add = {"op": "add_header", "parameters": [{"type": "header", "value": "h"}]}
    switch = summed([("a", 8)], add, **parts)
    assert switch.process(0, b"\x02") == [(1, bytes(4) + b"\x02")]  # Too short for the header.
