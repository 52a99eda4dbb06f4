# SPDX-License-Identifier: Apache-2.0
"""Reads the primitives of actions, parser states and the deparser of the BMv2 JSON into statements."""

from __future__ import annotations

from collections.abc import Sequence
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
    unwrapped,
)
from gradlane_switch.bmv2_json.externs import ExternReader
from gradlane_switch.bmv2_json.field_lists import FieldLists
from gradlane_switch.bmv2_json.headers import HeaderReader
from gradlane_switch.ir.expressions import Const, Element, Expr, Field, Valid, shape
from gradlane_switch.ir.program import Message
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


class StatementReader:
    """Reads statements, and collects the `messages` that they log. Raises ProgramError."""

    def __init__(self, headers: HeaderReader, scope: Scope, externs: ExternReader, lists: FieldLists) -> None:
        self.messages: list[Message] = []
        self._headers = headers.headers
        self._stacks = headers.stacks
        self._standard = headers.standard
        self._scope = scope
        self._externs = externs
        self._lists = lists

    def read(self, node: Node, scope: Scope) -> Statement:
        """The statement that a primitive stands for."""
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
                return Count(self._find(self._externs.counters, args[0], "counter_array"), self._index(args[1], scope))
            case "execute_meter":
                meter = self._find(self._externs.meters, args[0], "meter_array")
                return ExecuteMeter(meter, self._index(args[1], scope), self._target(args[2], scope))
            case "register_read":
                register = self._find(self._externs.registers, args[1], "register_array")
                return RegisterRead(self._target(args[0], scope), register, self._index(args[2], scope))
            case "register_write":
                register = self._find(self._externs.registers, args[0], "register_array")
                return RegisterWrite(register, self._index(args[1], scope), parse_value(args[2], scope))
            case "add_header" | "remove_header":
                return SetValid(find_picked(args[0], scope), op == "add_header")
            case "assign_header":
                return self._copy_picked(node, find_picked(args[0], scope), find_picked(args[1], scope))
            case "modify_field_with_hash_based_offset":
                return HashTo(
                    self._target(args[0], scope),
                    parse_value(args[1], scope),
                    self._find(self._externs.calculations, args[2], "calculation"),
                    self._index(args[3], scope),
                )
            case "modify_field_rng_uniform":
                return RandomTo(self._target(args[0], scope), self._index(args[1], scope), self._index(args[2], scope))
            case "clone_ingress_pkt_to_egress" | "clone_egress_pkt_to_egress":
                return Clone(self._index(args[0], scope), self._lists.fields(args[1]) if len(args) > 1 else None)
            case "resubmit":
                return Resubmit(self._lists.kept(args[0]))
            case "recirculate":
                return Recirculate(self._lists.kept(args[0]))
            case "truncate":
                return Truncate(self._index(args[0], scope))
            case "generate_digest":
                return Learn(self._lists.digest(args[1]))
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
        inner = unwrapped(node)
        if inner.text("type") != "field":
            raise node.refuse(f"assigning to a value of type {inner.text('type')!r} is not supported")
        found = parse_field(inner, scope)
        if isinstance(found, Valid):
            raise node.refuse("a header's validity can't be assigned")
        return found

    def _destination(self, node: Node, scope: Scope) -> Field | Element:
        """What an assignment changes: a field, or that of a stack's element with a computed index."""
        inner = unwrapped(node)
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
        # The headers of a stack are of one type, so one of each is enough.
        to, of = (item.headers[0] if isinstance(item, Picked) else item for item in (target, source))
        self._require_same_type(node, to, of)
        return CopyHeader(target, source)

    def _require_same_type(self, node: Node, target: int, source: int) -> None:
        shapes = [(*(item.width for item in self._headers[number].fields),) for number in (target, source)]
        variable = [self._headers[number].variable for number in (target, source)]
        if shapes[0] != shapes[1] or variable[0] != variable[1]:
            raise node.refuse("headers of different types can't be assigned to one another")

    def _copy_variable(self, target: Node, source: Node) -> CopyVariable:
        found: list[int] = []
        for node in (target, source):
            header, name = node.sequence("value")
            if (header, name) not in self._scope.variable:
                raise node.refuse(f"{header}.{name} is not a variable-length field")
            found.append(self._scope.variable[header, name])
        octets = [item.octets for number in found if (item := self._headers[number].variable) is not None]
        if octets[0] != octets[1]:
            raise target.refuse("variable-length fields of different types can't be assigned to one another")
        return CopyVariable(found[0], found[1])

    def _copy_union(self, node: Node, target: tuple[int, ...], source: tuple[int, ...]) -> CopyUnion:
        if len(target) != len(source):
            raise node.refuse("header unions of different types can't be assigned to one another")
        for to, of in zip(target, source, strict=True):
            self._require_same_type(node, to, of)
        return CopyUnion(target, source)

    def _copy_stack(self, node: Node, target: int, source: int) -> CopyStack:
        elements = [self._stacks[number].elements for number in (target, source)]
        if len(elements[0]) != len(elements[1]):
            raise node.refuse("header stacks of different types can't be assigned to one another")
        for to, of in zip(*elements, strict=True):
            self._copy_union(node, to, of)
        return CopyStack(target, source)

    def _move_stack(self, node: Node, stack: int, count: int, op: str) -> MoveStack:
        size = len(self._stacks[stack].elements)
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
            return MarkToDrop(self._standard["egress_spec"], self._standard.get("mcast_grp"))
        fields = self._scope.fields
        return MarkToDrop(fields[name, "egress_spec"], fields.get((name, "mcast_grp")))


def _constant(node: Node, scope: Scope) -> int:
    value = parse_value(node, scope)
    if not isinstance(value, Const):
        raise node.refuse("a computed number is not supported here")
    return value.value
