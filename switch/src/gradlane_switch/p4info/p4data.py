# SPDX-License-Identifier: Apache-2.0
"""Values of P4 types as P4Runtime shows them (p4.v1.P4Data): bit<W>, int<W>, bool and serializable enums.

The switch keeps every value as an unsigned number of the type's width; a signed one in two's complement.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from finsy.proto import p4d, rpc_code

from gradlane_switch.errors import EntityError, ProgramError
from gradlane_switch.p4info.bytestrings import decode, encode, invalid


class DataKind(Enum):
    """How a value is written in a P4Data."""

    BIT = "bit"
    INT = "int"
    BOOL = "bool"
    ENUM = "enum"


_FIELDS = {DataKind.BIT: "bitstring", DataKind.INT: "bitstring", DataKind.BOOL: "bool", DataKind.ENUM: "enum_value"}


@dataclass(frozen=True)
class DataType:
    """A scalar P4 type."""

    kind: DataKind
    width: int

    @property
    def field(self) -> str:
        """The field of a P4Data that holds a value of this type."""
        return _FIELDS[self.kind]

    def __str__(self) -> str:
        return "bool" if self.kind is DataKind.BOOL else f"{self.kind.value}<{self.width}>"


def data_type(spec: Any, types: Any, what: str, width: int) -> DataType:
    """The type in a p4.config.v1.P4DataTypeSpec; `types` is the P4Info's type_info.

    The program has it with a width in bits, which P4Info does not tell of a translated type. Raises ProgramError naming
    `what` if it is not a scalar.
    """
    kind = spec.WhichOneof("type_spec")
    if kind == "bitstring" and spec.bitstring.WhichOneof("type_spec") == "bit":
        return DataType(DataKind.BIT, spec.bitstring.bit.bitwidth)
    if kind == "bitstring" and spec.bitstring.WhichOneof("type_spec") == "int":
        return DataType(DataKind.INT, spec.bitstring.int.bitwidth)
    if kind == "bool":
        return DataType(DataKind.BOOL, 1)
    if kind == "serializable_enum":
        name = spec.serializable_enum.name
        if name not in types.serializable_enums:
            raise ProgramError(f"P4Info has no type {name}, the type of {what}")
        return DataType(DataKind.ENUM, types.serializable_enums[name].underlying_type.bitwidth)
    if kind == "new_type":
        name = spec.new_type.name
        if name not in types.new_types:
            raise ProgramError(f"P4Info has no type {name}, the type of {what}")
        found = types.new_types[name]
        if found.WhichOneof("representation") == "original_type":
            return data_type(found.original_type, types, what, width)
        if found.translated_type.WhichOneof("sdn_type") == "sdn_bitwidth":
            return DataType(DataKind.BIT, width)
        raise ProgramError(f"a translated type that is a string is not supported here: {name}, the type of {what}")
    raise ProgramError(f"a value of type {kind} is not supported: {what}")


def decode_data(data: Any, kind: DataType, what: str) -> int:
    """The number in a P4Data. Raises EntityError: INVALID_ARGUMENT for another type, OUT_OF_RANGE for its width."""
    given = data.WhichOneof("data")
    if given != kind.field:
        raise invalid(f"{what} is {kind}: the value goes in {kind.field}, and {given or 'nothing'} is set")
    if kind.kind is DataKind.BOOL:
        return int(data.bool)
    text: bytes = getattr(data, given)
    if kind.kind is not DataKind.INT:
        return decode(text, kind.width, what)
    if not text:
        raise EntityError(rpc_code.OUT_OF_RANGE, f"{what}: an empty byte string is not a value")
    value = int.from_bytes(text, "big", signed=True)
    if not -(1 << (kind.width - 1)) <= value < 1 << (kind.width - 1):
        raise EntityError(rpc_code.OUT_OF_RANGE, f"{what}: {value} does not fit in {kind}")
    return value & ((1 << kind.width) - 1)


def encode_data(value: int, kind: DataType) -> Any:
    """A P4Data in canonical form."""
    if kind.kind is DataKind.BOOL:
        return p4d.P4Data(bool=bool(value))
    if kind.kind is DataKind.ENUM:
        return p4d.P4Data(enum_value=encode(value))
    if kind.kind is DataKind.INT and value >> (kind.width - 1):
        number = value - (1 << kind.width)
        return p4d.P4Data(bitstring=number.to_bytes((~number).bit_length() // 8 + 1, "big", signed=True))
    if kind.kind is DataKind.INT:
        return p4d.P4Data(bitstring=value.to_bytes(value.bit_length() // 8 + 1, "big"))
    return p4d.P4Data(bitstring=encode(value))
