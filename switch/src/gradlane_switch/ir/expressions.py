# SPDX-License-Identifier: Apache-2.0
"""Expressions of the BMv2 JSON as typed trees, and what is known of their values.

BMv2 computes with unbounded integers and truncates on assignment; the generated C computes modulo a power of two. Both
agree on the low bits of sums, products and bitwise operations, whatever the operands are; a comparison, a right shift
or a saturating cast needs its operand whole. `shape` bounds a value, so that it is known how many words hold it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

MAX_WIDTH = 2048
"""Bits of the widest field, parameter, constant or register cell."""
MAX_COMPUTED = 2 * MAX_WIDTH
"""Bits of the widest intermediate value: a product of two of the widest fields."""


@dataclass(frozen=True)
class Const:
    """A constant, of any sign."""

    value: int


@dataclass(frozen=True)
class Field:
    """A field of a header or of metadata, by index."""

    header: int
    field: int
    width: int
    signed: bool = False


@dataclass(frozen=True)
class Valid:
    """Validity of a header: 0 or 1."""

    header: int


@dataclass(frozen=True)
class Param:
    """An action's parameter. `word` is where its value begins among the words of an entry's arguments."""

    word: int
    width: int


@dataclass(frozen=True)
class Lookahead:
    """Bits of the packet that the parser has not consumed yet."""

    offset: int
    width: int


@dataclass(frozen=True)
class LastIndex:
    """Index of the element of a stack that was extracted last, -1 modulo 2**64 if there is none."""

    stack: int


@dataclass(frozen=True)
class Element:
    """A field of the header that an index selects; no such header reads as 0 and ignores writes."""

    headers: tuple[int, ...]
    index: Expr
    field: int
    width: int
    signed: bool = False


@dataclass(frozen=True)
class SameNumber:
    """1 if the variable-length fields of two headers are the same number, whatever their lengths, as on BMv2."""

    left: int
    right: int


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


@dataclass(frozen=True)
class Wrap:
    """The low `width` bits as a two's complement number."""

    operand: Expr
    width: int


@dataclass(frozen=True)
class Saturate:
    """The nearest value that `width` bits hold."""

    operand: Expr
    width: int
    signed: bool


Expr: TypeAlias = (
    Const
    | Field
    | Valid
    | Param
    | Lookahead
    | LastIndex
    | Element
    | SameNumber
    | Unary
    | Binary
    | Choice
    | Wrap
    | Saturate
)

COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")
LOGIC = ("and", "or")
ARITHMETIC = ("+", "-", "*", "/", "%", "<<", ">>", "&", "|", "^")


@dataclass(frozen=True)
class Shape:
    """Bounds of a value: 0 <= value < 2**width, or if signed -2**(width-1) <= value < 2**(width-1)."""

    width: int
    signed: bool = False

    @property
    def signed_width(self) -> int:
        """Bits that hold the value as a two's complement number."""
        return self.width if self.signed else self.width + 1


def shape(expr: Expr) -> Shape | None:
    """Bounds of an expression's value; None if there are none, so that only its low bits can be computed."""
    found = _shape(expr)
    return None if found is None or found.width > MAX_COMPUTED else found


def _shape(expr: Expr) -> Shape | None:
    match expr:
        case Const(value):
            return Shape(value.bit_length()) if value >= 0 else Shape((~value).bit_length() + 1, True)
        case Field(width=width, signed=signed) | Element(width=width, signed=signed):
            return Shape(width, signed)
        case Param(width=width) | Lookahead(width=width):
            return Shape(width)
        case LastIndex():
            return Shape(64)
        case Valid() | SameNumber() | Unary(op="not"):
            return Shape(1)
        case Unary(_, operand):
            known = shape(operand)
            return None if known is None else Shape(known.signed_width, True)
        case Choice(_, left, right):
            a, b = shape(left), shape(right)
            return None if a is None or b is None else _both(a, b)
        case Wrap(_, width):
            return Shape(width, True)
        case Saturate(_, width, signed):
            return Shape(width, signed)
        case Binary(op, left, right):
            return Shape(1) if op in COMPARISONS or op in LOGIC else _arithmetic(op, left, right)


def _both(a: Shape, b: Shape) -> Shape:
    """The shape of values that have one shape or the other."""
    if a.signed or b.signed:
        return Shape(max(a.signed_width, b.signed_width), True)
    return Shape(max(a.width, b.width))


def _arithmetic(op: str, left: Expr, right: Expr) -> Shape | None:
    a, b = shape(left), shape(right)
    if op == "&":
        positive = [known.width for known in (a, b) if known is not None and not known.signed]
        if positive:
            return Shape(min(positive))
    if a is None or b is None:
        return None
    match op:
        case "&" | "|" | "^":
            return _both(a, b)
        case "+":
            sum_of = _both(a, b)
            return Shape(sum_of.width + 1, sum_of.signed)
        case "-":
            return Shape(_both(a, b).width + 1, True)
        case "*":
            return Shape(a.signed_width + b.signed_width, True) if a.signed or b.signed else Shape(a.width + b.width)
        case "/":
            return a
        case "%":
            return Shape(min(a.width, b.width))
        case ">>":
            distance = right.value if isinstance(right, Const) else 0
            return Shape(max(a.width - distance, 1 if a.signed else 0), a.signed)
        case _:
            return Shape(a.width + right.value, a.signed) if isinstance(right, Const) else None


def words_of(width: int) -> int:
    """How many 64-bit words hold a value of `width` bits; at least one."""
    return max((width + 63) // 64, 1)


def split_words(value: int, count: int) -> list[int]:
    """The low `count` words of a value, the lowest first."""
    if count == 1:  # What nearly every write of an entry asks for, several times.
        return [value & ((1 << 64) - 1)]
    return [value >> (64 * index) & ((1 << 64) - 1) for index in range(count)]


def join_words(words: Sequence[int]) -> int:
    """The value of words, the lowest first."""
    return sum(word << (64 * index) for index, word in enumerate(words))


def operands(expr: Expr) -> tuple[Expr, ...]:
    """The expressions that an expression is made of."""
    match expr:
        case Unary(_, operand) | Wrap(operand) | Saturate(operand):
            return (operand,)
        case Element(index=index):
            return (index,)
        case Binary(_, left, right):
            return (left, right)
        case Choice(condition, left, right):
            return (condition, left, right)
        case _:
            return ()
