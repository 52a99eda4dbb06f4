# SPDX-License-Identifier: Apache-2.0
"""C for the parser: one function, whose states are labels."""

from __future__ import annotations

from collections.abc import Iterator

from gradlane_switch.codegen import standard_metadata
from gradlane_switch.codegen.bits import number
from gradlane_switch.codegen.expressions import c_type, clamped, expression, next_name, truncated, truth
from gradlane_switch.codegen.headers import make_valid, read_header
from gradlane_switch.codegen.lookup import key_words, lookup
from gradlane_switch.codegen.statements import statement
from gradlane_switch.ir.expressions import Expr, LastIndex, Lookahead, operands, split_words, words_of
from gradlane_switch.ir.graph import has_loop
from gradlane_switch.ir.layout import layout_of
from gradlane_switch.ir.parser import Advance, Extract, ExtractNext, ParserState, Transition, Verify
from gradlane_switch.ir.program import Program
from gradlane_switch.ir.statements import Assert, Assign, Log

_STEPS = 1024  # states that a parser may pass beyond one for each byte of the packet


class ParserWriter:
    """Writes the parser of a program."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.loops = has_loop([[item.state for item in state.transitions] for state in program.parser])

    def source(self) -> Iterator[str]:
        """The function, which returns how many bytes it consumed."""
        yield "static uint32_t parse(gl_state *s, headers *h, const uint8_t *data, uint32_t length, uint64_t now) {"
        yield "uint32_t at = 0; uint64_t error = 0; const uint8_t *q = data; (void)q; (void)s; (void)now;"
        yield f"error = {self.error('NoError')};"
        if self.loops:
            yield "uint32_t steps = 0;"
        start = self.program.parser_start
        yield f"goto s{start};" if start is not None else "goto done;"
        for index, state in enumerate(self.program.parser):
            yield f"s{index}: GL_TRACE(GL_TRACE_STATE, {index});"
            if self.loops:
                yield f"if (++steps > length + {_STEPS}) {{ {self.fail('ParserTimeout')} }}"
            yield from self.state(state)
        yield f"too_short: error = {self.error('PacketTooShort')};"
        yield "done: GL_TRACE(GL_TRACE_PARSED, error, at);"
        yield standard_metadata.write(self.program, "parser_error", "error")
        yield "return at;"
        yield "}"

    def error(self, name: str) -> str:
        """The number of an error of core.p4."""
        return number(self.program.errors.get(name, 0))

    def fail(self, name: str) -> str:
        """Statements that end the parser with an error."""
        return f"error = {self.error(name)}; goto done;"

    def state(self, state: ParserState) -> Iterator[str]:
        """What a state does, and where it goes."""
        for operation in state.operations:
            match operation:
                case Extract(header, length):
                    yield from self.extract(header, length)
                case ExtractNext(stack, member, length):
                    yield f"switch ({next_name(stack)}) {{"
                    for position, element in enumerate(self.program.stacks[stack].elements):
                        yield f"case {position}: {{"
                        yield from self.extract(element[member], length)
                        yield "break; }"
                    yield f"default: {self.fail('StackOutOfBounds')}"
                    yield "}"
                    yield f"{next_name(stack)}++;"
                case Verify(condition, error):
                    yield from self.check(condition)
                    yield f"if (!{truth(condition)}) {{ error = {expression(error)}; goto done; }}"
                case Advance(distance):
                    yield from self.check(distance)
                    yield f"{{ uint64_t d = {clamped(distance)};"
                    yield f"if (d % 8) {{ {self.fail('ParserInvalidArgument')} }}"
                    yield "if (d / 8 > length - at) goto too_short;"
                    yield "at += (uint32_t)(d / 8); q += d / 8; }"
                case Assert(condition):
                    yield from self.check(condition)
                    yield statement(self.program, operation)
                    yield "if (h->m.failed) goto done;"
                case Assign(_, value):
                    yield from self.check(value)
                    yield statement(self.program, operation)
                case Log(values=values):
                    for value in values:
                        yield from self.check(value)
                    yield statement(self.program, operation)
                case _:
                    yield statement(self.program, operation)
        yield from self.select(state)

    def extract(self, header: int, length: Expr | None) -> Iterator[str]:
        """Consumes a header."""
        found = self.program.headers[header]
        if length is None:
            yield f"if (length - at < {found.octets}) goto too_short;"
            yield from read_header(self.program, header)
            yield f"{make_valid(self.program, header)} at += {found.octets}; q += {found.octets};"
            return
        yield from self.check(length)
        yield f"{{ uint64_t d = {clamped(length)};"
        yield f"if (d > INT32_MAX || d % 8) {{ {self.fail('ParserInvalidArgument')} }}"
        yield f"uint32_t n = (uint32_t)(d / 8), all = {found.octets} + n;"
        yield "if (length - at < all) goto too_short;"
        yield f"if (all > {found.most_octets}) {{ {self.fail('HeaderTooShort')} }}"
        yield "const uint8_t *e = q + n; (void)e;"
        yield from read_header(self.program, header)
        yield f"{make_valid(self.program, header)} at += all; q += all; }}"

    def select(self, state: ParserState) -> Iterator[str]:
        """Goes where the first case that matches says."""
        for key in state.keys:
            yield from self.check(key)
        for index, (key, width) in enumerate(zip(state.keys, state.widths, strict=True)):
            yield f"{'{ ' if index == 0 else ''}{c_type(width)} k{index} = {truncated(key, width)};"
        for transition in state.transitions:
            target = "done" if transition.state is None else f"s{transition.state}"
            if transition.value_set is not None:
                yield from self.member(transition.value_set)
                yield f"if (found) goto {target}; }}"
            elif transition.cases is None:
                yield f"goto {target};"
                break
            else:
                yield f"if ({self.case(transition, state.widths)}) goto {target};"
        else:
            yield "goto done;"
        if state.keys:
            yield "}"

    def case(self, transition: Transition, widths: tuple[int, ...]) -> str:
        """The condition of a case with values and masks."""
        tests: list[str] = []
        assert transition.cases is not None
        for index, (value, mask) in enumerate(transition.cases):
            if widths[index] <= 64:
                tests.append(f"(k{index} & {number(mask)}) == {number(value & mask)}")
                continue
            words = words_of(widths[index])
            pairs = zip(split_words(value & mask, words), split_words(mask, words), strict=True)
            for word, (low, bits) in enumerate(pairs):
                if bits:
                    tests.append(f"(k{index}.w[{word}] & {number(bits)}) == {number(low)}")
        return " && ".join(tests) or "1"

    def member(self, value_set: int) -> Iterator[str]:
        """Opens a block in which `found` says whether the keys are in a value set."""
        keys = self.program.value_sets[value_set].keys
        layout = layout_of(keys)
        masks = [(1 << key.width) - 1 for key in keys]
        yield f"{{ {key_words(layout, keys, [f'k{index}' for index in range(len(keys))], masks)}"
        found_by = f"s->tables[{len(self.program.tables) + value_set}].lookup"
        yield f"int found = {lookup(layout, found_by, 0)} != NULL;"

    def check(self, expr: Expr) -> Iterator[str]:
        """Ends the parser if an expression reads beyond the packet, or the last element of an empty stack."""
        needed, stacks = _reach(expr), _stacks(expr)
        if needed:
            yield f"if ((length - at) * UINT64_C(8) < {needed}) goto too_short;"
        for stack in sorted(stacks):
            yield f"if (!{next_name(stack)}) {{ {self.fail('StackOutOfBounds')} }}"


def _reach(expr: Expr) -> int:
    """Bits of the packet beyond the parser's position that an expression reads."""
    if isinstance(expr, Lookahead):
        return expr.offset + expr.width
    return max((_reach(operand) for operand in operands(expr)), default=0)


def _stacks(expr: Expr) -> set[int]:
    """The stacks whose last element an expression reads."""
    found = {expr.stack} if isinstance(expr, LastIndex) else set[int]()
    return found.union(*(_stacks(operand) for operand in operands(expr)))
