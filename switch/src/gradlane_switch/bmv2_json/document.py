# SPDX-License-Identifier: Apache-2.0
"""Typed access to the BMv2 JSON: every error says where in the document, and in the P4 source, it is."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any, cast

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from gradlane_switch.errors import ProgramError


def _wrapper() -> Any:
    """p4.tmp.P4DeviceConfig, in which older clients wrap a program, with the one field that counts."""
    kind = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="p4config.proto", package="p4.tmp", syntax="proto3")
    fields = file.message_type.add(name="P4DeviceConfig").field
    fields.add(name="device_data", number=3, type=kind.TYPE_BYTES, label=kind.LABEL_OPTIONAL)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("p4.tmp.P4DeviceConfig"))


_P4DeviceConfig = _wrapper()


def read(text: str | bytes) -> Node:
    """The document in a text, or in a p4.tmp.P4DeviceConfig. Raises ProgramError if it is not JSON."""
    whole = text.encode() if isinstance(text, str) else text
    if not whole.lstrip().startswith(b"{"):
        with contextlib.suppress(DecodeError):  # Else it is no such message either, and no JSON, which is said.
            whole = _P4DeviceConfig.FromString(whole).device_data
    try:
        return Node(json.loads(whole), "program")
    except (ValueError, RecursionError) as error:
        raise ProgramError(f"the program is not JSON: {error}") from None


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
