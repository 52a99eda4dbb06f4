# SPDX-License-Identifier: Apache-2.0
"""The reference of the keys of job and fabric files, from their schemas."""

from collections.abc import Callable, Iterator
from typing import Any

from docs.site.tables import cell, table
from gradlane.job.schema import job_schema
from gradlane.toml_schema import Schema
from gradlane_controller.network.fabric_schema import fabric_schema

FILES: dict[str, Callable[[], Schema]] = {"job": job_schema, "fabric": fabric_schema}


def page(kind: str, schema: Schema | None = None) -> str:
    """The whole page of a kind of file, as Markdown."""
    found = schema or FILES[kind]()
    lines = [f"# Keys of a {kind} file", "", f"What [the {kind} file](../files.md) may have, from its schema."]
    lines += ["A key in **bold** has to be there.", ""]
    for name, part in found["properties"].items():
        lines += _table(name, part, required=name in found["required"])
    return "\n".join(lines) + "\n"


def _table(name: str, schema: Schema, *, required: bool) -> Iterator[str]:
    """A table of the file, and then those in it."""
    many = schema.get("type") == "array"
    item: Schema = schema["items"] if many else schema
    yield f"## {'[[' if many else '['}{name}{']]' if many else ']'}"
    yield ""
    said = [item.get("description", ""), _count(schema) if many else "", "Has to be there" if required else ""]
    yield cell(". ".join(it for it in said if it)) + ("." if any(said) else "")
    yield ""
    if "oneOf" in item:
        for way in item["oneOf"]:
            word = next(key for key, it in way["properties"].items() if "const" in it)
            yield f"### {word} = {_toml(way['properties'][word]['const'])}"
            yield ""
            yield from _keys(name, way)
    else:
        yield from _keys(name, item)


def _keys(name: str, item: Schema) -> Iterator[str]:
    keys: dict[str, Schema] = item["properties"]
    inner = {key: it for key, it in keys.items() if _is_table(it)}
    rows = [_row(key, it, required=key in item["required"]) for key, it in keys.items() if key not in inner]
    if rows:
        yield table(("key", "value", "default", "what it is"), rows)
    for key, it in inner.items():
        yield from _table(f"{name}.{key}", it, required=key in item["required"])


def _is_table(schema: Schema) -> bool:
    item = schema.get("items", {}) if schema.get("type") == "array" else schema
    return item.get("type") == "object"


def _row(key: str, schema: Schema, *, required: bool) -> tuple[str, str, str, str]:
    name = f"**`{key}`**" if required else f"`{key}`"
    default = "" if "default" not in schema else cell(_toml(schema["default"]), code=True)
    return name, value(schema), default, cell(schema.get("description", ""))


def value(schema: Schema) -> str:
    """What a key takes, in words."""
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(value(each) for each in schema["anyOf"]))
    if "const" in schema:
        return cell(_toml(schema["const"]), code=True)
    if "enum" in schema:
        return _choices(schema["enum"])
    kind = schema["type"]
    if kind == "boolean":
        return "`true` or `false`"
    if kind in ("integer", "number"):
        return _range(schema)
    if kind == "array":
        least, most = schema.get("minItems", 0), schema.get("maxItems")
        how_many = f"{least}: " if least == most else ""
        return f"list of {how_many}{value(schema['items'])}"
    return "string"


def _choices(choices: list[Any]) -> str:
    words = [cell(_toml(it), code=True) for it in choices]
    return ", ".join(words) if len(words) < 12 else f"{words[0]}, {words[1]}, {words[2]} ... {words[-1]}"


def _range(schema: Schema) -> str:
    word = "integer" if schema["type"] == "integer" else "number"
    low = schema.get("minimum", schema.get("exclusiveMinimum"))
    high = schema.get("maximum", schema.get("exclusiveMaximum"))
    above = " above" if "exclusiveMinimum" in schema else " from"
    below = " to below" if "exclusiveMaximum" in schema else " to"
    return word + (f"{above} {low:,}" if low is not None else "") + (f"{below} {high:,}" if high is not None else "")


def _count(schema: Schema) -> str:
    least, most = schema.get("minItems", 0), schema.get("maxItems")
    if most is None:
        return f"At least {least}" if least else ""
    return f"{least:,} to {most:,} of them"


def _toml(it: Any) -> str:
    """A value as a TOML file has it."""
    if isinstance(it, bool):
        return str(it).lower()
    if isinstance(it, str):
        return f'"{it}"'
    return "[" + ", ".join(map(_toml, it)) + "]" if isinstance(it, list) else str(it)
