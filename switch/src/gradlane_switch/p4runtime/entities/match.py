# SPDX-License-Identifier: Apache-2.0
"""Match fields of P4Runtime, checked against the schema, and back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from finsy.proto import p4r

from gradlane_switch.errors import EntityError
from gradlane_switch.ir.layout import prefix_mask
from gradlane_switch.ir.tables import FieldKey, MatchKind
from gradlane_switch.p4info.bytestrings import decode, encode, invalid
from gradlane_switch.p4info.schema import FieldSchema, TableSchema, ValueSetSchema
from gradlane_switch.p4info.translation import decode_value, encode_value


def decode_match(schema: TableSchema | ValueSetSchema, matches: Iterable[Any]) -> tuple[FieldKey, ...]:
    """The key fields of an entry, or of a value set's member, in order. Raises EntityError naming the field."""
    given: dict[int, Any] = {}
    for item in matches:
        number = item.field_id
        if number in given or number not in schema.by_field:
            raise _bad_field(schema, number)
        given[number] = item
    return tuple([_decode_field(field, given.get(field.id)) for field in schema.fields])


def _bad_field(schema: TableSchema | ValueSetSchema, number: int) -> EntityError:
    if number in schema.by_field:
        return invalid(f"{schema.name}.{schema.by_field[number].name} is given twice")
    names = ", ".join(f"{field.id} ({field.name})" for field in schema.fields)
    return invalid(f"{schema.name} has no match field {number}: it has {names or 'none'}")


def _decode_field(field: FieldSchema, item: Any) -> FieldKey:
    if item is None:
        if field.kind == "exact":
            raise invalid(f"{field.what} is missing: an exact field has no wildcard")
        return FieldKey(0, field.full if field.kind == "range" else 0)
    given = item.WhichOneof("field_match_type")
    if given != field.kind:
        raise invalid(f"{field.what} is matched as {field.kind}, not as {given or 'nothing'}")
    return _DECODERS[given](field, item)


def _decode(field: FieldSchema, text: bytes) -> int:
    return decode_value(text, field.key.width, field.what, field.translation)


def _decode_exact(field: FieldSchema, item: Any) -> FieldKey:
    return FieldKey(_decode(field, item.exact.value))


def _decode_optional(field: FieldSchema, item: Any) -> FieldKey:
    return FieldKey(_decode(field, item.optional.value), field.full)


def _decode_lpm(field: FieldSchema, item: Any) -> FieldKey:
    lpm, width = item.lpm, field.bits
    length, shortest = lpm.prefix_len, max(field.excess, 0) + 1
    if not shortest <= length <= width:
        text = f"prefix length {length} is not in {shortest}..{width} (leave the field out to match all)"
        raise invalid(f"{field.what}: {text}")
    value = _decode(field, lpm.value)
    if value & ~prefix_mask(length, width):
        raise invalid(f"{field.what}: {value:#x} has bits outside its prefix of {length}")
    return FieldKey(value, length - field.excess)


def _decode_ternary(field: FieldSchema, item: Any) -> FieldKey:
    value, mask = _decode(field, item.ternary.value), decode(item.ternary.mask, field.bits, field.mask)
    mask = field.full if mask == field.most else mask & field.full
    if mask == 0:
        raise invalid(f"{field.what}: the mask is zero (leave the field out to match all)")
    if value & ~mask:
        raise invalid(f"{field.what}: {value:#x} has bits outside its mask {mask:#x}")
    return FieldKey(value, mask)


def _decode_range(field: FieldSchema, item: Any) -> FieldKey:
    low = decode_value(item.range.low, field.key.width, f"{field.what} low", field.translation)
    high = min(decode(item.range.high, field.bits, f"{field.what} high"), field.full)
    if low > high:
        raise invalid(f"{field.what}: {low} is above {high}")
    if low == 0 and high == field.full:
        raise invalid(f"{field.what}: the range is every value (leave the field out to match all)")
    return FieldKey(low, high)


_DECODERS = {
    "exact": _decode_exact,
    "optional": _decode_optional,
    "lpm": _decode_lpm,
    "ternary": _decode_ternary,
    "range": _decode_range,
}


def encode_match(schema: TableSchema | ValueSetSchema, match: tuple[FieldKey, ...]) -> list[Any]:
    """Match fields of an entry or member, wildcards left out, values in canonical form."""
    result: list[Any] = []
    for field, wanted in zip(schema.fields, match, strict=True):
        message = p4r.FieldMatch(field_id=field.id)
        match field.key.kind:
            case MatchKind.EXACT:
                message.exact.value = encode_value(wanted.value, field.translation)
            case MatchKind.OPTIONAL:
                if not wanted.operand:
                    continue
                message.optional.value = encode_value(wanted.value, field.translation)
            case MatchKind.LPM:
                if not wanted.operand:
                    continue
                message.lpm.value, message.lpm.prefix_len = encode(wanted.value), wanted.operand + field.excess
            case MatchKind.TERNARY:
                if not wanted.operand:
                    continue
                mask = field.most if wanted.operand == field.full else wanted.operand
                message.ternary.value, message.ternary.mask = encode(wanted.value), encode(mask)
            case MatchKind.RANGE:
                if (wanted.value, wanted.operand) == (0, (1 << field.key.width) - 1):
                    continue
                message.range.low, message.range.high = encode(wanted.value), encode(wanted.operand)
        result.append(message)
    return result
