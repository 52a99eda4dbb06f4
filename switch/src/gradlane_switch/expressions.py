# SPDX-License-Identifier: Apache-2.0
"""Expressions of the BMv2 JSON as typed trees, and how many bits their values can have.

BMv2 computes with unbounded integers and truncates on assignment; the generated C computes modulo 2**64. Both agree
wherever an expression's value is known to fit in 64 bits, or only its low bits are used. `bits` tells which is the
case, and what it can't vouch for is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from gradlane_switch.document import Node

MAX_WIDTH = 64


@dataclass(frozen=True)
class Const:
    """A constant. A negative one is held modulo 2**64 and its width is unknown."""

    value: int
    negative: bool = False


@dataclass(frozen=True)
class Field:
    """A field of a header or of metadata, by index."""

    header: int
    field: int
    width: int


@dataclass(frozen=True)
class Valid:
    """Validity of a header: 0 or 1."""

    header: int


@dataclass(frozen=True)
class Param:
    """An action's parameter, by index."""

    index: int
    width: int


@dataclass(frozen=True)
class Lookahead:
    """Bits of the packet that the parser has not consumed yet."""

    offset: int
    width: int


@dataclass(frozen=True)
class Unary:
    """`not`, `~`."""

    op: str
    operand: Expr


@dataclass(frozen=True)
class Binary:
    """Arithmetic, comparison, logic."""

    op: str
    left: Expr
    right: Expr


@dataclass(frozen=True)
class Choice:
    """The conditional operator."""

    condition: Expr
    left: Expr
    right: Expr


Expr: TypeAlias = Const | Field | Valid | Param | Lookahead | Unary | Binary | Choice

_COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")
_LOGIC = ("and", "or")
_ARITHMETIC = ("+", "-", "*", "<<", ">>", "&", "|", "^")


@dataclass(frozen=True)
class Scope:
    """What names mean while an expression is read: fields by (header, field), headers, parameters' widths.

    `withheld` holds the fields that exist but that this switch does not fill in.
    """

    fields: Mapping[tuple[str, str], Field]
    headers: Mapping[str, int]
    params: tuple[int, ...] = ()
    withheld: frozenset[Field] = frozenset()


def bits(expr: Expr) -> int | None:
    """Upper bound of the value's width in bits; None if only its low 64 bits are known."""
    match expr:
        case Const(value, negative):
            return None if negative else value.bit_length()
        case Field(width=width) | Param(width=width) | Lookahead(width=width):
            return width
        case Valid() | Unary(op="not"):
            return 1
        case Unary():
            return None
        case Choice(_, left, right):
            return _widest(bits(left), bits(right))
        case Binary(op, left, right):
            return _binary_bits(op, left, right)


def _binary_bits(op: str, left: Expr, right: Expr) -> int | None:
    if op in _COMPARISONS or op in _LOGIC:
        return 1
    a, b = bits(left), bits(right)
    if op == "&":
        known = [width for width in (a, b) if width is not None]
        return min(known) if known else None
    if op == "-" or a is None or b is None:
        return None
    if op in ("|", "^"):
        return max(a, b)
    if op == ">>":
        return max(a - right.value, 0) if isinstance(right, Const) else a
    if op == "<<":
        total = a + right.value if isinstance(right, Const) else MAX_WIDTH + 1
    else:
        total = max(a, b) + 1 if op == "+" else a + b
    return total if total <= MAX_WIDTH else None


def _widest(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else max(a, b)


def require_exact(expr: Expr, node: Node, where: str) -> Expr:
    """The expression, if its value is known exactly; raises ProgramError otherwise."""
    if bits(expr) is None:
        raise node.refuse(f"arithmetic of more than {MAX_WIDTH} bits, or on signed values, in {where} is not supported")
    return expr


def parse_value(node: Node, scope: Scope) -> Expr:
    """The expression that a type-value object stands for. Raises ProgramError for unsupported types."""
    kind = node.text("type")
    if kind == "expression":
        inner = node.child("value")
        return parse_value(inner, scope) if inner.has("type") else _parse_operation(inner, scope)
    if kind == "hexstr":
        return _constant(node)
    if kind == "bool":
        return Const(int(node.flag("value")))
    if kind == "field":
        return parse_field(node, scope)
    if kind in ("local", "runtime_data"):
        index = node.integer("value")
        if not 0 <= index < len(scope.params):
            raise node.refuse(f"action parameter {index} does not exist")
        return Param(index, scope.params[index])
    if kind == "lookahead":
        offset, width = node.sequence("value")
        if width > MAX_WIDTH:
            raise node.refuse(f"a lookahead of {width} bits is not supported (at most {MAX_WIDTH})")
        return Lookahead(offset, width)
    raise node.refuse(f"values of type {kind!r} are not supported")


def parse_field(node: Node, scope: Scope) -> Field | Valid:
    """The field that a type-value object of type `field` names."""
    value = node.sequence("value")
    return find_field(value, node, scope)


def find_field(value: list[str], node: Node, scope: Scope) -> Field | Valid:
    """The field that a pair (header, field) names; the hidden field `$valid$` is the header's validity."""
    header, name = value
    if name == "$valid$" and header in scope.headers:
        return Valid(scope.headers[header])
    found = scope.fields.get((header, name))
    if found is None:
        raise node.refuse(f"field {header}.{name} does not exist")
    if found in scope.withheld:
        raise node.refuse(
            f"queue metadata ({header}.{name}) is not supported: the egress pipeline runs at enqueue time"
        )
    return found


def find_header(node: Node, scope: Scope) -> int:
    """Index of the header that a type-value object of type `header` names."""
    if node.text("type") != "header":
        raise node.refuse(f"headers of type {node.text('type')!r} are not supported")
    name = node.text("value")
    if name not in scope.headers:
        raise node.refuse(f"header {name} does not exist")
    return scope.headers[name]


def hex_value(text: str, node: Node) -> int:
    """The integer that a hexstr stands for."""
    try:
        return int(text, 16)
    except ValueError:
        raise node.refuse(f"{text!r} is not a hexadecimal number") from None


def _constant(node: Node) -> Const:
    value = hex_value(node.text("value"), node)
    if value.bit_length() > MAX_WIDTH:
        raise node.refuse(f"a constant of {value.bit_length()} bits is not supported (at most {MAX_WIDTH})")
    return Const(value % (1 << MAX_WIDTH), value < 0)


def _parse_operation(node: Node, scope: Scope) -> Expr:
    op = node.text("op")
    if op == "valid":
        return Valid(find_header(node.child("right"), scope))
    if op == "?":
        condition = require_exact(parse_value(node.child("cond"), scope), node, "a condition")
        return Choice(condition, parse_value(node.child("left"), scope), parse_value(node.child("right"), scope))
    if op in ("not", "~", "d2b", "b2d"):
        operand = parse_value(node.child("right"), scope)
        if op == "b2d":
            return operand
        if op == "d2b":
            return Binary("!=", require_exact(operand, node, "a conversion to bool"), Const(0))
        return Unary(op, require_exact(operand, node, "a condition") if op == "not" else operand)
    if op == "-" and not node.has("left"):
        return Binary("-", Const(0), parse_value(node.child("right"), scope))
    if op not in _COMPARISONS + _LOGIC + _ARITHMETIC:
        raise node.refuse(f"operator {op!r} is not supported")
    left, right = parse_value(node.child("left"), scope), parse_value(node.child("right"), scope)
    if op in _COMPARISONS or op in _LOGIC:
        return Binary(op, require_exact(left, node, repr(op)), require_exact(right, node, repr(op)))
    if op == ">>":
        left = require_exact(left, node, "a right shift")
    if op in ("<<", ">>"):
        right = require_exact(right, node, "a shift's distance")
    return Binary(op, left, right)
