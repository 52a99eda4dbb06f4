# SPDX-License-Identifier: Apache-2.0
"""C for hashes and checksums: a function per calculation, over what BMv2 would put in its buffer.

That is the fields in order and without gaps, those of invalid headers left out, zero bits up to a whole byte, and then
the payload if the calculation wants it. While every header is valid, all offsets are known.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gradlane_switch.codegen import standard_metadata
from gradlane_switch.codegen.bits import internet_sum, number, write_fields
from gradlane_switch.codegen.expressions import bytes_name, field_name, length_name, pieces, truth, valid_name
from gradlane_switch.ir.externs import Calculation, CalculationInput
from gradlane_switch.ir.program import Program


@dataclass(frozen=True)
class _Crc:
    """A reflected CRC: polynomial (lowest bit first), initial remainder, what the result is XORed with."""

    polynomial: int
    initial: int
    final: int

    def table(self) -> Iterator[int]:
        """The remainders of all bytes."""
        for byte in range(256):
            remainder = byte
            for _ in range(8):
                remainder = remainder >> 1 ^ (self.polynomial if remainder & 1 else 0)
            yield remainder


# CRC-16/ARC and CRC-32, which are also what BMv2's custom CRCs are until somebody changes them.
_CRC16, _CRC32 = _Crc(0xA001, 0, 0), _Crc(0xEDB88320, 0xFFFFFFFF, 0xFFFFFFFF)
_CRCS = {"crc16": _CRC16, "crc16_custom": _CRC16, "crc32": _CRC32, "crc32_custom": _CRC32}


def calculations(program: Program) -> Iterator[str]:
    """The functions c0, c1 ... `p` holds the payload; it is only looked at by a calculation that wants it."""
    for crc in {_CRCS[item.algorithm] for item in program.calculations if item.algorithm in _CRCS}:
        yield f"static const uint32_t {_table(crc)}[256] = {{ {', '.join(map(hex, crc.table()))} }};"
    for index, calculation in enumerate(program.calculations):
        yield f"GL_CALLED uint64_t c{index}(gl_state *s, const headers *h, const gl_packet *p) {{"
        yield "(void)s; (void)h; (void)p;"
        if calculation.algorithm == "random":
            yield "return gl_random(&s->random);"
        else:
            yield from _calculation(program, calculation)
        yield "}"


def _table(crc: _Crc) -> str:
    return f"crc{crc.polynomial:x}"


def _calculation(program: Program, calculation: Calculation) -> Iterator[str]:
    inputs = calculation.inputs
    variable = [item.header for item in inputs if item.value is None and item.header is not None]
    needed = sorted({item.header for item in inputs if item.header is not None})
    fixed = sum(item.width for item in inputs)
    longest = (fixed + 7) // 8 + sum(found.octets for header in variable if (found := program.headers[header].variable))
    if not variable:
        if needed:
            yield f"if ({' && '.join(valid_name(header) for header in needed)}) {{"
        yield from _at_known_offsets(calculation, inputs, (fixed + 7) // 8)
        if not needed:
            return
        yield "}"
    yield f"uint8_t b[{max(longest, 1)}]; gl_bits x = {{b, 0}};"
    for item in inputs:
        yield f"if ({valid_name(item.header)}) {{" if item.header is not None else "{"
        if item.value is None:
            assert item.header is not None
            yield f"gl_append_bytes(&x, {bytes_name(item.header)}, {length_name(item.header)});"
        else:
            for value, width in pieces(item.value, item.width):
                yield f"gl_append(&x, {value}, {width});"
        yield "}"
    yield from _result(calculation, "((x.count + 7) / 8)")


def _at_known_offsets(calculation: Calculation, inputs: Sequence[CalculationInput], octets: int) -> Iterator[str]:
    fields = [piece for item in inputs if item.value is not None for piece in pieces(item.value, item.width)]
    if calculation.algorithm == "csum16":
        yield "uint64_t sum = 0;"
        yield from internet_sum(fields)
        if calculation.payload:
            yield f"sum += gl_sum(p->data, gl_payload(p, h->m.limit), {octets % 2});"
        yield "return gl_fold(sum) ^ 0xffff;"
        return
    yield f"uint8_t b[{max(octets, 1)}] = {{0}};"
    yield from write_fields("b", fields)
    yield from _result(calculation, str(octets))


def _result(calculation: Calculation, octets: str) -> Iterator[str]:
    crc = _CRCS.get(calculation.algorithm)
    if crc is not None:
        yield f"uint32_t crc = gl_crc({_table(crc)}, {crc.initial:#x}, b, {octets});"
        if calculation.payload:
            yield f"crc = gl_crc({_table(crc)}, crc, p->data, gl_payload(p, h->m.limit));"
        yield f"return crc ^ {crc.final:#x}u;"
    elif calculation.algorithm == "csum16":
        payload = f" + gl_sum(p->data, gl_payload(p, h->m.limit), {octets} % 2)" if calculation.payload else ""
        yield f"return gl_fold(gl_sum(b, {octets}, 0){payload}) ^ 0xffff;"
    else:
        yield f"uint64_t result = gl_{calculation.algorithm}(0, b, {octets}, 0);"
        if calculation.payload:
            payload = f"p->data, gl_payload(p, h->m.limit), {octets}"
            yield f"result = gl_{calculation.algorithm}(result, {payload});"
        yield "return result;"


def checksums(program: Program) -> Iterator[str]:
    """The functions that verify and update the checksums; `p` holds the payload."""
    yield "GL_INLINE void verify_checksums(gl_state *s, headers *h, const gl_packet *p) { (void)s; (void)h; (void)p;"
    for checksum in program.checksums:
        if checksum.verify:
            parts = [f"c{checksum.calculation}(s, h, p) != {field_name(checksum.target.header, checksum.target.field)}"]
            if checksum.condition is not None:
                parts.insert(0, f"({truth(checksum.condition)})")
            if not program.headers[checksum.target.header].metadata:
                parts.insert(0, valid_name(checksum.target.header))
            yield f"if ({' && '.join(parts)}) {{ {standard_metadata.write(program, 'checksum_error', '1')} }}"
    yield "}"
    yield "GL_INLINE void update_checksums(gl_state *s, headers *h, const gl_packet *p) { (void)s; (void)h; (void)p;"
    for checksum in program.checksums:
        if checksum.update:
            condition = truth(checksum.condition) if checksum.condition is not None else "1"
            target = field_name(checksum.target.header, checksum.target.field)
            mask = number((1 << checksum.target.width) - 1)
            yield f"if ({condition}) {target} = c{checksum.calculation}(s, h, p) & {mask};"
    yield "}"
