# SPDX-License-Identifier: Apache-2.0
"""Typed access to the BMv2 JSON: every error says where in the document, and in the P4 source, it is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from gradlane_switch.errors import ProgramError


class Node:
    """One object of the document, with its path and the P4 source line that it, or the object around it, comes from."""

    def __init__(self, value: Any, path: str, source: str = "") -> None:
        if not isinstance(value, dict):
            raise ProgramError(f"{path}: an object is wanted, not {type(value).__name__}")
        self._value = cast("dict[str, Any]", value)
        self.path = path
        self.source = _source(self._value.get("source_info")) or source

    def refuse(self, what: str) -> ProgramError:
        """The error to raise for something unusable here."""
        return ProgramError(f"{what} ({self.source or self.path})")

    def has(self, key: str) -> bool:
        """True if the key is present and not null."""
        return self._value.get(key) is not None

    def raw(self, key: str) -> Any:
        """The value as the JSON reader gave it, or None."""
        return self._value.get(key)

    def text(self, key: str) -> str:
        """A string; raises ProgramError if it is missing or something else."""
        return self._typed(key, str)

    def optional_text(self, key: str) -> str | None:
        """A string, or None if it is missing or null."""
        return self._typed(key, str) if self.has(key) else None

    def integer(self, key: str) -> int:
        """An integer; raises ProgramError if it is missing or something else."""
        return self._typed(key, int)

    def flag(self, key: str) -> bool:
        """A boolean, False if it is missing."""
        return self._typed(key, bool) if self.has(key) else False

    def sequence(self, key: str) -> list[Any]:
        """An array, empty if it is missing."""
        return self._typed(key, list) if self.has(key) else []

    def child(self, key: str) -> Node:
        """The object under a key."""
        return Node(self._value.get(key), f"{self.path}.{key}", self.source)

    def children(self, key: str) -> Iterator[Node]:
        """The objects of the array under a key."""
        for index, value in enumerate(self.sequence(key)):
            yield Node(value, f"{self.path}.{key}[{index}]", self.source)

    def items(self, key: str) -> dict[str, Any]:
        """The object under a key, as a plain dictionary."""
        return self._typed(key, dict) if self.has(key) else {}

    def _typed(self, key: str, kind: type) -> Any:
        value = self._value.get(key)
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise ProgramError(f"{self.path}.{key}: {kind.__name__} is wanted, not {type(value).__name__}")
        return value


def _source(info: Any) -> str:
    if not isinstance(info, dict):
        return ""
    details = cast("dict[str, Any]", info)
    return f"{details.get('filename', '?')}:{details.get('line', '?')}"
