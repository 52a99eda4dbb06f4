# SPDX-License-Identifier: Apache-2.0
"""Reads the BMv2 JSON that p4c emits into a `Program`, and refuses by name what this switch does not support."""

from __future__ import annotations

from dataclasses import replace

from gradlane_switch.bmv2_json.document import Node, read
from gradlane_switch.bmv2_json.externs import ExternReader
from gradlane_switch.bmv2_json.field_lists import FieldLists
from gradlane_switch.bmv2_json.headers import HeaderReader
from gradlane_switch.bmv2_json.parser import ParserReader, load_value_sets, with_keys
from gradlane_switch.bmv2_json.statements import StatementReader
from gradlane_switch.bmv2_json.tables import Attached, load_pipeline, successors
from gradlane_switch.errors import ProgramError
from gradlane_switch.ir.expressions import MAX_WIDTH, Param, words_of
from gradlane_switch.ir.graph import has_loop
from gradlane_switch.ir.program import Program
from gradlane_switch.ir.statements import (
    Assert,
    Assign,
    HashTo,
    Jump,
    Learn,
    Log,
    MarkToDrop,
    RandomTo,
    Statement,
    Truncate,
)
from gradlane_switch.ir.tables import Action, Table

# What a deparser may do besides sending headers. Drops and digests come too late there: nothing follows, as on BMv2.
_IN_DEPARSER = (Assert, Assign, HashTo, Learn, Log, MarkToDrop, RandomTo, Truncate)


def load(text: str | bytes) -> Program:
    """The program in a BMv2 JSON document, alone or in a p4.tmp.P4DeviceConfig.

    Raises ProgramError naming what is malformed or unsupported.
    """
    root = read(text)
    version = root.child("__meta__").sequence("version")
    if not version or version[0] != 2:
        raise ProgramError(f"BMv2 JSON version {version} is not supported: 2.x is")
    for part in root.children("extern_instances"):
        raise part.refuse(f"extern instances are not supported: {part.optional_text('name') or 'extern_instances'}")
    try:
        return _Loader(root).load()
    except (KeyError, IndexError, TypeError, ValueError, RecursionError) as error:
        raise ProgramError(f"the program is not well-formed BMv2 JSON: {error!r}") from error


class _Loader:
    def __init__(self, root: Node) -> None:
        self.root = root
        self.headers = HeaderReader(root)
        self.scope = self.headers.scope()
        self.errors = {str(name): int(value) for name, value in root.sequence("errors")}
        self.externs = ExternReader(root, self.scope, self.headers.headers)
        self.lists = FieldLists(root, self.scope)
        self.statements = StatementReader(self.headers, self.scope, self.externs, self.lists)

    def load(self) -> Program:
        action_nodes = list(self.root.children("actions"))
        action_indices = {item.integer("id"): index for index, item in enumerate(action_nodes)}
        actions = tuple(self._load_action(item) for item in action_nodes)
        pipelines = {item.text("name"): item for item in self.root.children("pipelines")}
        attached = Attached(
            self.externs.direct_counters,
            {item.table: index for index, item in enumerate(self.externs.direct_meters)},
            {item.name: index for index, item in enumerate(self.externs.profiles)},
        )
        table_count = 0
        loaded = {}
        for name in ("ingress", "egress"):
            if name not in pipelines:
                raise ProgramError(f"the program has no pipeline {name!r}: is it a v1model program?")
            loaded[name] = load_pipeline(pipelines[name], self.scope, actions, action_indices, attached, table_count)
            table_count += len(loaded[name].tables)
        self._check_profiles(actions, [it for part in loaded.values() for it in part.nodes if isinstance(it, Table)])
        order, body = self._load_deparser()
        value_sets = load_value_sets(self.root)
        start, parser = ParserReader(self.scope, self.headers.headers, value_sets, self.statements.read).parser(
            self.root
        )
        for pipeline in loaded.values():
            if has_loop([successors(node) for node in pipeline.nodes]):
                raise ProgramError(f"loops in the {pipeline.name} are not supported")
        return Program(
            headers=self.headers.headers,
            stacks=self.headers.stacks,
            unions=self.headers.unions,
            value_sets=with_keys(value_sets, parser),
            messages=tuple(self.statements.messages),
            errors=self.errors,
            parser_start=start,
            parser=parser,
            actions=actions,
            ingress=loaded["ingress"],
            egress=loaded["egress"],
            deparser=order,
            deparser_body=body,
            calculations=tuple(self.externs.calculations),
            checksums=self.externs.checksums,
            counters=self.externs.counters,
            meters=self.externs.meters,
            direct_meters=self.externs.direct_meters,
            profiles=self.externs.profiles,
            registers=self.externs.registers,
            field_lists=self.lists.field_lists,
            digests=self.lists.digests,
            standard=self.headers.standard,
        )

    def _check_profiles(self, actions: tuple[Action, ...], tables: list[Table]) -> None:
        """Tables that share a profile have the same actions, of which each may have copies of its own."""
        shared: dict[int, list[tuple[str, tuple[int, ...]]]] = {}
        for table in tables:
            listed = [(actions[number].name, actions[number].params) for number in table.actions]
            if table.profile is not None and shared.setdefault(table.profile, listed) != listed:
                name = self.externs.profiles[table.profile].name
                raise ProgramError(f"tables with different actions that share {name} are not supported: {table.name}")

    # Deparser

    def _load_deparser(self) -> tuple[tuple[int, ...], tuple[Statement, ...]]:
        deparsers = list(self.root.children("deparsers"))
        if len(deparsers) != 1:
            raise ProgramError(f"{len(deparsers)} deparsers are not supported: a v1model program has one")
        body: list[Statement] = []
        for item in deparsers[0].children("primitives"):
            statement = self.statements.read(item, self.scope)
            if not isinstance(statement, _IN_DEPARSER):
                raise item.refuse(f"{item.text('op')} in the deparser is not supported")
            body.append(statement)
        return tuple(self.scope.headers[name] for name in deparsers[0].sequence("order")), tuple(body)

    # Actions

    def _load_action(self, node: Node) -> Action:
        params = tuple(item.integer("bitwidth") for item in node.children("runtime_data"))
        places: list[Param] = []
        for width in params:
            if not 0 < width <= MAX_WIDTH:
                raise node.refuse(f"an action parameter of {width} bits is not supported (at most {MAX_WIDTH})")
            places.append(Param(places[-1].word + words_of(places[-1].width) if places else 0, width))
        scope = replace(self.scope, params=tuple(places))
        primitives = list(node.children("primitives"))
        body = tuple(self.statements.read(item, scope) for item in primitives)
        for statement, item in zip(body, primitives, strict=True):
            if isinstance(statement, Jump) and not 0 <= statement.destination <= len(body):
                raise item.refuse(f"a jump to {statement.destination}, in an action of {len(body)} primitives")
        return Action(
            node.text("name"), params, body, tuple(item.text("name") for item in node.children("runtime_data"))
        )
