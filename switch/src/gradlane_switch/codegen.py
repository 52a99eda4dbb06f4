# SPDX-License-Identifier: Apache-2.0
"""C for a program. Names of the P4 program never reach it: headers, fields, tables and actions are numbers."""

from __future__ import annotations

from collections.abc import Iterator

from gradlane_switch.c_expressions import (
    expression,
    field_name,
    internet_sum,
    number,
    read_bits,
    truncated,
    valid_name,
    write_fields,
)
from gradlane_switch.errors import ProgramError
from gradlane_switch.expressions import Binary, Choice, Expr, Lookahead, Unary
from gradlane_switch.layout import TableKind, layout_of
from gradlane_switch.program import (
    DROP_PORT,
    Action,
    Advance,
    Assign,
    CopyHeader,
    Count,
    ExecuteMeter,
    Exit,
    Extract,
    HashTo,
    Jump,
    MarkToDrop,
    ParserState,
    Pipeline,
    Program,
    RandomTo,
    RegisterRead,
    RegisterWrite,
    SetValid,
    Statement,
    Table,
    Verify,
)

_HEADROOM = 512
_REPLICATION = 5  # BMv2's PKT_INSTANCE_TYPE_REPLICATION
_STATE = "gl_state *s, headers *h, uint64_t now, uint32_t length"


def generate(program: Program) -> str:
    """The C source of a program, which defines `gl_program`. Raises ProgramError if its headers can't fit."""
    if sum(program.headers[index].octets for index in program.deparser) > _HEADROOM:
        raise ProgramError(f"headers of more than {_HEADROOM} bytes in all are not supported")
    return "\n".join(_Generator(program).source()) + "\n"


class _Generator:
    def __init__(self, program: Program) -> None:
        self.program = program

    def source(self) -> Iterator[str]:
        yield '#include "runtime.h"'
        yield from self.headers()
        yield from self.parser()
        for index, calculation in enumerate(self.program.calculations):
            yield f"GL_INLINE uint64_t c{index}(const headers *h) {{"
            if calculation.algorithm == "csum16":
                yield "uint64_t sum = 0;"
                yield from internet_sum(calculation.inputs)
                yield "return gl_fold(sum) ^ 0xffff;"
            else:
                octets = sum(width for _, width in calculation.inputs) // 8
                yield f"uint8_t b[{octets}];"
                yield from write_fields("b", [(f"({expression(value)})", width) for value, width in calculation.inputs])
                yield f"return gl_{calculation.algorithm}(b, {octets});"
            yield "}"
        for index, action in enumerate(self.program.actions):
            yield from self.action(index, action)
        yield from self.pipeline(self.program.ingress)
        yield from self.pipeline(self.program.egress)
        yield from self.checksums()
        yield from self.deparser()
        yield from self.process()

    def headers(self) -> Iterator[str]:
        yield "typedef struct {"
        for index, header in enumerate(self.program.headers):
            for field in range(len(header.fields)):
                yield f"uint64_t f{index}_{field};"
        for index, header in enumerate(self.program.headers):
            yield f"uint8_t v{index};" if not header.metadata else ""
        yield "} headers;"

    def standard(self, name: str) -> str | None:
        """The field of standard metadata, if the program has it."""
        field = self.program.standard.get(name)
        return None if field is None else field_name(field.header, field.field)

    def set_standard(self, name: str, value: str) -> str:
        field = self.program.standard.get(name)
        if field is None:
            return ""
        return f"{field_name(field.header, field.field)} = ({value}) & {number((1 << field.width) - 1)};"

    # Parser

    def parser(self) -> Iterator[str]:
        yield "static uint32_t parse(headers *h, const uint8_t *data, uint32_t length) {"
        yield "uint32_t at = 0; uint64_t error = 0; const uint8_t *q = data; (void)q;"
        yield f"error = {self.error('NoError')};"
        start = self.program.parser_start
        yield f"goto s{start};" if start is not None else "goto done;"
        for index, state in enumerate(self.program.parser):
            yield f"s{index}:"
            yield from self.parser_state(state)
        yield f"too_short: error = {self.error('PacketTooShort')};"
        yield "done: (void)error;"
        yield self.set_standard("parser_error", "error")
        yield "return at;"
        yield "}"

    def error(self, name: str) -> str:
        return number(self.program.errors.get(name, 0))

    def parser_state(self, state: ParserState) -> Iterator[str]:
        for operation in state.operations:
            match operation:
                case Extract(index):
                    header = self.program.headers[index]
                    yield f"if (length - at < {header.octets}) goto too_short;"
                    for position, field in enumerate(header.fields):
                        yield f"{field_name(index, position)} = {read_bits('q', field.offset, field.width)};"
                    yield f"{valid_name(index)} = 1; at += {header.octets}; q += {header.octets};"
                case Verify(condition, error):
                    yield from _check_lookahead(condition)
                    yield f"if (!({expression(condition)})) {{ error = {expression(error)}; goto done; }}"
                case Advance(distance):
                    yield from _check_lookahead(distance)
                    yield f"{{ uint64_t d = {expression(distance)};"
                    yield f"if (d % 8) {{ error = {self.error('ParserInvalidArgument')}; goto done; }}"
                    yield "if (d / 8 > length - at) goto too_short;"
                    yield "at += (uint32_t)(d / 8); q += d / 8; }"
                case Assign(_, value):
                    yield from _check_lookahead(value)
                    yield self.statement(operation)
                case _:
                    yield self.statement(operation)
        for index, key in enumerate(state.keys):
            yield from _check_lookahead(key)
            yield f"{'{ ' if index == 0 else ''}uint64_t k{index} = {expression(key)};"
        for transition in state.transitions:
            target = "done" if transition.state is None else f"s{transition.state}"
            if transition.cases is None:
                yield f"goto {target};"
                break
            tests = [
                f"(k{index} & {number(mask)}) == {number(value & mask)}"
                for index, (value, mask) in enumerate(transition.cases)
            ]
            yield f"if ({' && '.join(tests) or '1'}) goto {target};"
        else:
            yield f"error = {self.error('NoMatch')}; goto done;"
        if state.keys:
            yield "}"

    # Actions

    def action(self, index: int, action: Action) -> Iterator[str]:
        yield f"GL_INLINE int a{index}({_STATE}, const uint64_t *a) {{"
        yield "(void)s; (void)h; (void)now; (void)length; (void)a;"
        for position, statement in enumerate(action.body):
            yield f"l{position}: {self.statement(statement)}"
        yield f"l{len(action.body)}: return 0;"
        yield "}"

    def statement(self, statement: Statement) -> str:
        match statement:
            case Assign(target, value):
                return f"{field_name(target.header, target.field)} = {truncated(value, target.width)};"
            case MarkToDrop():
                return self.set_standard("egress_spec", str(DROP_PORT)) + self.set_standard("mcast_grp", "0")
            case Count(counter, index):
                return f"gl_count(s, {counter}, {expression(index)}, length);"
            case ExecuteMeter(meter, index, target):
                name = field_name(target.header, target.field)
                return f"{name} = gl_execute_meter(s, {meter}, {expression(index)}, length, now);"
            case RegisterRead(target, register, index):
                name, mask = field_name(target.header, target.field), number((1 << target.width) - 1)
                return f"{name} = gl_register_read(s, {register}, {expression(index)}) & {mask};"
            case RegisterWrite(register, index, value):
                width = self.program.registers[register].width
                return f"gl_register_write(s, {register}, {expression(index)}, {truncated(value, width)});"
            case SetValid(header, valid):
                if not valid:
                    return f"{valid_name(header)} = 0;"
                fields = range(len(self.program.headers[header].fields))
                zero = " ".join(f"{field_name(header, field)} = 0;" for field in fields)
                return f"if (!{valid_name(header)}) {{ {zero} {valid_name(header)} = 1; }}"
            case CopyHeader(target, source):
                fields = range(len(self.program.headers[target].fields))
                copies = " ".join(f"{field_name(target, n)} = {field_name(source, n)};" for n in fields)
                return f"{copies} {valid_name(target)} = {valid_name(source)};"
            case HashTo(target, base, calculation, modulus):
                name, mask = field_name(target.header, target.field), number((1 << target.width) - 1)
                start, span = expression(base), expression(modulus)
                digest = f"(m ? c{calculation}(h) % m : 0)"
                return f"{{ uint64_t m = {span}; {name} = ({start} + {digest}) & {mask}; }}"
            case RandomTo(target, low, high):
                name, mask = field_name(target.header, target.field), number((1 << target.width) - 1)
                return f"{name} = gl_random_between(s, {expression(low)}, {expression(high)}) & {mask};"
            case Jump(destination, None):
                return f"goto l{destination};"
            case Jump(destination, condition):
                assert condition is not None
                return f"if (!({expression(condition)})) goto l{destination};"
            case Exit():
                return "return 1;"

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
                yield f"if ({expression(node.condition)}) {_follow(node.if_true)} else {_follow(node.if_false)}"
            yield "}"
        yield "end: return;"
        yield "}"

    def table(self, index: int, table: Table) -> Iterator[str]:
        if not table.keys and table.const_default and table.default and not table.direct_counter:
            arguments = ", ".join(number(value) for value in table.default.arguments) or "0"
            yield f"static const uint64_t a[] = {{ {arguments} }};"
            yield from self.call(table, table.default.action, "a", "0")
            return
        layout = layout_of(table)
        yield f"gl_table *t = &s->tables[{index}];"
        words = [[] for _ in range(layout.words)]
        for key, place in zip(table.keys, layout.places, strict=True):
            value = expression(key.source)
            if key.mask != (1 << key.width) - 1:
                value = f"({value} & {number(key.mask)})"
            words[place.word].append(f"{value} << {place.shift}" if place.shift else value)
        if table.keys:
            packed = ", ".join(" | ".join(parts) for parts in words)
            yield f"uint64_t k[{layout.stored_words}] = {{ {packed} }};"
        count = layout.stored_words
        if not table.keys:
            yield "gl_entry *e = NULL;"
        elif layout.kind is TableKind.EXACT:
            yield f"gl_entry *e = gl_find(t, k, {count});"
        elif layout.kind is TableKind.LPM:
            assert layout.prefix_field is not None
            yield f"gl_entry *e = gl_find_longest(t, k, {count}, {table.keys[layout.prefix_field].width});"
        else:
            yield f"gl_entry *e = gl_find_first(t, k, {count}, {number(layout.ranges)});"
        yield "int hit = e != NULL; (void)hit;"
        yield "if (!hit) e = t->fallback;"
        if table.direct_counter:
            yield "gl_tally(&e->counter, length);"
        yield "switch (e->action) {"
        for position, action in enumerate(table.actions):
            yield f"case {position}: {{"
            yield from self.call(table, action, "e->arguments", "hit")
            yield "}"
        yield "default:;"
        yield "}"
        yield f"if (hit) {_follow(table.next_hit)} else {_follow(table.next_miss)}" if table.by_hit else "goto end;"

    def call(self, table: Table, action: int, arguments: str, hit: str) -> Iterator[str]:
        yield f"if (a{action}(s, h, now, length, {arguments})) goto end;"
        if table.by_hit:
            yield f"if ({hit}) {_follow(table.next_hit)} else {_follow(table.next_miss)}"
        else:
            yield _follow(table.next_by_action[action])

    # What surrounds the pipelines

    def checksums(self) -> Iterator[str]:
        yield "GL_INLINE void verify_checksums(headers *h) { (void)h;"
        for checksum in self.program.checksums:
            if checksum.verify:
                condition = expression(checksum.condition) if checksum.condition else "1"
                target = field_name(checksum.target.header, checksum.target.field)
                failed = f"({condition}) && c{checksum.calculation}(h) != {target}"
                yield f"if ({failed}) {{ {self.set_standard('checksum_error', '1')} }}"
        yield "}"
        yield "GL_INLINE void update_checksums(headers *h) { (void)h;"
        for checksum in self.program.checksums:
            if checksum.update:
                condition = expression(checksum.condition) if checksum.condition else "1"
                target = field_name(checksum.target.header, checksum.target.field)
                mask = number((1 << checksum.target.width) - 1)
                yield f"if ({condition}) {target} = c{checksum.calculation}(h) & {mask};"
        yield "}"

    def deparser(self) -> Iterator[str]:
        yield "static void deparse(const headers *h, gl_packet *p, uint32_t consumed) {"
        lengths = [f"(h->v{index} ? {self.program.headers[index].octets} : 0)" for index in self.program.deparser]
        yield f"uint32_t size = {' + '.join(lengths) or '0'};"
        yield "uint8_t *q = p->data + consumed - size;"
        yield "p->data = q; p->length += size - consumed;"
        for index in self.program.deparser:
            header = self.program.headers[index]
            yield f"if (h->v{index}) {{"
            fields = [(field_name(index, position), field.width) for position, field in enumerate(header.fields)]
            yield from write_fields("q", fields)
            yield f"q += {header.octets}; }}"
        yield "}"

    def process(self) -> Iterator[str]:
        egress_spec = self.standard("egress_spec")
        yield "static int leave(gl_state *s, headers *h, uint32_t port, uint64_t now, uint32_t length) {"
        yield self.set_standard("egress_port", "port")
        yield self.set_standard("egress_spec", str(DROP_PORT + 1))
        yield self.set_standard("egress_global_timestamp", "now / 1000")
        yield self.set_standard("packet_length", "length")
        yield "egress(s, h, now, length);"
        yield f"if ({egress_spec} == {DROP_PORT}) return 0;"
        yield "update_checksums(h);"
        yield "return 1;"
        yield "}"
        yield "void gl_program(gl_state *s, gl_packet *p, uint64_t now, gl_host *host);"
        yield "void gl_program(gl_state *s, gl_packet *p, uint64_t now, gl_host *host) {"
        yield "headers store, *h = &store; memset(h, 0, sizeof *h);"
        yield "uint32_t length = p->length;"
        yield self.set_standard("ingress_port", "p->port")
        yield self.set_standard("packet_length", "length")
        yield self.set_standard("ingress_global_timestamp", "now / 1000")
        yield "uint32_t consumed = parse(h, p->data, length);"
        yield "verify_checksums(h);"
        yield "ingress(s, h, now, length);"
        priority, group = self.standard("priority"), self.standard("mcast_grp")
        yield f"uint32_t queue = {f'(uint32_t){priority}' if priority else '0'};"
        if group:
            yield f"if ({group}) {{"
            yield f"gl_group *g = s->groups[{group} & 0xffff];"
            yield self.set_standard("instance_type", str(_REPLICATION))
            yield "for (uint32_t i = 0; g && i < g->count; i++) {"
            yield "headers copy = store, *h = &copy;"
            yield self.set_standard("egress_rid", "g->replicas[i].instance")
            yield "uint32_t port = g->replicas[i].port;"
            yield "if (!leave(s, h, port, now, length)) continue;"
            yield "gl_packet *replica = host->copy(host, p, consumed);"
            yield "if (!replica) break;"
            yield "deparse(h, replica, 0);"
            yield "host->emit(host, replica, port, queue, now);"
            yield "}"
            yield "host->discard(host, p, g == NULL);"
            yield "return; }"
        yield f"uint32_t port = (uint32_t){egress_spec};"
        yield f"if (port == {DROP_PORT} || !leave(s, h, port, now, length)) {{ host->discard(host, p, 1); return; }}"
        yield "deparse(h, p, consumed);"
        yield "host->emit(host, p, port, queue, now);"
        yield "}"


def _follow(node: int | None) -> str:
    return "goto end;" if node is None else f"goto n{node};"


def _check_lookahead(expr: Expr) -> Iterator[str]:
    needed = _reach(expr)
    if needed:
        yield f"if ((length - at) * UINT64_C(8) < {needed}) goto too_short;"


def _reach(expr: Expr) -> int:
    """Bits of the packet beyond the parser's position that an expression reads."""
    match expr:
        case Lookahead(offset, width):
            return offset + width
        case Unary(_, operand):
            return _reach(operand)
        case Binary(_, left, right):
            return max(_reach(left), _reach(right))
        case Choice(condition, left, right):
            return max(_reach(condition), _reach(left), _reach(right))
        case _:
            return 0
