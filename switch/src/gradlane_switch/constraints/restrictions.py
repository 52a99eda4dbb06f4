# SPDX-License-Identifier: Apache-2.0
"""Constraints on the match fields of a table or the parameters of an action, checked against their types, as functions.

Numbers in a constraint have no width: beside a value of W bits they are taken modulo 2^W, so that -1 is all ones. A
field that is not exact, named without a part, equals a number if it matches that number alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import eq, ge, gt, le, lt, ne
from typing import NamedTuple

from gradlane_switch.constraints.syntax import (
    Attribute,
    Binary,
    ConstraintError,
    Expression,
    Key,
    Literal,
    Unary,
    parse,
)
from gradlane_switch.ir.tables import FieldKey, MatchKind

Given = tuple[Sequence[FieldKey], int]
"""What an entry or an action has: a value for each field or parameter, in order, and the priority."""

_Value = int | tuple[int, int]
_Function = Callable[[Given], _Value]

_COMPARE: dict[str, Callable[[_Value, _Value], bool]] = {"==": eq, "!=": ne, "<": lt, "<=": le, ">": gt, ">=": ge}
_BOOL, _INT, _BITS = "bool", "int", "bits"
# By match kind, the parts and where each is in a FieldKey.
_PARTS: dict[MatchKind, tuple[str, ...]] = {
    MatchKind.EXACT: ("value",),
    MatchKind.TERNARY: ("value", "mask"),
    MatchKind.OPTIONAL: ("value", "mask"),
    MatchKind.LPM: ("value", "prefix_length"),
    MatchKind.RANGE: ("low", "high"),
}


@dataclass(frozen=True)
class Field:
    """A match field or a parameter (which is exact), as constraints know it."""

    name: str
    kind: MatchKind
    width: int

    def show(self, given: FieldKey) -> str:
        """What it was given, as a person would write it."""
        value, operand = given.value, given.operand
        number = "{:d}" if self.width <= 16 else "{:#x}"
        match self.kind:
            case MatchKind.EXACT:
                return number.format(value)
            case MatchKind.LPM:
                return f"{value:#x}/{operand}"
            case MatchKind.RANGE:
                return f"{value}..{operand}"
            case _:
                return f"{value:#x} &&& {operand:#x}"


@dataclass(frozen=True)
class Restriction:
    """One constraint: how it is written, whether it holds, and the positions of the fields that it looks at."""

    text: str
    holds: Callable[[Given], bool]
    fields: tuple[int, ...]
    uses_priority: bool


def parse_restrictions(text: str, fields: Sequence[Field]) -> list[Restriction]:
    """The constraints in the text of an annotation. Raises ConstraintError."""
    return [_restriction(clause.text, clause.expression, fields) for clause in parse(text)]


@dataclass(frozen=True)
class Restrictions:
    """The constraints on the fields of a table, or on the parameters of an action."""

    fields: tuple[Field, ...] = ()
    constraints: tuple[Restriction, ...] = ()

    def violation(self, values: Sequence[FieldKey], priority: int = 0) -> str:
        """Which constraint does not hold and for what; empty if all do."""
        for it in self.constraints:
            if not it.holds((values, priority)):
                shown = [f"{self.fields[n].name} = {self.fields[n].show(values[n])}" for n in it.fields]
                if it.uses_priority:
                    shown.append(f"priority = {priority}")
                return f'"{it.text}" does not hold' + (f" for {', '.join(shown)}" if shown else "")
        return ""


class _Type(NamedTuple):
    """`kind`: bool, int (without a width), bits, or a match kind's name (a field that is not exact)."""

    kind: str
    width: int = 0

    def __str__(self) -> str:
        return f"{self.kind}<{self.width}>" if self.width else self.kind


def _restriction(text: str, expression: Expression, fields: Sequence[Field]) -> Restriction:
    checker = _Checker(fields)
    kind, function = checker.check(expression)
    if kind.kind != _BOOL:
        raise ConstraintError(f"{text!r} is neither true nor false, but a {kind}")
    return Restriction(text, lambda given: bool(function(given)), tuple(sorted(checker.used)), checker.uses_priority)


class _Checker:
    def __init__(self, fields: Sequence[Field]) -> None:
        self._fields: Mapping[str, int] = {field.name: number for number, field in enumerate(fields)}
        self._known = fields
        self.used: set[int] = set()
        self.uses_priority = False

    def check(self, expression: Expression) -> tuple[_Type, _Function]:
        """An expression's type, and the function that computes it."""
        match expression:
            case Literal(bool() as value):
                return _Type(_BOOL), lambda _: value
            case Literal(value):
                return _Type(_INT), lambda _: value
            case Attribute("priority"):
                self.uses_priority = True
                return _Type(_INT), lambda given: given[1]
            case Attribute(name):
                raise ConstraintError(f"there is no ::{name}, only ::priority")
            case Key(name, part):
                return self._key(name, part)
            case Unary("!", operand):
                inner = self._boolean("!", operand)
                return _Type(_BOOL), lambda given: not inner(given)
            case Unary(_, operand):
                return self._negation(operand)
            case Binary(operator, left, right) if operator in _COMPARE:
                return _Type(_BOOL), self._comparison(operator, left, right)
            case Binary(operator, left, right):
                return _Type(_BOOL), self._logic(operator, left, right)

    def _key(self, name: str, part: str) -> tuple[_Type, _Function]:
        if name not in self._fields:
            raise ConstraintError(f"there is no {name}, only {', '.join(self._fields) or 'nothing'}")
        number = self._fields[name]
        field = self._known[number]
        self.used.add(number)
        if field.kind is MatchKind.EXACT and part in ("", "value"):
            return _Type(_BITS, field.width), lambda given: given[0][number].value
        if not part:
            return _Type(field.kind.name.lower(), field.width), lambda given: (
                given[0][number].value,
                given[0][number].operand,
            )
        parts = _PARTS[field.kind]
        if part not in parts:
            raise ConstraintError(f"{name} is {field.kind.name.lower()}: it has {' and '.join(parts)}, but no {part}")
        found = _Type(_INT) if part == "prefix_length" else _Type(_BITS, field.width)
        if parts.index(part) == 0:
            return found, lambda given: given[0][number].value
        return found, lambda given: given[0][number].operand

    def _boolean(self, operator: str, operand: Expression) -> _Function:
        kind, function = self.check(operand)
        if kind.kind != _BOOL:
            raise ConstraintError(f"{operator} is for what is true or false, not for a {kind}")
        return function

    def _negation(self, operand: Expression) -> tuple[_Type, _Function]:
        kind, function = self.check(operand)
        if kind.kind == _INT:
            return kind, lambda given: -_number(function(given))
        if kind.kind == _BITS:
            modulus = 1 << kind.width
            return kind, lambda given: -_number(function(given)) % modulus
        raise ConstraintError(f"- is for numbers, not for a {kind}")

    def _logic(self, operator: str, left: Expression, right: Expression) -> _Function:
        one, other = self._boolean(operator, left), self._boolean(operator, right)
        match operator:
            case "&&":
                return lambda given: one(given) and other(given)
            case "||":
                return lambda given: one(given) or other(given)
            case _:
                return lambda given: not one(given) or other(given)

    def _comparison(self, operator: str, left: Expression, right: Expression) -> _Function:
        (one, first), (other, second) = self.check(left), self.check(right)
        common = one if other.kind == _INT or (other.kind == _BITS and one.kind not in (_INT, _BITS)) else other
        first, second = _converted(first, one, common), _converted(second, other, common)
        if common.kind not in (_INT, _BITS) and operator not in ("==", "!="):
            raise ConstraintError(f"{operator} is for numbers, not for a {common}")
        compare = _COMPARE[operator]
        return lambda given: compare(first(given), second(given))


def _converted(function: _Function, kind: _Type, wanted: _Type) -> _Function:
    """A function that computes the same as another type. Raises ConstraintError if that can't be."""
    if kind == wanted:
        return function
    convertible = kind.kind == _INT or (kind.kind == _BITS and kind.width == wanted.width)
    if not convertible or wanted.kind in (_BOOL, _INT):
        raise ConstraintError(f"a {kind} can't be compared with a {wanted}")
    modulus = 1 << wanted.width
    match wanted.kind:
        case "bits":
            return lambda given: _number(function(given)) % modulus
        case "lpm":
            return lambda given: (_number(function(given)) % modulus, wanted.width)
        case "range":
            return lambda given: (_number(function(given)) % modulus, _number(function(given)) % modulus)
        case _:
            return lambda given: (_number(function(given)) % modulus, modulus - 1)


def _number(value: _Value) -> int:
    assert isinstance(value, int)
    return value
