# SPDX-License-Identifier: Apache-2.0
"""The constraint language of p4-constraints, parsed: https://github.com/p4lang/p4-constraints, docs.

From the weakest to the strongest: `;` (and; also within parentheses), `->` (of which there is one in a row), `||`,
`&&`, comparisons (one in a row), `!` and `-`, `::`. A key has dots in its name: `hdr.ipv4.dst::prefix_length`;
`::priority` is the entry's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from typing import NamedTuple

COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")


class ConstraintError(ValueError):
    """A constraint is no constraint of the language, or says something of what there is not."""


@dataclass(frozen=True)
class Literal:
    """`true`, `false`, a number, or an address, which is a number."""

    value: int


@dataclass(frozen=True)
class Key:
    """A match field or a parameter; `part` is what follows `::`, e.g. `mask`, or empty."""

    name: str
    part: str = ""


@dataclass(frozen=True)
class Attribute:
    """Something of the entry that is no match field: `::priority`."""

    name: str


@dataclass(frozen=True)
class Unary:
    """`!` or `-`."""

    operator: str
    operand: Expression


@dataclass(frozen=True)
class Binary:
    """`&&`, `||`, `->`, or a comparison."""

    operator: str
    left: Expression
    right: Expression


Expression = Literal | Key | Attribute | Unary | Binary


class Clause(NamedTuple):
    """One of the constraints that `;` separates, and how it was written, in one line."""

    text: str
    expression: Expression


class _Token(NamedTuple):
    kind: str
    text: str
    start: int
    end: int


_TOKEN = re.compile(
    r"(?P<space>(?:\s|//[^\n]*|/\*.*?\*/)+)"
    r"|(?P<number>0[xX][0-9a-fA-F]+|0[bB][01]+|0[oO][0-7]+|(?:0[dD])?[0-9]+)(?![\w])"
    r"|(?P<address>(?:ipv4|ipv6|mac)\s*\(\s*'[^']*'\s*\))"
    r"|(?P<name>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)"
    r"|(?P<operator>->|::|&&|\|\||==|!=|<=|>=|[<>!();-])",
    re.DOTALL,
)
_DEPTH = 64  # of parentheses and prefixes in one another
_DIGITS = 128  # of a number
_BASES = {"0x": 16, "0b": 2, "0o": 8, "0d": 10}


def parse(text: str) -> list[Clause]:
    """The clauses of a constraint. Raises ConstraintError that tells where it can't be understood."""
    parser = _Parser(text)
    clauses: list[Clause] = []
    while True:
        first = parser.token
        expression = parser.implication()
        written = " ".join(text[first.start : parser.end].split())
        clauses.append(Clause(written, expression))
        if not parser.take(";"):
            break
        if parser.token.kind == "end":
            break
    if parser.token.kind != "end":
        raise parser.unexpected("the end")
    return clauses


def _tokens(text: str) -> Iterator[_Token]:
    position = 0
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None:
            raise ConstraintError(f"{text[position : position + 10]!r} is nothing of the constraint language")
        kind, position = str(found.lastgroup), found.end()
        if kind != "space":
            yield _Token(kind, found.group(), found.start(), found.end())
    yield _Token("end", "", position, position)


class _Parser:
    """Recursive descent, one method for each level of precedence."""

    def __init__(self, text: str) -> None:
        self._tokens = _tokens(text)
        self.token = next(self._tokens)
        self._depth = 0
        self.end = 0
        """Where the last token that was taken ends."""

    def take(self, *operators: str) -> str:
        """Goes past the token if it is one of the operators, which is returned; otherwise "" is."""
        if self.token.kind != "operator" or self.token.text not in operators:
            return ""
        return self._advance()

    def unexpected(self, wanted: str) -> ConstraintError:
        """What to raise where something else is wanted."""
        found = f"{self.token.text!r} at {self.token.start}" if self.token.kind != "end" else "the end"
        return ConstraintError(f"{found} where {wanted} is wanted")

    def implication(self) -> Expression:
        """`a -> b`; `a -> b -> c` needs parentheses."""
        return self._once(("->",), self._disjunction)

    def _disjunction(self) -> Expression:
        left = self._conjunction()
        while self.take("||"):
            left = Binary("||", left, self._conjunction())
        return left

    def _conjunction(self) -> Expression:
        left = self._comparison()
        while self.take("&&"):
            left = Binary("&&", left, self._comparison())
        return left

    def _comparison(self) -> Expression:
        return self._once(COMPARISONS, self._unary)

    def _once(self, operators: tuple[str, ...], operand: Callable[[], Expression]) -> Expression:
        left = operand()
        operator = self.take(*operators)
        if not operator:
            return left
        found = Binary(operator, left, operand())
        if self.token.kind == "operator" and self.token.text in operators:
            raise self.unexpected("a parenthesis around one of two operators that do not associate")
        return found

    def _unary(self) -> Expression:
        self._depth += 1
        if self._depth > _DEPTH:
            raise ConstraintError(f"more than {_DEPTH} parentheses or prefixes in one another")
        operator = self.take("!", "-")
        found = Unary(operator, self._unary()) if operator else self._primary()
        self._depth -= 1
        return found

    def _primary(self) -> Expression:
        if self.take("("):
            inner = self.implication()
            while self.take(";"):
                inner = Binary("&&", inner, self.implication())
            self._expect(")")
            return inner
        if self.take("::"):
            return Attribute(self._name())
        kind = self.token.kind
        if kind == "number":
            digits = self._advance()
            if len(digits) > _DIGITS:
                raise ConstraintError(f"{digits[:9]}... is too long a number")
            base = _BASES.get(digits[:2].lower())
            return Literal(int(digits) if base is None else int(digits[2:], base))
        if kind == "address":
            return Literal(_address(self._advance()))
        if kind != "name":
            raise self.unexpected("a key, a number or a parenthesis")
        name = self._advance()
        if name in ("true", "false"):
            return Literal(name == "true")
        return Key(name, self._name() if self.take("::") else "")

    def _name(self) -> str:
        if self.token.kind != "name":
            raise self.unexpected("a name")
        return self._advance()

    def _expect(self, operator: str) -> None:
        if not self.take(operator):
            raise self.unexpected(repr(operator))

    def _advance(self) -> str:
        text, self.end = self.token.text, self.token.end
        self.token = next(self._tokens)
        return text


def _address(text: str) -> int:
    kind, _, rest = text.partition("(")
    written = rest.split("'")[1]
    try:
        match kind.strip():
            case "ipv4":
                return int(IPv4Address(written))
            case "ipv6":
                return int(IPv6Address(written))
            case _:
                if not re.fullmatch(r"[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}", written):
                    raise ValueError
                return int(written.replace(":", ""), 16)
    except ValueError:
        raise ConstraintError(f"{text} is no address") from None
