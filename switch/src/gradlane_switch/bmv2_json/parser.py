# SPDX-License-Identifier: Apache-2.0
"""Reads the parser of the BMv2 JSON."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from gradlane_switch.bmv2_json.document import Node
from gradlane_switch.bmv2_json.expressions import Scope, find_stack, hex_value, parse_value, require_exact
from gradlane_switch.errors import ProgramError
from gradlane_switch.ir.expressions import MAX_WIDTH, Const, Element, Expr, Field, Lookahead, Valid
from gradlane_switch.ir.headers import Header
from gradlane_switch.ir.parser import (
    Advance,
    Extract,
    ExtractNext,
    ParserOperation,
    ParserState,
    Transition,
    ValueSet,
    Verify,
)
from gradlane_switch.ir.statements import (
    Assert,
    Assign,
    CopyHeader,
    CopyStack,
    CopyUnion,
    CopyVariable,
    Log,
    MoveStack,
    SetValid,
    Statement,
)
from gradlane_switch.ir.tables import KeyPart, MatchKind

# Primitives that mean the same in a parser as in an action.
_STATEMENTS = (Assert, Assign, CopyHeader, CopyStack, CopyUnion, CopyVariable, Log, MoveStack, SetValid)


@dataclass(frozen=True)
class ParserReader:
    """Reads parser states. `statement` reads a primitive. Methods raise ProgramError."""

    scope: Scope
    headers: tuple[Header, ...]
    value_sets: tuple[ValueSet, ...]
    statement: Callable[[Node, Scope], Statement]

    def parser(self, root: Node) -> tuple[int | None, tuple[ParserState, ...]]:
        """The first state, and all of them."""
        parsers = list(root.children("parsers"))
        if len(parsers) != 1:
            raise ProgramError(f"{len(parsers)} parsers are not supported: a v1model program has one")
        states = list(parsers[0].children("parse_states"))
        indices = {item.text("name"): index for index, item in enumerate(states)}
        start = parsers[0].optional_text("init_state")
        return (indices[start] if start else None), tuple(self._state(item, indices) for item in states)

    def _state(self, state: Node, indices: dict[str, int]) -> ParserState:
        keys: list[Expr] = []
        widths: list[int] = []
        for item in state.children("transition_key"):
            key = parse_value(item, self.scope)
            if not isinstance(key, Field | Element | Lookahead | Valid):
                raise item.refuse("a select on what is neither a field nor a lookahead is not supported")
            keys.append(key)
            widths.append(1 if isinstance(key, Valid) else key.width)
        cases = [self._transition(item, indices, widths) for item in state.children("transitions")]
        # BMv2 looks at all other cases first, and of several defaults the last one counts.
        chosen = [case for case in cases if case is not None and not _is_default(case)]
        chosen += [case for case in cases if case is not None and _is_default(case)][-1:]
        operations = tuple(self._operation(item) for item in state.children("parser_ops"))
        return ParserState(state.text("name"), operations, tuple(keys), tuple(widths), tuple(chosen))

    def _operation(self, item: Node) -> ParserOperation:
        op = item.text("op")
        if op == "verify" and isinstance(item.sequence("parameters")[1], int):
            condition = require_exact(parse_value(next(item.children("parameters")), self.scope), item, "verify")
            return Verify(condition, Const(item.sequence("parameters")[1]))
        if op == "shift":
            return Advance(Const(8 * item.sequence("parameters")[0]))
        args = list(item.children("parameters"))
        match op:
            case "extract" | "extract_VL":
                return self._extract(item, op == "extract_VL", args)
            case "set":
                return self.statement(item, self.scope)
            case "verify":
                condition = require_exact(parse_value(args[0], self.scope), item, "verify")
                return Verify(condition, parse_value(args[1], self.scope))
            case "advance":
                return Advance(require_exact(parse_value(args[0], self.scope), item, "advance"))
            case "primitive":
                inner = self.statement(args[0], self.scope)
                if not isinstance(inner, _STATEMENTS):
                    raise item.refuse(f"{args[0].text('op')} is not supported in a parser")
                return inner
            case _:
                raise item.refuse(f"parser operation {op!r} is not supported")

    def _extract(self, item: Node, variable: bool, args: list[Node]) -> Extract | ExtractNext:
        kind = args[0].text("type")
        length = require_exact(parse_value(args[1], self.scope), item, "extract") if variable else None
        match kind:
            case "regular":
                header = self.scope.headers[args[0].text("value")]
                result, like = Extract(header, length), header
            case "stack":
                name = args[0].raw("value")
                stack = find_stack(Node({"type": "header_stack", "value": name}, item.path, item.source), self.scope)
                result, like = ExtractNext(stack, 0, length), self.scope.stack_list[stack].elements[0][0]
            case "union_stack":
                name, member = args[0].sequence("value")
                stack = find_stack(Node({"type": "header_stack", "value": name}, item.path, item.source), self.scope)
                found = self.scope.stack_list[stack]
                if found.names is None or member not in found.names:
                    raise item.refuse(f"{name} has no header {member}")
                column = found.names.index(member)
                result, like = ExtractNext(stack, column, length), found.elements[0][column]
            case _:
                raise item.refuse(f"extracting into a {kind} is not supported")
        if (self.headers[like].variable is not None) != variable:
            raise item.refuse("a length is needed for a header with a variable-length field, and for no other")
        return result

    def _transition(self, item: Node, indices: dict[str, int], widths: list[int]) -> Transition | None:
        """None for a case that nothing can match."""
        next_state = item.optional_text("next_state")
        state = None if next_state is None else indices[next_state]
        kind = item.optional_text("type") or ("default" if item.raw("value") in (None, "default") else "hexstr")
        if kind == "default":
            return Transition(None, state)
        if kind == "parse_vset":
            return Transition(None, state, self._value_set(item, widths))
        if kind != "hexstr":
            raise item.refuse(f"select cases of type {kind!r} are not supported")
        octets = sum((width + 7) // 8 for width in widths)
        value = hex_value(item.text("value"), item)
        mask = hex_value(item.text("mask"), item) if item.has("mask") else (1 << (8 * octets)) - 1
        cases: list[tuple[int, int]] = []
        rest = 8 * octets
        for width in widths:
            size = 8 * ((width + 7) // 8)
            rest -= size
            low_bits = (1 << width) - 1
            if (value & mask) >> rest & ((1 << size) - 1) & ~low_bits:
                return None  # BMv2 compares whole bytes, and those of a key have zeros in front of it.
            cases.append(((value >> rest) & low_bits, (mask >> rest) & low_bits))
        return Transition(tuple(cases), state)

    def _value_set(self, item: Node, widths: list[int]) -> int:
        name = item.text("value")
        found = next((index for index, known in enumerate(self.value_sets) if known.name == name), None)
        if found is None:
            raise item.refuse(f"value set {name} does not exist")
        if item.has("mask"):
            raise item.refuse(f"a mask on a value set is not supported: {name}")
        if sum(widths) != self.value_sets[found].width:
            raise item.refuse(f"the select's {sum(widths)} bits do not match the value set {name}")
        return found


def _is_default(transition: Transition) -> bool:
    return transition.cases is None and transition.value_set is None


def load_value_sets(root: Node) -> tuple[ValueSet, ...]:
    """The parser value sets of a program. Raises ProgramError."""
    result: list[ValueSet] = []
    for item in root.children("parse_vsets"):
        width = item.integer("compressed_bitwidth")
        if not 0 < width <= MAX_WIDTH:
            raise item.refuse(f"a value set of {width} bits is not supported: {item.text('name')}")
        size = item.integer("max_size") if item.has("max_size") else 1024
        result.append(ValueSet(item.text("name"), width, size))
    return tuple(result)


def with_keys(value_sets: tuple[ValueSet, ...], states: tuple[ParserState, ...]) -> tuple[ValueSet, ...]:
    """The value sets with the keys of the selects that use them. Raises ProgramError where these differ."""
    keys: dict[int, tuple[KeyPart, ...]] = {}
    for state in states:
        own = tuple(KeyPart(MatchKind.EXACT, width) for width in state.widths)
        for transition in state.transitions:
            index = transition.value_set
            if index is not None and keys.setdefault(index, own) != own:
                raise ProgramError(f"selects of different keys use the value set {value_sets[index].name}")
    return tuple(replace(item, keys=keys.get(index, ())) for index, item in enumerate(value_sets))
