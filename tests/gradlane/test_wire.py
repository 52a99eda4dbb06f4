# SPDX-License-Identifier: Apache-2.0
"""The wire header: packed and read back, its limits, and that P4 means the same by it."""

import re
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradlane import wire
from gradlane.wire import Header
from tests.support.paths import P4_SOURCE

P4_SHARED = P4_SOURCE / "shared"
HEADERS = (P4_SHARED / "headers.p4", P4_SHARED / "sums.p4")
TYPES = (P4_SHARED / "types.p4").read_text()

headers = st.builds(Header, **{name: st.integers(0, 2**bits - 1) for name, bits in wire.FIELDS})


@given(headers, st.binary(max_size=8))
def test_a_header_is_read_back_as_it_was_packed(header: Header, payload: bytes) -> None:
    packed = header.pack()
    assert len(packed) == wire.HEADER_BYTES == 36
    assert Header.unpack(packed + payload) == header


@given(st.binary(min_size=wire.HEADER_BYTES, max_size=wire.HEADER_BYTES))
def test_any_bytes_are_packed_as_they_were_read(data: bytes) -> None:
    assert Header.unpack(data).pack() == data


def test_the_layout_is_big_endian_in_the_documented_order() -> None:
    header = Header(
        version=1, kind=5, magnitude=2, job=0x0304, way=0x01, source=0x106, layer=0x0708, step=0x090A0B0C,
        tensor=0x0D0E, flags=0x0F, element_type=0x10, message=0x11121314, slice=0x1516, slices=0x1718, budget=0x191A,
        length=0x1B1C, token=0x1D1E1F2021222324,
    )  # fmt: skip
    assert header.pack() == b"\x15" + bytes(range(2, 0x25))
    fixed = struct.unpack(">BBHHHIHBBIHHHHQ", header.pack())
    assert fixed[3] == header.way << 10 | header.source
    assert fixed[1:3] + fixed[4:] == tuple(getattr(header, name) for name, _ in (*wire.FIELDS[2:4], *wire.FIELDS[6:]))


@pytest.mark.parametrize("layout", [wire.FIELDS, wire.REPORT_FIELDS, wire.HOP_FIELDS, wire.SUM_FIELDS])
def test_fields_of_a_byte_or_more_begin_with_a_byte_or_end_with_one(layout: tuple[tuple[str, int], ...]) -> None:
    position = 0
    for name, bits in layout:
        assert bits < 8 or position % 8 == 0 or (position + bits) % 8 == 0, name
        position += bits
    assert position % 8 == 0


def test_a_report_is_no_longer_than_without_ways() -> None:
    assert wire.REPORT_BYTES == 24


@given(st.data())
def test_a_value_that_does_not_fit_is_refused_by_the_fields_name(data: st.DataObject) -> None:
    name, bits = data.draw(st.sampled_from(wire.FIELDS))
    value = data.draw(st.one_of(st.integers(min_value=2**bits), st.integers(max_value=-1)))
    fields = {"kind": 0, "job": 1, "source": 0, "message": 0, "token": 1} | {name: value}
    with pytest.raises(ValueError, match=rf"^{name} = {value} does not fit {bits} bits$"):
        Header(**fields).pack()


@pytest.mark.parametrize("length", [0, 1, wire.HEADER_BYTES - 1])
def test_too_few_bytes_are_no_header(length: int) -> None:
    with pytest.raises(ValueError, match=f"^{length} bytes are no Gradlane header: it has 36$"):
        Header.unpack(bytes(length))


def test_every_kind_flag_and_element_type_fits_its_field() -> None:
    bits = dict(wire.FIELDS)
    assert max(wire.Kind) < 2 ** bits["kind"]
    assert sum(wire.Flag) < 2 ** bits["flags"]
    assert max(wire.ElementType) < 2 ** bits["element_type"]
    assert 2 ** bits["slices"] > wire.MAX_SLICES


@pytest.mark.parametrize(
    ("header", "fields"), [("gradlane_h", wire.FIELDS), ("hop_h", wire.HOP_FIELDS), ("sum_h", wire.SUM_FIELDS)]
)
def test_p4_has_the_same_fields_in_the_same_order_and_width(header: str, fields: tuple[tuple[str, int], ...]) -> None:
    assert p4_fields(header) == with_source_of_16_bits(fields)


def with_source_of_16_bits(fields: tuple[tuple[str, int], ...]) -> tuple[tuple[str, int], ...]:
    """P4 has the sender's way as the upper bits of the rank."""
    bits = dict(fields)
    joined = {"way": None, "source": ("source", bits["way"] + bits["source"])} if "way" in bits else {}
    found = (joined.get(name, (name, bits)) for name, bits in fields)
    return tuple(field for field in found if field is not None)


def p4_fields(header: str) -> tuple[tuple[str, int], ...]:
    text = re.sub(r"//.*", "", "".join(path.read_text() for path in HEADERS))
    body = re.search(rf"header {header} \{{(.*?)\}}", text, re.DOTALL)
    assert body
    widths = {"mac_t": 48, "ipv4_t": 32, "ipv6_t": 128}
    found = re.findall(r"(?:bit<(\d+)>|(\w+))\s+(\w+);", body[1])
    assert body[1].count(";") == len(found), "every declaration must have been understood"
    return tuple((name, int(bits) if bits else widths[alias]) for bits, alias, name in found)


@pytest.mark.parametrize("header", ["ethernet", "ipv4", "ipv6", "udp", "gradlane", "hop"])
def test_p4_names_the_lengths_of_its_headers(header: str) -> None:
    bits = sum(width for _, width in p4_fields(f"{header}_h"))
    assert constant(f"{header.upper()}_BYTES") * 8 == bits


def constant(name: str, text: str = TYPES) -> int:
    found = re.search(rf"^const bit<\d+> {name} = (\w+);", text, re.MULTILINE)
    assert found, f"no such constant: {name}"
    return int(found[1], 0)


def test_p4_has_the_same_numbers_of_sums() -> None:
    text = (P4_SHARED / "sums.p4").read_text() + (P4_SOURCE / "v1model" / "headers.p4").read_text()
    assert constant("SUM_BYTES", text) == wire.SUM_BYTES
    assert constant("SUM_WORD", text) == wire.SUM_WORD
    assert f"typedef bit<{8 * wire.SUM_WORD}> lanes_t;" in text
    assert constant("MAX_SUM_WORDS", text) == wire.MAX_SUM_WORDS
    assert constant("FLAG_PULL", text) == wire.Flag.PULL
    assert constant("FLAG_SUM", text) == wire.Flag.SUM


def test_p4_has_the_same_port_version_kinds_and_flag() -> None:
    assert constant("GRADLANE_UDP_PORT") == wire.UDP_PORT
    assert constant("GRADLANE_VERSION") == wire.VERSION
    assert constant("GRADLANE_BYTES") == wire.HEADER_BYTES
    assert "GRADLANE_UDP_LENGTH = UDP_BYTES + GRADLANE_BYTES;" in TYPES
    assert constant("FLAG_RETURNED") == wire.Flag.RETURNED
    kinds = dict(re.findall(r"^const bit<4> KIND_(\w+) = (\d+);", TYPES, re.MULTILINE))
    assert {name: int(value) for name, value in kinds.items()} == {
        kind.name: kind.value for kind in (wire.Kind.DATA, wire.Kind.REPAIR, wire.Kind.TRIMMED, wire.Kind.TRACE)
    }


def test_p4_takes_a_datagram_for_a_gradient_from_the_length_of_both_headers_on() -> None:
    parser = (P4_SHARED.parent / "v1model" / "parser.p4").read_text()
    assert "(GRADLANE_UDP_PORT, 0 .. GRADLANE_UDP_LENGTH - 1): parse_short;" in parser
