# SPDX-License-Identifier: Apache-2.0
"""Reads the BMv2 JSON that p4c emits into a `Program`, and refuses by name what this switch does not support."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from gradlane_switch.bmv2_json.document import Node
from gradlane_switch.bmv2_json.expressions import (
    Scope,
    find_picked,
    find_stack,
    find_union,
    parse_field,
    parse_value,
    require_exact,
)
from gradlane_switch.bmv2_json.externs import ExternReader
from gradlane_switch.bmv2_json.field_lists import PacketLists
from gradlane_switch.bmv2_json.headers import HeaderReader
from gradlane_switch.bmv2_json.parser import ParserReader, load_value_sets, with_keys
from gradlane_switch.bmv2_json.tables import Attached, load_pipeline, successors
from gradlane_switch.errors import ProgramError
from gradlane_switch.ir.expressions import MAX_WIDTH, Const, Element, Expr, Field, Param, Valid, shape, words_of
from gradlane_switch.ir.program import Action, CounterArray, Message, Program, Table
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
    Picked,
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

# Parts of a v1model program whose mere presence means a feature that this switch does not have.
_UNSUPPORTED_PARTS = {
    "extern_instances": "extern instances",
}
# What a deparser may do besides sending headers. Drops and digests come too late there: nothing follows, as on BMv2.
_IN_DEPARSER = (Assert, Assign, HashTo, Learn, Log, MarkToDrop, RandomTo, Truncate)


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
        self.reader = HeaderReader(root)
        self.headers = self.reader.headers
        self.standard = self.reader.standard
        self.scope = self.reader.scope()
        self.messages: list[Message] = []
        self.errors = {str(name): int(value) for name, value in root.sequence("errors")}
        counters = list(root.children("counter_arrays"))
        direct_counters = {item.text("binding") for item in counters if item.flag("is_direct")}
        self.counters = [
            CounterArray(item.text("name"), item.integer("size")) for item in counters if not item.flag("is_direct")
        ]
        self.externs = ExternReader(root, self.scope, self.headers)
        self.lists = PacketLists(root, self.scope)
        self.attached = Attached(
            direct_counters,
            {item.table: index for index, item in enumerate(self.externs.direct_meters)},
            {item.name: index for index, item in enumerate(self.externs.profiles)},
        )

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
                pipelines[name], self.scope, actions, action_indices, self.attached, table_count
            )
            table_count += len(loaded[name].tables)
        self._check_profiles([table for item in loaded.values() for table in item.nodes if isinstance(table, Table)])
        order, body = self._load_deparser()
        value_sets = load_value_sets(self.root)
        start, parser = ParserReader(self.scope, self.headers, value_sets, self._load_statement).parser(self.root)
        for pipeline in loaded.values():
            _refuse_loops(pipeline.name, [successors(node) for node in pipeline.nodes])
        return Program(
            headers=self.headers,
            stacks=self.reader.stacks,
            unions=self.reader.unions,
            value_sets=with_keys(value_sets, parser),
            messages=tuple(self.messages),
            errors=self.errors,
            parser_start=start,
            parser=parser,
            actions=actions,
            ingress=loaded["ingress"],
            egress=loaded["egress"],
            deparser=order,
            deparser_body=body,
            calculations=tuple(self.externs.calculations),
            checksums=self.externs.checksums,
            counters=tuple(self.counters),
            meters=self.externs.meters,
            direct_meters=self.externs.direct_meters,
            profiles=self.externs.profiles,
            registers=self.externs.registers,
            field_lists=self.lists.field_lists,
            digests=self.lists.digests,
            standard=self.standard,
        )

    def _check_profiles(self, tables: list[Table]) -> None:
        actions: dict[int, tuple[int, ...]] = {}
        for table in tables:
            if table.profile is not None and actions.setdefault(table.profile, table.actions) != table.actions:
                name = self.externs.profiles[table.profile].name
                raise ProgramError(f"tables with different actions that share {name} are not supported: {table.name}")

    # Deparser

    def _load_deparser(self) -> tuple[tuple[int, ...], tuple[Statement, ...]]:
        deparsers = list(self.root.children("deparsers"))
        if len(deparsers) != 1:
            raise ProgramError(f"{len(deparsers)} deparsers are not supported: a v1model program has one")
        body: list[Statement] = []
        for item in deparsers[0].children("primitives"):
            statement = self._load_statement(item, self.scope)
            if not isinstance(statement, _IN_DEPARSER):
                raise item.refuse(f"{item.text('op')} in the deparser is not supported")
            body.append(statement)
        return tuple(self.scope.headers[name] for name in deparsers[0].sequence("order")), tuple(body)

    # Actions

    def _load_action(self, node: Node) -> Action:
        params = tuple(item.integer("bitwidth") for item in node.children("runtime_data"))
        places: list[Param] = []
        for width in params:
            if not 0 < width <= MAX_WIDTH:
                raise node.refuse(f"an action parameter of {width} bits is not supported (at most {MAX_WIDTH})")
            places.append(Param(places[-1].word + words_of(places[-1].width) if places else 0, width))
        scope = replace(self.scope, params=tuple(places))
        primitives = list(node.children("primitives"))
        body = tuple(self._load_statement(item, scope) for item in primitives)
        for statement, item in zip(body, primitives, strict=True):
            if isinstance(statement, Jump) and not 0 <= statement.destination <= len(body):
                raise item.refuse(f"a jump to {statement.destination}, in an action of {len(body)} primitives")
        return Action(
            node.text("name"), params, body, tuple(item.text("name") for item in node.children("runtime_data"))
        )

    def _load_statement(self, node: Node, scope: Scope) -> Statement:
        op = node.text("op")
        args = list(node.children("parameters"))
        match op:
            case "assign" | "set":
                return Assign(self._destination(args[0], scope), parse_value(args[1], scope))
            case "assign_VL":
                return self._copy_variable(args[0], args[1])
            case "assign_union":
                return self._copy_union(node, find_union(args[0], scope), find_union(args[1], scope))
            case "assign_header_stack" | "assign_union_stack":
                return self._copy_stack(node, find_stack(args[0], scope), find_stack(args[1], scope))
            case "push" | "pop":
                return self._move_stack(node, find_stack(args[0], scope), _constant(args[1], scope), op)
            case "assert" | "assume":
                condition = require_exact(parse_value(args[0], scope), node, op)
                return Assert(condition, self._message(node, f"{op} failed"))
            case "log_msg":
                return self._log(node, args, scope)
            case "mark_to_drop" | "drop":
                return self._mark_to_drop(args)
            case "count":
                return Count(self._find(self.counters, args[0], "counter_array"), self._index(args[1], scope))
            case "execute_meter":
                meter = self._find(self.externs.meters, args[0], "meter_array")
                return ExecuteMeter(meter, self._index(args[1], scope), self._target(args[2], scope))
            case "register_read":
                register = self._find(self.externs.registers, args[1], "register_array")
                return RegisterRead(self._target(args[0], scope), register, self._index(args[2], scope))
            case "register_write":
                register = self._find(self.externs.registers, args[0], "register_array")
                return RegisterWrite(register, self._index(args[1], scope), parse_value(args[2], scope))
            case "add_header" | "remove_header":
                return SetValid(find_picked(args[0], scope), op == "add_header")
            case "assign_header":
                return self._copy_picked(node, find_picked(args[0], scope), find_picked(args[1], scope))
            case "modify_field_with_hash_based_offset":
                return HashTo(
                    self._target(args[0], scope),
                    parse_value(args[1], scope),
                    self._find(self.externs.calculations, args[2], "calculation"),
                    self._index(args[3], scope),
                )
            case "modify_field_rng_uniform":
                return RandomTo(self._target(args[0], scope), self._index(args[1], scope), self._index(args[2], scope))
            case "clone_ingress_pkt_to_egress" | "clone_egress_pkt_to_egress":
                return Clone(self._index(args[0], scope), self.lists.fields(args[1]) if len(args) > 1 else None)
            case "resubmit":
                return Resubmit(self.lists.kept(args[0]))
            case "recirculate":
                return Recirculate(self.lists.kept(args[0]))
            case "truncate":
                return Truncate(self._index(args[0], scope))
            case "generate_digest":
                return Learn(self.lists.digest(args[1]))
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

    def _destination(self, node: Node, scope: Scope) -> Field | Element:
        """What an assignment changes: a field, or that of a stack's element with a computed index."""
        inner = node
        while inner.text("type") == "expression" and inner.child("value").has("type"):
            inner = inner.child("value")
        if inner.text("type") in ("expression", "stack_field"):
            found = parse_value(inner, scope)
            if not isinstance(found, Element):
                raise node.refuse("assigning to an expression is not supported")
            return found
        return self._target(node, scope)

    def _index(self, node: Node, scope: Scope) -> Expr:
        return require_exact(parse_value(node, scope), node, "an index")

    def _find(self, arrays: Sequence[Any], node: Node, kind: str) -> int:
        if node.text("type") != kind:
            raise node.refuse(f"a {kind} is wanted, not a {node.text('type')}")
        name = node.text("value")
        for index, item in enumerate(arrays):
            if item.name == name:
                return index
        raise node.refuse(f"{kind} {name} does not exist or is direct")

    def _copy_picked(self, node: Node, target: int | Picked, source: int | Picked) -> CopyHeader:
        # The headers of a stack are of one type, so one of each tells.
        to, of = (item.headers[0] if isinstance(item, Picked) else item for item in (target, source))
        self._copy_header(node, to, of)
        return CopyHeader(target, source)

    def _copy_header(self, node: Node, target: int, source: int) -> CopyHeader:
        shapes = [(*(item.width for item in self.headers[number].fields),) for number in (target, source)]
        variable = [self.headers[number].variable for number in (target, source)]
        if shapes[0] != shapes[1] or variable[0] != variable[1]:
            raise node.refuse("headers of different types can't be assigned to one another")
        return CopyHeader(target, source)

    def _copy_variable(self, target: Node, source: Node) -> CopyVariable:
        found: list[int] = []
        for node in (target, source):
            header, name = node.sequence("value")
            if (header, name) not in self.scope.variable:
                raise node.refuse(f"{header}.{name} is not a variable-length field")
            found.append(self.scope.variable[header, name])
        octets = [item.octets for number in found if (item := self.headers[number].variable) is not None]
        if octets[0] != octets[1]:
            raise target.refuse("variable-length fields of different types can't be assigned to one another")
        return CopyVariable(found[0], found[1])

    def _copy_union(self, node: Node, target: tuple[int, ...], source: tuple[int, ...]) -> CopyUnion:
        if len(target) != len(source):
            raise node.refuse("header unions of different types can't be assigned to one another")
        for to, of in zip(target, source, strict=True):
            self._copy_header(node, to, of)
        return CopyUnion(target, source)

    def _copy_stack(self, node: Node, target: int, source: int) -> CopyStack:
        elements = [self.reader.stacks[number].elements for number in (target, source)]
        if len(elements[0]) != len(elements[1]):
            raise node.refuse("header stacks of different types can't be assigned to one another")
        for to, of in zip(*elements, strict=True):
            self._copy_union(node, to, of)
        return CopyStack(target, source)

    def _move_stack(self, node: Node, stack: int, count: int, op: str) -> MoveStack:
        size = len(self.reader.stacks[stack].elements)
        distance = min(max(count, 0), size)
        return MoveStack(stack, distance if op == "push" else -distance)

    def _message(self, node: Node, text: str) -> int:
        self.messages.append(Message(text, node.source))
        return len(self.messages) - 1

    def _log(self, node: Node, args: list[Node], scope: Scope) -> Log:
        values: list[Expr] = []
        kinds: list[tuple[int, bool]] = []
        # p4c writes a message without values with an empty object for their list.
        for item in args[1].children("value") if args[1:] and args[1].raw("value") else ():
            value = require_exact(parse_value(item, scope), node, "a message")
            known = shape(value)
            values.append(value)
            kinds.append((logged_words(value), known is not None and known.signed))
        text = args[0].text("value")
        if text.count("{}") != len(values):
            raise node.refuse(f"{text.count('{}')} places for {len(values)} values in log_msg")
        self.messages.append(Message(text, node.source, tuple(kinds)))
        return Log(len(self.messages) - 1, tuple(values))

    def _mark_to_drop(self, args: list[Node]) -> MarkToDrop:
        """`drop` of BMv2's own, and mark_to_drop of the standard metadata or a variable of its type."""
        name = args[0].text("value") if args else "standard_metadata"
        if name == "standard_metadata":
            return MarkToDrop(self.standard["egress_spec"], self.standard.get("mcast_grp"))
        fields = self.scope.fields
        return MarkToDrop(fields[name, "egress_spec"], fields.get((name, "mcast_grp")))


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


def _constant(node: Node, scope: Scope) -> int:
    value = parse_value(node, scope)
    if not isinstance(value, Const):
        raise node.refuse("a computed number is not supported here")
    return value.value
