# SPDX-License-Identifier: Apache-2.0
"""C for a control flow: the nodes of ingress or egress, which are tables and conditions, and what follows what."""

from __future__ import annotations

from collections.abc import Iterator

from gradlane_switch.codegen.bits import number
from gradlane_switch.codegen.expressions import truncated, truth
from gradlane_switch.codegen.lookup import key_words, lookup
from gradlane_switch.codegen.statements import STATE, store
from gradlane_switch.ir.expressions import words_of
from gradlane_switch.ir.layout import argument_words, layout_of, most_argument_words
from gradlane_switch.ir.program import Program
from gradlane_switch.ir.tables import ControlFlow, Table


def control_flow(program: Program, flow: ControlFlow) -> Iterator[str]:
    """The function of ingress, or of egress."""
    yield f"static void {'ingress' if flow is program.ingress else 'egress'}({STATE}) {{"
    yield "(void)s; (void)h; (void)now; (void)length;"
    yield _follow(flow.start)
    for index, node in enumerate(flow.nodes):
        yield f"n{index}: {{"
        if isinstance(node, Table):
            yield from _table(program, flow.tables[index], node)
        else:
            where = int(flow is program.egress)
            yield f"GL_TRACE(GL_TRACE_BRANCH, {where}, {index}, {truth(node.condition)} != 0);"
            yield f"if ({truth(node.condition)}) {_follow(node.if_true)} else {_follow(node.if_false)}"
        yield "}"
    yield "end: return;"
    yield "}"


def _table(program: Program, index: int, table: Table) -> Iterator[str]:
    if not table.keys and table.const_default and table.default and not table.direct_counter:
        widths = program.actions[table.default.action].params
        arguments = ", ".join(number(word) for word in argument_words(widths, table.default.arguments)) or "0"
        yield f"static const uint64_t a[] = {{ {arguments} }};"
        yield f"GL_TRACE(GL_TRACE_TABLE, {index}); GL_TRACE(GL_TRACE_ENTRY, 0, 0);"
        yield from _call(program, table, table.default.action, "a", "0")
        return
    layout = layout_of(table.keys)
    yield f"gl_table *t = &s->tables[{index}];"
    if table.keys:
        values = [truncated(key.source, key.width) for key in table.keys]
        yield key_words(layout, table.keys, values, [key.mask for key in table.keys])
        yield f"GL_TRACE_WORDS(GL_TRACE_TABLE, k, {layout.words}, {index});"
        yield f"gl_entry *e = {lookup(layout, 't->lookup', most_argument_words(program, table))};"
    else:
        yield f"gl_entry *e = NULL; GL_TRACE(GL_TRACE_TABLE, {index});"
    yield "int hit = e != NULL; (void)hit;"
    yield "GL_TRACE(GL_TRACE_ENTRY, hit, (uintptr_t)e);"
    yield "if (!hit) e = t->fallback;"
    if table.direct_counter:
        yield "gl_tally(&e->counter, length);"
    if table.direct_meter is not None:
        meter = program.direct_meters[table.direct_meter]
        units = "length" if meter.counts_bytes else "1"
        colour = f"gl_meter_run(e->meter, {units}, length, now)"
        yield f"if (hit) {{ {store(meter.target, colour)} }}"
    if table.timeout:
        yield "if (hit) e->last_hit = now;"
    if table.profile is not None:
        selector = program.profiles[table.profile].selector
        chosen = "0" if selector is None else f"e->choice->count > 1 ? c{selector}(s, h, NULL) % e->choice->count : 0"
        # An empty group does nothing, and the packet goes on as after a hit.
        yield f"if (e->choice && e->choice->count) e = e->choice->members[{chosen}];"
    yield "switch (e->action) {"
    for position, action in enumerate(table.actions):
        yield f"case {position}: {{"
        yield from _call(program, table, action, "e->arguments", "hit")
        yield "}"
    yield "default:;"
    yield "}"
    yield (
        f"if (hit) {_follow(table.next_hit)} else {_follow(table.next_miss)}"
        if table.by_hit
        else _follow(table.next_miss)
    )


def _call(program: Program, table: Table, action: int, arguments: str, hit: str) -> Iterator[str]:
    words = sum(words_of(width) for width in program.actions[action].params)
    yield f"GL_TRACE_WORDS(GL_TRACE_ACTION, {arguments}, {words}, {action});"
    yield f"if (a{action}(s, h, now, length, {arguments})) goto end;"
    if table.by_hit:
        yield f"if ({hit}) {_follow(table.next_hit)} else {_follow(table.next_miss)}"
    else:
        yield _follow(table.next_by_action[action])


def _follow(node: int | None) -> str:
    return "goto end;" if node is None else f"goto n{node};"
