# SPDX-License-Identifier: Apache-2.0
"""Reads the BMv2 JSON that p4c emits into a `Program`, and refuses by name what this switch does not support."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from gradlane_switch.document import Node
from gradlane_switch.errors import ProgramError
from gradlane_switch.expressions import (
    MAX_WIDTH,
    Const,
    Expr,
    Field,
    Scope,
    Valid,
    find_field,
    find_header,
    hex_value,
    parse_field,
    parse_value,
    require_exact,
)
from gradlane_switch.program import (
    Action,
    Advance,
    Assign,
    Calculation,
    Checksum,
    CopyHeader,
    Count,
    CounterArray,
    ExecuteMeter,
    Exit,
    Extract,
    FieldDef,
    HashTo,
    Header,
    Jump,
    MarkToDrop,
    MeterArray,
    ParserOperation,
    ParserState,
    Program,
    RandomTo,
    RegisterArray,
    RegisterRead,
    RegisterWrite,
    SetValid,
    Statement,
    Transition,
    Verify,
)
from gradlane_switch.table_loader import load_pipeline, successors

# Parts of a v1model program whose mere presence means a feature that this switch does not have.
_UNSUPPORTED_PARTS = {
    "header_stacks": "header stacks",
    "header_unions": "header unions",
    "header_union_stacks": "header union stacks",
    "parse_vsets": "parser value sets",
    "learn_lists": "digests",
    "extern_instances": "extern instances",
}
_QUEUE_METADATA = ("enq_timestamp", "enq_qdepth", "deq_timedelta", "deq_qdepth", "qid")
_ALGORITHMS = ("csum16", "crc16", "crc32")


def load(text: str | bytes) -> Program:
    """The program in a BMv2 JSON document. Raises ProgramError naming what is malformed or unsupported."""
    try:
        value: Any = json.loads(text)
    except ValueError as error:
        raise ProgramError(f"the program is not JSON: {error}") from None
    root = Node(value, "program")
    version = root.child("__meta__").sequence("version")
    if not version or version[0] != 2:
        raise ProgramError(f"BMv2 JSON version {version} is not supported: 2.x is")
    for key, feature in _UNSUPPORTED_PARTS.items():
        for part in root.children(key):
            raise part.refuse(f"{feature} are not supported: {part.optional_text('name') or key}")
    try:
        return _Loader(root).load()
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise ProgramError(f"the program is not well-formed BMv2 JSON: {error!r}") from error


class _Loader:
    def __init__(self, root: Node) -> None:
        self.root = root
        self.headers = _load_headers(root)
        fields = {
            (header.name, item.name): Field(number, position, item.width)
            for number, header in enumerate(self.headers)
            for position, item in enumerate(header.fields)
        }
        self.standard = _load_standard_metadata(root, fields)
        self.scope = Scope(
            fields,
            {header.name: number for number, header in enumerate(self.headers)},
            withheld=frozenset(self.standard[name] for name in _QUEUE_METADATA if name in self.standard),
        )
        self.errors = {str(name): int(value) for name, value in root.sequence("errors")}
        counters = list(root.children("counter_arrays"))
        self.direct_counters = {item.text("binding") for item in counters if item.flag("is_direct")}
        self.counters = [
            CounterArray(item.text("name"), item.integer("size")) for item in counters if not item.flag("is_direct")
        ]
        self.meters = [_load_meter(item) for item in root.children("meter_arrays")]
        self.registers = [_load_register(item) for item in root.children("register_arrays")]
        self.calculations = [self._load_calculation(item) for item in root.children("calculations")]

    def load(self) -> Program:
        action_nodes = list(self.root.children("actions"))
        action_indices = {item.integer("id"): index for index, item in enumerate(action_nodes)}
        actions = tuple(self._load_action(item) for item in action_nodes)
        pipelines = {item.text("name"): item for item in self.root.children("pipelines")}
        table_count = 0
        loaded = {}
        for name in ("ingress", "egress"):
            if name not in pipelines:
                raise ProgramError(f"the program has no pipeline {name!r}: is it a v1model program?")
            loaded[name] = load_pipeline(
                pipelines[name], self.scope, actions, action_indices, self.direct_counters, table_count
            )
            table_count += len(loaded[name].tables)
        start, parser = self._load_parser()
        _refuse_loops("parser", [[item.state for item in state.transitions] for state in parser])
        for pipeline in loaded.values():
            _refuse_loops(pipeline.name, [successors(node) for node in pipeline.nodes])
        return Program(
            headers=self.headers,
            errors=self.errors,
            parser_start=start,
            parser=parser,
            actions=actions,
            ingress=loaded["ingress"],
            egress=loaded["egress"],
            deparser=self._load_deparser(),
            calculations=tuple(self.calculations),
            checksums=tuple(self._load_checksum(item) for item in self.root.children("checksums")),
            counters=tuple(self.counters),
            meters=tuple(self.meters),
            registers=tuple(self.registers),
            standard=self.standard,
        )

    # Parser and deparser

    def _load_parser(self) -> tuple[int | None, tuple[ParserState, ...]]:
        parsers = list(self.root.children("parsers"))
        if len(parsers) != 1:
            raise ProgramError(f"{len(parsers)} parsers are not supported: a v1model program has one")
        states = list(parsers[0].children("parse_states"))
        indices = {item.text("name"): index for index, item in enumerate(states)}
        start = parsers[0].optional_text("init_state")
        return (indices[start] if start else None), tuple(self._load_state(item, indices) for item in states)

    def _load_state(self, state: Node, indices: dict[str, int]) -> ParserState:
        keys: list[Expr] = []
        widths: list[int] = []
        for item in state.children("transition_key"):
            key = parse_value(item, self.scope)
            keys.append(require_exact(key, item, "a select"))
            widths.append(_width(key, item))
        transitions = tuple(self._load_transition(item, indices, widths) for item in state.children("transitions"))
        return ParserState(tuple(self._load_parser_ops(state)), tuple(keys), transitions)

    def _load_parser_ops(self, state: Node) -> list[ParserOperation]:
        operations: list[ParserOperation] = []
        for item in state.children("parser_ops"):
            op = item.text("op")
            args = list(item.children("parameters"))
            if op == "extract":
                if args[0].text("type") != "regular":
                    raise item.refuse(f"extracting into a {args[0].text('type')} is not supported")
                operations.append(Extract(self.scope.headers[args[0].text("value")]))
            elif op == "set":
                operations.append(Assign(self._target(args[0], self.scope), parse_value(args[1], self.scope)))
            elif op == "verify":
                condition = require_exact(parse_value(args[0], self.scope), item, "verify")
                operations.append(Verify(condition, parse_value(args[1], self.scope)))
            elif op == "advance":
                operations.append(Advance(require_exact(parse_value(args[0], self.scope), item, "advance")))
            elif op == "primitive":
                inner = self._load_statement(args[0], self.scope)
                if not isinstance(inner, Assign | SetValid | CopyHeader):
                    raise item.refuse(f"{args[0].text('op')} is not supported in a parser")
                operations.append(inner)
            else:
                raise item.refuse(f"parser operation {op!r} is not supported")
        return operations

    def _load_transition(self, item: Node, indices: dict[str, int], widths: list[int]) -> Transition:
        next_state = item.optional_text("next_state")
        state = None if next_state is None else indices[next_state]
        kind = item.optional_text("type") or ("default" if item.raw("value") in (None, "default") else "hexstr")
        if kind == "default":
            return Transition(None, state)
        if kind != "hexstr":
            raise item.refuse(f"select cases of type {kind!r} are not supported")
        octets = sum((width + 7) // 8 for width in widths)
        value = hex_value(item.text("value"), item)
        mask = hex_value(item.text("mask"), item) if item.has("mask") else (1 << (8 * octets)) - 1
        cases: list[tuple[int, int]] = []
        rest = 8 * octets
        for width in widths:
            rest -= 8 * ((width + 7) // 8)
            low_bits = (1 << width) - 1
            cases.append(((value >> rest) & low_bits, (mask >> rest) & low_bits))
        return Transition(tuple(cases), state)

    def _load_deparser(self) -> tuple[int, ...]:
        deparsers = list(self.root.children("deparsers"))
        if len(deparsers) != 1:
            raise ProgramError(f"{len(deparsers)} deparsers are not supported: a v1model program has one")
        for item in deparsers[0].children("primitives"):
            raise item.refuse(f"{item.text('op')} in the deparser is not supported")
        return tuple(self.scope.headers[name] for name in deparsers[0].sequence("order"))

    # Actions

    def _load_action(self, node: Node) -> Action:
        params = tuple(item.integer("bitwidth") for item in node.children("runtime_data"))
        for width in params:
            if width > MAX_WIDTH:
                raise node.refuse(f"an action parameter of {width} bits is not supported (at most {MAX_WIDTH})")
        scope = replace(self.scope, params=params)
        primitives = list(node.children("primitives"))
        body = tuple(self._load_statement(item, scope) for item in primitives)
        for position, (statement, item) in enumerate(zip(body, primitives, strict=True)):
            if isinstance(statement, Jump) and not position < statement.destination <= len(body):
                raise item.refuse("loops in actions are not supported")
        return Action(node.text("name"), params, body)

    def _load_statement(self, node: Node, scope: Scope) -> Statement:
        op = node.text("op")
        args = list(node.children("parameters"))
        match op:
            case "assign":
                return Assign(self._target(args[0], scope), parse_value(args[1], scope))
            case "mark_to_drop" | "drop":
                return MarkToDrop()
            case "count":
                return Count(self._find(self.counters, args[0], "counter_array"), self._index(args[1], scope))
            case "execute_meter":
                meter = self._find(self.meters, args[0], "meter_array")
                return ExecuteMeter(meter, self._index(args[1], scope), self._target(args[2], scope))
            case "register_read":
                register = self._find(self.registers, args[1], "register_array")
                return RegisterRead(self._target(args[0], scope), register, self._index(args[2], scope))
            case "register_write":
                register = self._find(self.registers, args[0], "register_array")
                return RegisterWrite(register, self._index(args[1], scope), parse_value(args[2], scope))
            case "add_header" | "remove_header":
                return SetValid(find_header(args[0], scope), op == "add_header")
            case "assign_header":
                return self._copy_header(node, find_header(args[0], scope), find_header(args[1], scope))
            case "modify_field_with_hash_based_offset":
                return HashTo(
                    self._target(args[0], scope),
                    parse_value(args[1], scope),
                    self._find(self.calculations, args[2], "calculation"),
                    self._index(args[3], scope),
                )
            case "modify_field_rng_uniform":
                return RandomTo(self._target(args[0], scope), self._index(args[1], scope), self._index(args[2], scope))
            case "_jump":
                return Jump(_constant(args[0], scope))
            case "_jump_if_zero":
                condition = require_exact(parse_value(args[0], scope), node, "a jump's condition")
                return Jump(_constant(args[1], scope), condition)
            case "exit":
                return Exit()
            case _:
                raise node.refuse(f"primitive {op!r} is not supported")

    def _target(self, node: Node, scope: Scope) -> Field:
        inner = node
        while inner.text("type") == "expression":
            inner = inner.child("value")
        if inner.text("type") != "field":
            raise node.refuse(f"assigning to a {inner.text('type')} is not supported")
        found = parse_field(inner, scope)
        if isinstance(found, Valid):
            raise node.refuse("a header's validity can't be assigned")
        return found

    def _index(self, node: Node, scope: Scope) -> Expr:
        return require_exact(parse_value(node, scope), node, "an index")

    def _find(self, arrays: list[Any], node: Node, kind: str) -> int:
        if node.text("type") != kind:
            raise node.refuse(f"a {kind} is wanted, not a {node.text('type')}")
        name = node.text("value")
        for index, item in enumerate(arrays):
            if item.name == name:
                return index
        raise node.refuse(f"{kind} {name} does not exist or is direct")

    def _copy_header(self, node: Node, target: int, source: int) -> CopyHeader:
        shapes = [[item.width for item in self.headers[number].fields] for number in (target, source)]
        if shapes[0] != shapes[1]:
            raise node.refuse("headers of different types can't be assigned to one another")
        return CopyHeader(target, source)

    # Checksums

    def _load_calculation(self, node: Node) -> Calculation:
        algorithm = node.text("algo")
        if algorithm not in _ALGORITHMS:
            raise node.refuse(f"hash algorithm {algorithm!r} is not supported: {', '.join(_ALGORITHMS)} are")
        inputs: list[tuple[Expr, int]] = []
        for item in node.children("input"):
            kind = item.text("type")
            if kind == "hexstr":
                inputs.append((parse_value(item, self.scope), item.integer("bitwidth")))
            elif kind == "field":
                value = parse_value(item, self.scope)
                inputs.append((value, _width(value, item)))
            else:
                raise item.refuse(f"{kind} as a checksum's input is not supported")
        if sum(width for _, width in inputs) % 8:
            raise node.refuse("a checksum's input that is not a whole number of bytes is not supported")
        return Calculation(node.text("name"), algorithm, tuple(inputs))

    def _load_checksum(self, node: Node) -> Checksum:
        if node.text("type") != "generic":
            raise node.refuse(f"checksums of type {node.text('type')!r} are not supported")
        target = find_field(node.sequence("target"), node, self.scope)
        names = [item.name for item in self.calculations]
        calculation = names.index(node.text("calculation"))
        if isinstance(target, Valid) or self.calculations[calculation].algorithm != "csum16":
            raise node.refuse(f"a checksum by {self.calculations[calculation].algorithm} is not supported: csum16 is")
        condition = None
        if node.has("if_cond"):
            condition = require_exact(parse_value(node.child("if_cond"), self.scope), node, "a checksum's condition")
        verify = node.flag("verify") if node.has("verify") else True
        update = node.flag("update") if node.has("update") else True
        return Checksum(target, calculation, verify, update, condition)


def _refuse_loops(where: str, graph: list[list[int | None]]) -> None:
    """A packet must come to an end. Raises ProgramError if the graph, successors by node, has a cycle."""
    waiting = [0] * len(graph)
    for targets in graph:
        for target in targets:
            if target is not None:
                waiting[target] += 1
    ready = [node for node, count in enumerate(waiting) if count == 0]
    for node in ready:
        for target in graph[node]:
            if target is not None:
                waiting[target] -= 1
                if waiting[target] == 0:
                    ready.append(target)
    if len(ready) < len(graph):
        raise ProgramError(f"loops in the {where} are not supported")


def _load_headers(root: Node) -> tuple[Header, ...]:
    types: dict[str, Node] = {item.text("name"): item for item in root.children("header_types")}
    headers: list[Header] = []
    for item in root.children("headers"):
        name, metadata = item.text("name"), item.flag("metadata")
        fields: list[FieldDef] = []
        offset = 0
        kind = types[item.text("header_type")]
        for field_name, width, *signed in kind.sequence("fields"):
            if width == "*":
                raise kind.refuse(f"variable-length fields are not supported: {name}.{field_name}")
            if width > MAX_WIDTH:
                raise kind.refuse(
                    f"fields of more than {MAX_WIDTH} bits are not supported: {name}.{field_name} ({width} bits)"
                )
            if signed and signed[0]:
                raise kind.refuse(f"signed fields are not supported: {name}.{field_name}")
            fields.append(FieldDef(field_name, width, offset))
            offset += width
        if not metadata and offset % 8:
            raise kind.refuse(f"header {name} has {offset} bits: a whole number of bytes is needed")
        headers.append(Header(name, metadata, tuple(fields)))
    return tuple(headers)


def _load_standard_metadata(root: Node, fields: dict[tuple[str, str], Field]) -> dict[str, Field]:
    standard = {name: found for (header, name), found in fields.items() if header == "standard_metadata"}
    for alias, (header, name) in root.sequence("field_aliases"):
        standard[alias.rpartition(".")[2]] = fields[header, name]
    for needed in ("ingress_port", "egress_spec", "egress_port"):
        if needed not in standard:
            raise ProgramError(f"the program has no standard_metadata.{needed}: is it a v1model program?")
    return standard


def _load_meter(node: Node) -> MeterArray:
    if node.flag("is_direct"):
        raise node.refuse(f"direct meters are not supported: {node.text('name')}")
    if node.integer("rate_count") != 2:
        raise node.refuse(f"meters of {node.integer('rate_count')} rates are not supported: two-rate meters are")
    return MeterArray(node.text("name"), node.integer("size"), node.text("type") == "bytes")


def _load_register(node: Node) -> RegisterArray:
    width = node.integer("bitwidth")
    if width > MAX_WIDTH:
        raise node.refuse(f"registers of {width} bits are not supported (at most {MAX_WIDTH}): {node.text('name')}")
    return RegisterArray(node.text("name"), node.integer("size"), width)


def _constant(node: Node, scope: Scope) -> int:
    value = parse_value(node, scope)
    if not isinstance(value, Const):
        raise node.refuse("a jump to a computed place is not supported")
    return value.value


def _width(value: Expr, node: Node) -> int:
    width = 1 if isinstance(value, Valid) else getattr(value, "width", None)
    if width is None:
        raise node.refuse("a field or a lookahead is wanted here")
    return width
