# SPDX-License-Identifier: Apache-2.0
"""Parts of JSON schemas (draft 2020-12) of TOML files: what `toml_file.Table` takes, for editors.

A file that a schema refuses is one that its reader refuses. A reader refuses more: what depends on several keys.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from gradlane.toml_file import NAME

Schema = dict[str, Any]

_DRAFT = "https://json-schema.org/draft/2020-12/schema"
_NUMBER = r"[0-9]+(\.[0-9]+)?"


def document(title: str, properties: Mapping[str, Schema], required: Sequence[str] = ()) -> Schema:
    """The schema of a whole file."""
    return {"$schema": _DRAFT, "title": title, **table("", properties, required)}


def table(text: str, properties: Mapping[str, Schema], required: Sequence[str] = ()) -> Schema:
    """A table with these keys and no others; `text` says what it is."""
    keys = {"type": "object", "properties": dict(properties), "required": list(required)}
    return _with({**keys, "additionalProperties": False}, text)


def tables(item: Schema, most: int | None = None, least: int = 0) -> Schema:
    """An array of such tables."""
    return {"type": "array", "items": item, "minItems": least, **({} if most is None else {"maxItems": most})}


def string(text: str, pattern: str = "", default: str | None = None) -> Schema:
    """A string that is not empty, or as the whole pattern says."""
    return _with({"type": "string", "pattern": f"^(?:{pattern})$"} if pattern else _TEXT, text, default)


def name(text: str) -> Schema:
    """As `Table.name`."""
    return string(text, NAME)


def path(text: str) -> Schema:
    """An absolute path."""
    return _with({"type": "string", "pattern": "^/"}, text)


def choice(text: str, choices: Sequence[str], default: str | None = None) -> Schema:
    """One of these strings."""
    return _with({"enum": list(choices)}, text, default)


def boolean(text: str, default: bool) -> Schema:
    """true or false."""
    return _with({"type": "boolean"}, text, default)


def integer(text: str, low: int, high: int, default: int | None = None) -> Schema:
    """An integer in [low, high]."""
    return _with({"type": "integer", "minimum": low, "maximum": high}, text, default)


def integer_or(text: str, word: str, low: int, high: int) -> Schema:
    """An integer in [low, high], or that word, which is the default."""
    return _with({"anyOf": [{"const": word}, integer("", low, high)]}, text, word)


def fraction(text: str, default: float | None = None) -> Schema:
    """A number in [0, 1)."""
    return _with({"type": "number", "minimum": 0, "exclusiveMaximum": 1}, text, default)


def number(text: str, low: float, high: float, default: float | None = None) -> Schema:
    """A number above `low` and at most `high`."""
    return _with({"type": "number", "exclusiveMinimum": low, "maximum": high}, text, default)


def span(text: str, low: int, high: int, default: Sequence[int] | None = None) -> Schema:
    """[first, last] within [low, high]."""
    ends = {"type": "array", "items": integer("", low, high), "minItems": 2, "maxItems": 2}
    return _with(ends, text, None if default is None else list(default))


def rate(text: str) -> Schema:
    """As `units.parse_rate` takes it."""
    return string(f"{text}, such as '100mbit'", rf"\s*{_NUMBER}\s*(bit|kbit|mbit|gbit)\s*")


def size(text: str, default: str | None = None) -> Schema:
    """As `units.parse_size` takes it."""
    return string(f"{text}, such as '64kB'", rf"\s*{_NUMBER}\s*(B|kB|MB|GB|KiB|MiB|GiB)\s*", default)


def address(text: str) -> Schema:
    """IPv4."""
    return string(text, r"[0-9]{1,3}(\.[0-9]{1,3}){3}")


def address6(text: str) -> Schema:
    """IPv6."""
    return _with({"type": "string", "pattern": ":"}, text)


def any_address(text: str) -> Schema:
    """IPv4 or IPv6."""
    return _with({"anyOf": [address(""), address6("")]}, text)


_TEXT: Schema = {"type": "string", "minLength": 1}


def _with(schema: Schema, text: str, default: object = None) -> Schema:
    more = {"description": text} if text else {}
    return {**more, **schema, **({} if default is None else {"default": default})}
