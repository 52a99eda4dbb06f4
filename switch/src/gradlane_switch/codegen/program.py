# SPDX-License-Identifier: Apache-2.0
"""C for a program. Names of the P4 program never reach it: headers, fields, tables and actions are numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gradlane_switch.codegen.bits import number
from gradlane_switch.codegen.calculations import calculations, checksums
from gradlane_switch.codegen.expressions import c_type, clamped, expression, field_name, truncated, truth, wide
from gradlane_switch.codegen.headers import (
    copy_header,
    copy_stack,
    copy_union,
    copy_variable,
    deparser,
    for_each,
    members,
    move_stack,
    set_valid,
)
from gradlane_switch.codegen.lookup import key_words, lookup
from gradlane_switch.codegen.packet_path import packet_path
from gradlane_switch.codegen.parser import ParserWriter
from gradlane_switch.errors import ProgramError
from gradlane_switch.ir.expressions import Element, Expr, Field, words_of
from gradlane_switch.ir.layout import argument_words, layout_of, most_argument_words
from gradlane_switch.ir.program import DROP_PORT, Action, Pipeline, Program, Table
from gradlane_switch.ir.statements import (
    Assert,
    Assign,
    Clone,
    CopyHeader,
    CopyStack,
    CopyUnion,
    CopyVariable,
    Count,
    ExecuteMeter,
    Exit,
    HashTo,
    Jump,
    Learn,
    Log,
    MarkToDrop,
    MoveStack,
    RandomTo,
    Recirculate,
    RegisterRead,
    RegisterWrite,
    Resubmit,
    SetValid,
    Statement,
    Truncate,
    logged_words,
)

_HEADROOM = 2044  # GL_HEADROOM, less a VLAN tag that the kernel took out of the frame
_MOST_STEPS = 65536  # jumps back in one run of an action
_STATE = "gl_state *s, headers *h, uint64_t now, uint32_t length"


def generate(program: Program, traced: bool = False) -> str:
    """The C source of a program, which defines `gl_program`; if it is traced, one that tells what it does.

    Raises ProgramError if its headers can't fit.
    """
    if sum(program.headers[index].most_octets for index in program.deparser) > _HEADROOM:
        raise ProgramError(f"headers of more than {_HEADROOM} bytes in all are not supported")
    body = "\n".join(_Generator(program).source())
    widths = sorted({int(words) for words in re.findall(r"\bgl_w(\d+)", body)})
    types = "".join(f"GL_WIDE({words})\n" for words in widths)
    tracing = "#define GL_TRACED\n" if traced else ""
    return f'{tracing}#include "program/program.h"\n{types}{body}\n'


class _Generator:
    def __init__(self, program: Program) -> None:
        self.program = program

    def source(self) -> Iterator[str]:
        yield from self.headers()
        yield from ParserWriter(self.program, self.statement).source()
        yield from calculations(self.program)
        for index, action in enumerate(self.program.actions):
            yield from self.action(index, action)
        yield from self.pipeline(self.program.ingress)
        yield from self.pipeline(self.program.egress)
        yield from checksums(self.program)
        yield from deparser(self.program, self.statement)
        yield from packet_path(self.program)

    def headers(self) -> Iterator[str]:
        yield "typedef struct {"
        yield from members(self.program)
        yield "gl_marks m;"
        yield "} headers;"

    # Actions

    def action(self, index: int, action: Action) -> Iterator[str]:
        yield f"GL_INLINE int a{index}({_STATE}, const uint64_t *a) {{"
        yield "(void)s; (void)h; (void)now; (void)length; (void)a;"
        if any(isinstance(item, Jump) and item.destination <= position for position, item in enumerate(action.body)):
            yield "uint32_t steps = 0;"
        for position, statement in enumerate(action.body):
            yield f"l{position}:"
            if isinstance(statement, Jump) and statement.destination <= position:
                yield f"if (++steps > {_MOST_STEPS}) {{ s->losses.endless++; h->m.failed = 1; return 1; }}"
            yield self.statement(statement)
            if isinstance(statement, Assert):
                yield "if (h->m.failed) return 1;"
        yield f"l{len(action.body)}: return 0;"
        yield "}"

    def statement(self, statement: Statement) -> str:
        match statement:
            case Assign(target, value):
                return self.assign(target, truncated(value, target.width))
            case CopyVariable(target, source):
                return copy_variable(target, source)
            case MoveStack():
                return move_stack(self.program, statement)
            case CopyStack():
                return copy_stack(self.program, statement)
            case CopyUnion():
                return copy_union(self.program, statement)
            case Assert(condition, message):
                failed = f"h->m.failed = 1; gl_assertion_failed(s, {message}, now);"
                return f"if (!{truth(condition)}) {{ {failed} }}"
            case Log(message, values):
                words = [part for value in values for part in _words(value)]
                held = ", ".join(words) or "0"
                return f"{{ const uint64_t v[] = {{ {held} }}; gl_log(s, {message}, now, v, {len(words)}); }}"
            case MarkToDrop(egress_spec, mcast_grp):
                dropped = self.store(egress_spec, str(DROP_PORT))
                return dropped if mcast_grp is None else f"{dropped} {self.store(mcast_grp, '0')}"
            case Count(counter, index):
                return f"gl_count(s, {counter}, {clamped(index)}, length);"
            case ExecuteMeter(meter, index, target):
                units = "length" if self.program.meters[meter].counts_bytes else "1"
                colour = self.store(target, f"gl_meter_run(x, {units}, length, now)")
                return f"{{ gl_meter *x = gl_meter_at(s, {meter}, {clamped(index)}); if (x) {{ {colour} }} }}"
            case RegisterRead(target, register, index):
                return self.read_register(target, register, clamped(index))
            case RegisterWrite(register, index, value):
                width = self.program.registers[register].width
                cell = f"gl_register(s, {register}, {clamped(index)}, {words_of(width)})"
                held = f"{c_type(width)} x = {truncated(value, width)};"
                return f"{{ {held} uint64_t *c = {cell}; if (c) memcpy(c, &x, sizeof x); }}"
            case SetValid(header, valid):
                return for_each(header, lambda item: set_valid(self.program, item, valid))
            case CopyHeader(target, source):
                return for_each(target, lambda to: for_each(source, lambda of: copy_header(self.program, to, of)))
            case HashTo(target, base, calculation, modulus):
                digest = f"(m ? c{calculation}(s, h, NULL) % m : 0)"
                stored = self.store(target, f"({expression(base)} + {digest})")
                return f"{{ uint64_t m = {expression(modulus)}; {stored} }}"
            case RandomTo(target, low, high):
                drawn = self.store(target, "gl_random_between(s, low, high)")
                ends = f"uint64_t low = {expression(low)}, high = {expression(high)};"
                return f"{{ {ends} if (low <= high) {{ {drawn} }} }}"
            case Clone(session, fields):
                kept = 0 if fields is None else fields + 1
                return f"h->m.clone = (uint16_t)({expression(session)} | GL_CLONED); h->m.clone_fields = {kept};"
            case Resubmit(fields):
                return f"h->m.resubmit = {fields + 1};"
            case Recirculate(fields):
                return f"h->m.recirculate = {fields + 1};"
            case Truncate(limit):
                return f"{{ uint64_t n = {clamped(limit)}; if (n < h->m.limit) h->m.limit = (uint32_t)n; }}"
            case Learn(digest):
                return f"h->m.digest = {digest + 1};"
            case Jump(destination, None):
                return f"goto l{destination};"
            case Jump(destination, condition):
                assert condition is not None
                return f"if (!{truth(condition)}) goto l{destination};"
            case Exit():
                return "return 1;"

    @staticmethod
    def assign(target: Field | Element, value: str) -> str:
        """Sets a field to a C expression that fits it."""
        if isinstance(target, Field):
            return f"{field_name(target.header, target.field)} = {value};"
        choices = " ".join(
            f"case {position}: {field_name(header, target.field)} = x; break;"
            for position, header in enumerate(target.headers)
        )
        return f"{{ {c_type(target.width)} x = {value}; switch ({clamped(target.index)}) {{ {choices} default:; }} }}"

    @staticmethod
    def store(target: Field, value: str) -> str:
        """Sets a field to the low bits of a C expression of type uint64_t."""
        name = field_name(target.header, target.field)
        if target.width > 64:
            return f"{name} = gl_w{words_of(target.width)}_of({value});"
        return f"{name} = {value} & {number((1 << target.width) - 1)};"

    def read_register(self, target: Field, register: int, index: str) -> str:
        """Sets a field to a register's cell, unless that is beyond the end."""
        held = words_of(self.program.registers[register].width)
        cell = f"const uint64_t *c = gl_register(s, {register}, {index}, {held});"
        if target.width <= 64:
            return f"{{ {cell} if (c) {{ {self.store(target, 'c[0]')} }} }}"
        name, words = field_name(target.header, target.field), words_of(target.width)
        return f"{{ {cell} if (c) {name} = gl_w{words}_mask(gl_w{words}_load(c, {held}), {target.width}); }}"

    # Control flow

    def pipeline(self, pipeline: Pipeline) -> Iterator[str]:
        yield f"static void {'ingress' if pipeline is self.program.ingress else 'egress'}({_STATE}) {{"
        yield "(void)s; (void)h; (void)now; (void)length;"
        yield _follow(pipeline.start)
        for index, node in enumerate(pipeline.nodes):
            yield f"n{index}: {{"
            if isinstance(node, Table):
                yield from self.table(pipeline.tables[index], node)
            else:
                where = int(pipeline is self.program.egress)
                yield f"GL_TRACE(GL_TRACE_BRANCH, {where}, {index}, {truth(node.condition)} != 0);"
                yield f"if ({truth(node.condition)}) {_follow(node.if_true)} else {_follow(node.if_false)}"
            yield "}"
        yield "end: return;"
        yield "}"

    def table(self, index: int, table: Table) -> Iterator[str]:
        if not table.keys and table.const_default and table.default and not table.direct_counter:
            widths = self.program.actions[table.default.action].params
            arguments = ", ".join(number(word) for word in argument_words(widths, table.default.arguments)) or "0"
            yield f"static const uint64_t a[] = {{ {arguments} }};"
            yield f"GL_TRACE(GL_TRACE_TABLE, {index}); GL_TRACE(GL_TRACE_ENTRY, 0, 0);"
            yield from self.call(table, table.default.action, "a", "0")
            return
        layout = layout_of(table.keys)
        yield f"gl_table *t = &s->tables[{index}];"
        if table.keys:
            values = [truncated(key.source, key.width) for key in table.keys]
            yield key_words(layout, table.keys, values, [key.mask for key in table.keys])
            yield f"GL_TRACE_WORDS(GL_TRACE_TABLE, k, {layout.words}, {index});"
            yield f"gl_entry *e = {lookup(layout, 't->lookup', most_argument_words(self.program, table))};"
        else:
            yield f"gl_entry *e = NULL; GL_TRACE(GL_TRACE_TABLE, {index});"
        yield "int hit = e != NULL; (void)hit;"
        yield "GL_TRACE(GL_TRACE_ENTRY, hit, (uintptr_t)e);"
        yield "if (!hit) e = t->fallback;"
        if table.direct_counter:
            yield "gl_tally(&e->counter, length);"
        if table.direct_meter is not None:
            meter = self.program.direct_meters[table.direct_meter]
            units = "length" if meter.counts_bytes else "1"
            colour = f"gl_meter_run(e->meter, {units}, length, now)"
            yield f"if (hit) {{ {self.store(meter.target, colour)} }}"
        if table.timeout:
            yield "if (hit) e->last_hit = now;"
        if table.profile is not None:
            selector = self.program.profiles[table.profile].selector
            chosen = (
                "0" if selector is None else f"e->choice->count > 1 ? c{selector}(s, h, NULL) % e->choice->count : 0"
            )
            # An empty group does nothing, and the packet goes on as after a hit.
            yield f"if (e->choice && e->choice->count) e = e->choice->members[{chosen}];"
        yield "switch (e->action) {"
        for position, action in enumerate(table.actions):
            yield f"case {position}: {{"
            yield from self.call(table, action, "e->arguments", "hit")
            yield "}"
        yield "default:;"
        yield "}"
        yield (
            f"if (hit) {_follow(table.next_hit)} else {_follow(table.next_miss)}"
            if table.by_hit
            else _follow(table.next_miss)
        )

    def call(self, table: Table, action: int, arguments: str, hit: str) -> Iterator[str]:
        words = sum(words_of(width) for width in self.program.actions[action].params)
        yield f"GL_TRACE_WORDS(GL_TRACE_ACTION, {arguments}, {words}, {action});"
        yield f"if (a{action}(s, h, now, length, {arguments})) goto end;"
        if table.by_hit:
            yield f"if ({hit}) {_follow(table.next_hit)} else {_follow(table.next_miss)}"
        else:
            yield _follow(table.next_by_action[action])


def _words(value: Expr) -> list[str]:
    """A value, with its sign, in C expressions of 64 bits, the lowest first."""
    count = logged_words(value)
    return [expression(value)] if count == 1 else [f"{wide(value, count)}.w[{word}]" for word in range(count)]


def _follow(node: int | None) -> str:
    return "goto end;" if node is None else f"goto n{node};"
