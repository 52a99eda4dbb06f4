# SPDX-License-Identifier: Apache-2.0
"""Registers as controllers read and write them: types, widths, wildcards."""

from typing import Any

import pytest
from finsy.proto import p4i, p4r, rpc_code
from hypothesis import given, settings
from hypothesis import strategies as st

from gradlane_switch import EntityError, ProgramError, Switch
from gradlane_switch.p4info.p4data import DataKind, DataType, data_type, decode_data, encode_data
from tests.gradlane_switch.small_programs import load, program

SIZE = 5000  # more than a read takes in one piece
WIDTHS = [1, 7, 8, 9, 16, 31, 32, 33, 48, 63, 64]


def arrays(*widths: int) -> list[dict[str, Any]]:
    return [{"name": f"r{width}", "id": n, "size": SIZE, "bitwidth": width} for n, width in enumerate(widths)]


@pytest.fixture(scope="module")
def switch() -> Switch:
    return load(program([("k", 16)], [], [], register_arrays=arrays(*WIDTHS)))


def cell(number: int, index: int | None, value: int | bytes | None) -> Any:
    message = p4r.RegisterEntry(register_id=number)
    if index is not None:
        message.index.index = index
    if isinstance(value, bytes):
        message.data.bitstring = value
    elif value is not None:
        message.data.bitstring = value.to_bytes((value.bit_length() + 7) // 8 or 1, "big")
    return p4r.Entity(register_entry=message)


def modify(switch: Switch, entity: Any) -> None:
    switch.write(p4r.Update(type=p4r.Update.MODIFY, entity=entity))


@pytest.mark.parametrize(("number", "width"), list(enumerate(WIDTHS, 0x16000001)))
def test_a_cell_of_any_width_reads_back_in_canonical_form(switch: Switch, number: int, width: int) -> None:
    for value in (0, 1, (1 << width) - 1, 1 << (width - 1)):
        for index in (0, 4095, 4096, SIZE - 1):
            modify(switch, cell(number, index, b"\0\0" + value.to_bytes(8, "big")))
            assert switch.read(cell(number, index, None)) == [cell(number, index, value)]
            assert switch.read_register(f"r{width}", index) == value
    with pytest.raises(EntityError, match=f"r{width}: {1 << width:#x} does not fit in {width} bits") as caught:
        modify(switch, cell(number, 0, 1 << width))
    assert caught.value.code == rpc_code.OUT_OF_RANGE


def test_without_an_index_all_cells_and_without_an_id_all_registers_are_meant(switch: Switch) -> None:
    for number, width in enumerate(WIDTHS, 0x16000001):
        modify(switch, cell(number, None, 1))
        assert switch.read_register(f"r{width}", SIZE - 1) == 1
    modify(switch, cell(0x16000002, 4097, 2))
    found = switch.read(cell(0x16000002, None, None))
    assert found == [cell(0x16000002, index, 2 if index == 4097 else 1) for index in range(SIZE)]
    everything = switch.read(cell(0, None, None))
    assert len(everything) == SIZE * len(WIDTHS)
    assert {item.register_entry.register_id for item in everything} == set(range(0x16000001, 0x16000001 + len(WIDTHS)))


@pytest.mark.parametrize(
    ("entity", "code", "text"),
    [
        (cell(0x16000001, -1, 1), rpc_code.INVALID_ARGUMENT, "index -1 is negative"),
        (cell(0x16000001, SIZE, 1), rpc_code.OUT_OF_RANGE, "index 5000 is beyond its size of 5000"),
        (cell(0x16000001, 0, None), rpc_code.INVALID_ARGUMENT, "the value goes in bitstring, and nothing is set"),
        (cell(0x16000001, 0, b""), rpc_code.OUT_OF_RANGE, "an empty byte string is not a value"),
        (cell(0x160000FF, 0, 1), rpc_code.NOT_FOUND, "there is no register with the id 0x160000ff: there are r1 ("),
        (cell(0, None, 1), rpc_code.NOT_FOUND, "there is no register with the id 0x0"),
    ],
)
def test_bad_writes_say_what_is_wrong(switch: Switch, entity: Any, code: int, text: str) -> None:
    with pytest.raises(EntityError) as caught:
        modify(switch, entity)
    assert caught.value.code == code
    assert text in str(caught.value)


@pytest.mark.parametrize("kind", [p4r.Update.INSERT, p4r.Update.DELETE])
def test_cells_are_always_there(switch: Switch, kind: int) -> None:
    with pytest.raises(EntityError, match="a register can only be modified") as caught:
        switch.write(p4r.Update(type=kind, entity=cell(0x16000001, 0, 1)))
    assert caught.value.code == rpc_code.INVALID_ARGUMENT


def test_a_read_of_every_register_has_no_index(switch: Switch) -> None:
    with pytest.raises(EntityError, match="a read of every register has no index"):
        switch.read(cell(0, 3, None))


# Types


@settings(deadline=None)
@given(width=st.integers(1, 130), data=st.data())
def test_signed_values_are_sign_extended_and_as_short_as_possible(width: int, data: st.DataObject) -> None:
    number = data.draw(st.integers(-(1 << (width - 1)), (1 << (width - 1)) - 1))
    kind = DataType(DataKind.INT, width)
    stored = number & ((1 << width) - 1)
    text = encode_data(stored, kind).bitstring
    assert int.from_bytes(text, "big", signed=True) == number
    bits = max(1, (number if number >= 0 else ~number).bit_length() + 1) if number else 1
    assert len(text) == (bits + 7) // 8
    padded = (b"\xff" if number < 0 else b"\0") * 3 + text
    for given_text in (text, padded):
        message = encode_data(0, kind)
        message.bitstring = given_text
        assert decode_data(message, kind, "r") == stored


@pytest.mark.parametrize("text", [b"\x00\x9d", b"\x7f\xff", b"\xff\x00"])
def test_a_signed_value_beyond_its_width_is_out_of_range(text: bytes) -> None:
    message = encode_data(0, DataType(DataKind.INT, 8))
    message.bitstring = text
    with pytest.raises(EntityError, match=r"does not fit in int<8>") as caught:
        decode_data(message, DataType(DataKind.INT, 8), "r")
    assert caught.value.code == rpc_code.OUT_OF_RANGE


def test_types_of_p4info() -> None:
    info = p4i.P4Info()
    info.type_info.serializable_enums["Kind"].underlying_type.bitwidth = 12
    info.type_info.new_types["Port"].original_type.bitstring.bit.bitwidth = 9
    info.type_info.new_types["Translated"].translated_type.sdn_bitwidth = 32
    info.type_info.new_types["Name"].translated_type.sdn_string.SetInParent()

    def typed(**parts: Any) -> Any:
        register = p4i.Register()
        for name, value in parts.items():
            getattr(register.type_spec, name).name = value
        return register.type_spec

    assert data_type(typed(serializable_enum="Kind"), info.type_info, "r", 12) == DataType(DataKind.ENUM, 12)
    assert data_type(typed(new_type="Port"), info.type_info, "r", 12) == DataType(DataKind.BIT, 9)
    assert data_type(typed(new_type="Translated"), info.type_info, "r", 12) == DataType(DataKind.BIT, 12)
    for spec, text in (
        (typed(new_type="Name"), "a translated type that is a string is not supported here: Name, the type of r"),
        (typed(struct="Pair"), "a value of type struct is not supported: r"),
        (typed(serializable_enum="Nothing"), "P4Info has no type Nothing, the type of r"),
    ):
        with pytest.raises(ProgramError, match=text):
            data_type(spec, info.type_info, "r", 12)
    boolean = DataType(DataKind.BOOL, 1)
    assert decode_data(encode_data(1, boolean), boolean, "r") == 1
    enum = DataType(DataKind.ENUM, 12)
    assert encode_data(0x123, enum).enum_value == b"\x01\x23"
