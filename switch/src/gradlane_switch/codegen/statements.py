# SPDX-License-Identifier: Apache-2.0
"""C for actions and their statements. What a statement does to a packet is in the headers' struct `h` and its marks."""

from __future__ import annotations

from collections.abc import Iterator

from gradlane_switch.codegen.bits import number
from gradlane_switch.codegen.expressions import (
    assigned,
    c_type,
    clamped,
    expression,
    field_name,
    is_long,
    set_field,
    set_mark,
    truncated,
    truth,
    wide,
)
from gradlane_switch.codegen.headers import (
    copy_header,
    copy_stack,
    copy_union,
    copy_variable,
    for_each,
    move_stack,
    set_valid,
)
from gradlane_switch.ir.expressions import Element, Expr, Field, shape, words_of
from gradlane_switch.ir.program import DROP_PORT, Program
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
from gradlane_switch.ir.tables import Action

STATE = "gl_state *s, headers *h, uint64_t now, uint32_t length"
"""The parameters that functions of actions and control flows have in common."""
_MOST_STEPS = 65536  # jumps back in one run of an action


def action(program: Program, index: int, action: Action) -> Iterator[str]:
    """The function of an action, which returns 1 if it ends the control flow."""
    # Most have a few statements. Where long fields are, a call costs little, and inlining takes long to compile.
    how = "GL_CALLED" if any(_has_long(item) for item in action.body) else "GL_INLINE"
    yield f"{how} int a{index}({STATE}, const uint64_t *a) {{"
    yield "(void)s; (void)h; (void)now; (void)length; (void)a;"
    if any(isinstance(item, Jump) and item.destination <= position for position, item in enumerate(action.body)):
        yield "uint32_t steps = 0;"
    for position, item in enumerate(action.body):
        yield f"l{position}:"
        if isinstance(item, Jump) and item.destination <= position:
            yield f"if (++steps > {_MOST_STEPS}) {{ s->losses.endless++; h->m.failed = 1; return 1; }}"
        yield statement(program, item)
        if isinstance(item, Assert):
            yield "if (h->m.failed) return 1;"
    yield f"l{len(action.body)}: return 0;"
    yield "}"


def _has_long(item: Statement) -> bool:
    match item:
        case Assign(target) | RegisterRead(target):
            return is_long(target.width)
        case RegisterWrite(value=value):
            known = shape(value)
            return known is not None and is_long(known.width)
        case _:
            return False


def statement(program: Program, item: Statement) -> str:
    """What a statement does."""
    match item:
        case Assign(target, value):
            return assigned(target, value) if isinstance(target, Field) else _assign_element(target, value)
        case CopyVariable(target, source):
            return copy_variable(target, source)
        case MoveStack():
            return move_stack(program, item)
        case CopyStack():
            return copy_stack(program, item)
        case CopyUnion():
            return copy_union(program, item)
        case Assert(condition, message):
            failed = f"h->m.failed = 1; gl_assertion_failed(s, {message}, now);"
            return f"if (!{truth(condition)}) {{ {failed} }}"
        case Log(message, values):
            words = [part for value in values for part in _words(value)]
            held = ", ".join(words) or "0"
            return f"{{ const uint64_t v[] = {{ {held} }}; gl_log(s, {message}, now, v, {len(words)}); }}"
        case MarkToDrop(egress_spec, mcast_grp):
            dropped = store(egress_spec, str(DROP_PORT))
            return dropped if mcast_grp is None else f"{dropped} {store(mcast_grp, '0')}"
        case Count(counter, index):
            counted = f"gl_count(s, {counter}, i, length);"
            noted = f"if (i < s->counters[{counter}].size) GL_TRACE(GL_TRACE_COUNT, {counter}, i);"
            return f"{{ uint64_t i = {clamped(index)}; {counted} {noted} }}"
        case ExecuteMeter(meter, index, target):
            units = "length" if program.meters[meter].counts_bytes else "1"
            run = f"uint64_t colour = gl_meter_run(x, {units}, length, now); {store(target, 'colour')}"
            run += f" GL_TRACE(GL_TRACE_METER, {meter}, i, colour);"
            found = f"uint64_t i = {clamped(index)}; gl_meter *x = gl_meter_at(s, {meter}, i);"
            return f"{{ {found} if (x) {{ {run} }} }}"
        case RegisterRead(target, register, index):
            return _read_register(program, target, register, index)
        case RegisterWrite(register, index, value):
            width = program.registers[register].width
            cell = _cell(program, register, index)
            held = truncated(value, width)
            written = f"c[0] = {held};" if width <= 64 else f"memcpy(c, ({held}).w, {8 * words_of(width)});"
            return f"{{ {cell} if (c) {{ {written} {_noted('WRITE', register, width)} }} }}"
        case SetValid(header, valid):
            return for_each(header, lambda one: set_valid(program, one, valid))
        case CopyHeader(target, source):
            return for_each(target, lambda to: for_each(source, lambda of: copy_header(program, to, of)))
        case HashTo(target, base, calculation, modulus):
            digest = f"(m ? c{calculation}(s, h, NULL) % m : 0)"
            stored = store(target, f"({expression(base)} + {digest})")
            return f"{{ uint64_t m = {expression(modulus)}; {stored} }}"
        case RandomTo(target, low, high):
            drawn = store(target, "gl_random_between(s, low, high)")
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


def _assign_element(target: Element, value: Expr) -> str:
    """Sets the field that an index selects."""
    width = target.width
    choices = " ".join(
        f"case {position}: {set_field(header, target.field, width, 'x')} break;"
        for position, header in enumerate(target.headers)
    )
    held = f"{c_type(width)} x = {truncated(value, width)};"
    return f"{{ {held} switch ({clamped(target.index)}) {{ {choices} default:; }} }}"


def store(target: Field, value: str) -> str:
    """Sets a field to the low bits of a C expression of type uint64_t."""
    width = target.width
    held = f"gl_w{words_of(width)}_of({value})" if width > 64 else f"{value} & {number((1 << width) - 1)}"
    return set_field(target.header, target.field, width, held)


def _cell(program: Program, register: int, index: Expr) -> str:
    """Declares `c`, a register's cell, NULL beyond the end, and its index `i`."""
    words = words_of(program.registers[register].width)
    return f"uint64_t i = {clamped(index)}, *c = gl_register(s, {register}, i, {words});"


def _noted(access: str, register: int, width: int) -> str:
    return f"GL_TRACE_WORDS(GL_TRACE_{access}, c, {words_of(width)}, {register}, i);"


def _read_register(program: Program, target: Field, register: int, index: Expr) -> str:
    """Sets a field to a register's cell, unless that is beyond the end."""
    width, held = target.width, program.registers[register].width
    words = words_of(width)
    if width <= 64:
        stored = store(target, "c[0]")
    elif is_long(width) and width == held:
        name, marked = field_name(target.header, target.field), set_mark(target.header, target.field)
        stored = f"memcpy({name}.w, c, sizeof {name}); {marked}"
    else:
        value = f"gl_w{words}_mask(gl_w{words}_load(c, {words_of(held)}), {width})"
        stored = set_field(target.header, target.field, width, value)
    return f"{{ {_cell(program, register, index)} if (c) {{ {stored} {_noted('READ', register, held)} }} }}"


def _words(value: Expr) -> list[str]:
    """A value, with its sign, in C expressions of 64 bits, the lowest first."""
    count = logged_words(value)
    return [expression(value)] if count == 1 else [f"{wide(value, count)}.w[{word}]" for word in range(count)]
