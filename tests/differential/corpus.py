# SPDX-License-Identifier: Apache-2.0
"""The corpus: P4 programs, what the control plane writes into each (a TOML file of the program's name), and frames."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from finsy import P4Schema
from finsy.proto import p4r

from tests.differential.packets import PORTS, Generator, Name, Sample
from tests.differential.writes import KINDS, Writes, writes

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HERE = Path(__file__).resolve().parent
SOURCES = HERE / "programs"
BUILD = HERE / "build"
SUBJECT = 0x1234
MAGIC = bytes.fromhex("d1ff0e4e7e571ab1e0facade5eed5eed")  # what markers, and no other frames, have in them

_KEYS = {"packets", "ports", "lockstep", "delete_every", "passes", "marker", "values", "change"} | KINDS
_CHANGE_KEYS = {"after", "do"} | KINDS


@dataclass(frozen=True)
class Program:
    """One program of the corpus."""

    name: str

    @property
    def json_path(self) -> Path:
        """The BMv2 JSON."""
        return BUILD / f"{self.name}.json"

    @property
    def p4info_path(self) -> Path:
        """The P4Info, text format."""
        return BUILD / f"{self.name}.p4info.txtpb"

    @property
    def settings_path(self) -> Path:
        """What the control plane writes, and how frames are made."""
        return SOURCES / f"{self.name}.toml"

    @cached_property
    def document(self) -> Mapping[str, Any]:
        """The BMv2 JSON, read."""
        return json.loads(self.json_path.read_text())

    @cached_property
    def schema(self) -> P4Schema:
        """The P4Info and the program, for P4Runtime."""
        return P4Schema(self.p4info_path, self.json_path.read_bytes())

    @cached_property
    def settings(self) -> Mapping[str, Any]:
        """What the program's TOML file holds; nothing if it has none."""
        path = self.settings_path
        settings = tomllib.loads(path.read_text()) if path.exists() else {}
        if unknown := settings.keys() - _KEYS:
            raise ValueError(f"{path}: unknown keys {sorted(unknown)}: {sorted(_KEYS)} are known")
        return settings

    @property
    def window(self) -> int:
        """How many frames may be in BMv2 at a time. 1 where their ways through it may cross."""
        return 1 if self.settings.get("lockstep") else 12

    @property
    def passes(self) -> int:
        """How many times a frame goes through egress at most."""
        return self.settings.get("passes", 1)

    @property
    def cells(self) -> Mapping[str, int]:
        """By the name of a counter: how many of its cells are compared. Of others all."""
        return {}

    def markers(self, number: int) -> list[bytes]:
        """Round `number` of frames that tell that earlier ones are through: together they leave at each of `PORTS`."""
        source = b"\x02\xdd" + number.to_bytes(4, "big")
        rest = bytes.fromhex(self.settings.get("marker", "9999")) + MAGIC + number.to_bytes(4, "big")
        return [b"\x02\x00\x00\x00\x00" + bytes([port - 1]) + source + rest for port in PORTS]

    @cached_property
    def updates(self) -> list[p4r.Update]:
        """What the control plane writes before the first frame, but for value sets and registers."""
        return list(writes(self.settings, self.schema).updates)

    @cached_property
    def initial(self) -> Writes:
        """What the control plane writes before the first frame."""
        return replace(writes(self.settings, self.schema), updates=tuple(self.updates))

    @cached_property
    def _later(self) -> list[tuple[int, Writes]]:
        """What the control plane writes later: after how many frames, and what."""
        result: list[tuple[int, Writes]] = []
        for item in self.settings.get("change", []):
            if unknown := item.keys() - _CHANGE_KEYS:
                raise ValueError(f"{self.name}: unknown keys {sorted(unknown)} in a change")
            result.append((item["after"], writes(item, self.schema, item.get("do", "modify"))))
        return result

    @cached_property
    def changes(self) -> Mapping[int, list[Writes]]:
        """What the control plane writes before which window, in order."""
        result: dict[int, list[Writes]] = {}
        for after, item in self._later:
            result.setdefault(-(-after // self.window), []).append(item)
        if step := self.settings.get("delete_every"):
            # After half of the windows, every n-th table entry goes.
            written = [update.entity for update in self.updates if update.entity.HasField("table_entry")]
            deletions = tuple(p4r.Update(type=p4r.Update.DELETE, entity=entity) for entity in written[1::step])
            result.setdefault(len(self.windows) // 2, []).append(Writes(deletions))
        return result

    @cached_property
    def _members(self) -> dict[str, list[tuple[int, ...]]]:
        """The members that value sets ever have."""
        result: dict[str, list[tuple[int, ...]]] = {}
        for item in (self.initial, *(item for _, item in self._later)):
            for name, members in item.value_sets.items():
                result.setdefault(name, []).extend(members)
        return result

    @cached_property
    def generator(self) -> Generator:
        """What makes the program's frames, once. Another one of the program makes the same."""
        return Generator(
            self.document, self._samples(), self._members, f"gradlane/{self.name}", self.settings.get("ports", PORTS)
        )

    @cached_property
    def frames(self) -> list[tuple[int, bytes]]:
        """The frames that the program gets, as (ingress port, frame)."""
        return list(self.generator.frames(self.settings.get("packets", 1500)))

    @property
    def windows(self) -> list[list[tuple[int, bytes]]]:
        """The frames, as many at a time as may be in BMv2."""
        return [self.frames[start : start + self.window] for start in range(0, len(self.frames), self.window)]

    def digest(self) -> str:
        """A digest of everything that BMv2's results depend on: program, what is written, frames."""
        state = hashlib.sha256(self.json_path.read_bytes())
        state.update(self.p4info_path.read_bytes())
        state.update(json.dumps(self.settings, sort_keys=True).encode())
        state.update(f"{self.window} {self.passes}".encode())
        for port, frame in self.frames:
            state.update(f"{port} {frame.hex()}\n".encode())
        return state.hexdigest()

    def _samples(self) -> dict[Name, list[Sample]]:
        """Values that fields should often have: those of entries, constant or written, and of the settings."""
        samples: dict[Name, list[Sample]] = {("ethernet", "type"): [Sample(SUBJECT, 0xFFFF)]}
        targets: dict[tuple[str, str], tuple[Name, int]] = {}
        for pipeline in self.document["pipelines"]:
            for table in pipeline["tables"]:
                widths = [self._width(key["target"]) for key in table["key"]]
                names = [(key["target"][0], key["target"][1]) for key in table["key"]]
                for key, name, width in zip(table["key"], names, widths, strict=True):
                    targets[table["name"], key.get("name", "")] = (name, width)  # tables of switch statements have none
                for entry in table.get("entries", []):
                    for part, name, width in zip(entry["match_key"], names, widths, strict=True):
                        samples.setdefault(name, []).extend(_constant(part, width))
        later = [update for _, item in self._later for update in item.updates]
        for update in (*self.updates, *later):
            if update.entity.HasField("table_entry"):
                table = self.schema.tables[update.entity.table_entry.table_id]
                for field in update.entity.table_entry.match:
                    name, width = targets[table.name, table.match_fields[field.field_id].name]
                    samples.setdefault(name, []).extend(_written(field, width))
        for name, values in self.settings.get("values", {}).items():
            header, field = name.rsplit(".", 1)
            samples.setdefault((header, field), []).extend(_hint(value) for value in values)
        return samples

    def _width(self, target: Sequence[str]) -> int:
        types = {item["name"]: item for item in self.document["header_types"]}
        instances = {item["name"]: item["header_type"] for item in self.document["headers"]}
        if target[1] == "$valid$":
            return 1
        found = {field[0]: field[1] for field in types[instances[target[0]]]["fields"]}
        return int(found[target[1]])


def marker_round(frame: bytes) -> int | None:
    """The round of markers that a frame belongs to; None if it is no marker."""
    _, magic, rest = frame.partition(MAGIC)
    return int.from_bytes(rest[:4], "big") if magic else None


def _constant(part: Mapping[str, Any], width: int) -> list[Sample]:
    whole = (1 << width) - 1
    match part["match_type"]:
        case "exact":
            key = part["key"]
            return [Sample(int(key) if isinstance(key, bool) else int(key, 16), whole)]
        case "lpm":
            return [Sample(int(part["key"], 16), _prefix(part["prefix_length"], width))]
        case "ternary":
            return [Sample(int(part["key"], 16), int(part["mask"], 16))]
        case "range":
            return [Sample(int(part["start"], 16), whole), Sample(int(part["end"], 16), whole)]
        case _:
            return []


def _written(field: Any, width: int) -> list[Sample]:
    whole = (1 << width) - 1

    def number(value: bytes) -> int:
        return int.from_bytes(value, "big")

    match field.WhichOneof("field_match_type"):
        case "exact":
            return [Sample(number(field.exact.value), whole)]
        case "optional":
            return [Sample(number(field.optional.value), whole)]
        case "lpm":
            return [Sample(number(field.lpm.value), _prefix(field.lpm.prefix_len, width))]
        case "ternary":
            return [Sample(number(field.ternary.value), number(field.ternary.mask))]
        case "range":
            return [Sample(number(field.range.low), whole), Sample(number(field.range.high), whole)]
        case kind:
            raise ValueError(f"a match field of kind {kind}")


def _prefix(length: int, width: int) -> int:
    return (1 << width) - (1 << (width - length))


def _hint(value: int | str) -> Sample:
    """A number, or "value &&& mask"."""
    if isinstance(value, int):
        return Sample(value, -1)
    number, _, mask = value.partition("&&&")
    return Sample(int(number, 0), int(mask, 0) if mask else -1)
