# SPDX-License-Identifier: Apache-2.0
"""The annotations that P4Info keeps as text: `@name(body)`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from gradlane_switch.constraints.restrictions import Field, Restrictions, parse_restrictions
from gradlane_switch.constraints.syntax import ConstraintError

_ANNOTATION = re.compile(r"\s*@(?P<name>\w+)\s*\((?P<body>.*)\)\s*", re.DOTALL)
_STRING = re.compile(r'\s*"(?P<text>(?:[^"\\]|\\.)*)"', re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}


def bodies(name: str, annotations: Iterable[str]) -> list[str]:
    """What is in the parentheses of each annotation of that name."""
    found = [_ANNOTATION.fullmatch(text) for text in annotations]
    return [it["body"] for it in found if it is not None and it["name"] == name]


def declared_restrictions(name: str, annotations: Iterable[str], fields: Sequence[Field]) -> Restrictions:
    """The constraints of all annotations of that name. Raises ConstraintError."""
    found = [it for body in bodies(name, annotations) for it in parse_restrictions(_string(body), fields)]
    return Restrictions(tuple(fields), tuple(found))


def declared_references(annotations: Iterable[str]) -> list[tuple[str, str]]:
    """(table, field) of each `@refers_to`, without the spaces that p4c puts in between. Raises ConstraintError."""
    found: list[tuple[str, str]] = []
    for body in bodies("refers_to", annotations):
        table, comma, field = "".join(body.split()).partition(",")
        if not (table and comma and field):
            raise ConstraintError(f"@refers_to({body}) is not @refers_to(table, field)")
        found.append((table, field))
    return found


def _string(body: str) -> str:
    """The strings in a row that the body of a restriction is."""
    parts: list[str] = []
    position = 0
    while found := _STRING.match(body, position):
        parts.append(re.sub(r"\\(.)", lambda it: _ESCAPES.get(it[1], it[1]), found["text"], flags=re.DOTALL))
        position = found.end()
    if not parts or body[position:].strip():
        raise ConstraintError(f"{body!r} is not a string")
    return "".join(parts)
