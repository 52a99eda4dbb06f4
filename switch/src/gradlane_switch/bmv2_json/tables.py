# SPDX-License-Identifier: Apache-2.0
"""Reads one control flow (pipeline) of the BMv2 JSON: tables, conditionals and how they follow one another."""

from __future__ import annotations

from dataclasses import dataclass

from gradlane_switch.bmv2_json.document import Node
from gradlane_switch.bmv2_json.expressions import Scope, find_field, hex_value, parse_value, require_exact
from gradlane_switch.ir.expressions import Valid
from gradlane_switch.ir.layout import too_long
from gradlane_switch.ir.tables import (
    Action,
    ActionCall,
    Conditional,
    ConstEntry,
    ControlFlow,
    ControlNode,
    FieldKey,
    Key,
    MatchKind,
    Table,
)


@dataclass(frozen=True)
class Attached:
    """What tables have besides entries: those with direct counters, direct meters by table, profiles by name."""

    counters: set[str]
    meters: dict[str, int]
    profiles: dict[str, int]


def load_pipeline(
    node: Node,
    scope: Scope,
    actions: tuple[Action, ...],
    action_indices: dict[int, int],
    attached: Attached,
    first_table: int,
) -> ControlFlow:
    """One pipeline. `first_table` is the program-wide index of its first table. Raises ProgramError."""
    for call in node.children("action_calls"):
        raise call.refuse(f"action calls outside tables are not supported: {call.text('name')}")
    tables, conditionals = list(node.children("tables")), list(node.children("conditionals"))
    indices = {item.text("name"): index for index, item in enumerate([*tables, *conditionals])}
    reader = _TableReader(scope, actions, action_indices, attached, indices)
    nodes: list[ControlNode] = [reader.table(item) for item in tables]
    for item in conditionals:
        condition = require_exact(parse_value(item.child("expression"), scope), item, "a condition")
        nodes.append(
            Conditional(
                condition, reader.follow(item.raw("true_next")), reader.follow(item.raw("false_next")), item.source
            )
        )
    start = node.optional_text("init_table")
    numbers = {index: first_table + index for index in range(len(tables))}
    return ControlFlow(node.text("name"), None if start is None else indices[start], tuple(nodes), numbers)


def successors(node: ControlNode) -> list[int | None]:
    """The nodes that may follow a node."""
    if isinstance(node, Conditional):
        return [node.if_true, node.if_false]
    return [node.next_hit, node.next_miss, *node.next_by_action.values()]


class _TableReader:
    def __init__(
        self,
        scope: Scope,
        actions: tuple[Action, ...],
        action_indices: dict[int, int],
        attached: Attached,
        nodes: dict[str, int],
    ) -> None:
        self.scope = scope
        self.actions = actions
        self.action_indices = action_indices
        self.attached = attached
        self.nodes = nodes

    def follow(self, name: str | None) -> int | None:
        """The node that a name stands for; None is the end of the pipeline."""
        return None if name is None else self.nodes[name]

    def table(self, node: Node) -> Table:
        name = node.text("name")
        kind = node.text("type")
        if kind not in ("simple", "indirect", "indirect_ws"):
            raise node.refuse(f"tables of type {kind!r} are not supported: {name}")
        profile = None if kind == "simple" else self._attached(node, "action_profile", self.attached.profiles)
        if node.has("direct_meters") and name not in self.attached.meters:
            raise node.refuse(f"direct meter {node.text('direct_meters')} of {name} does not exist")
        keys = tuple(self._key(item, name) for item in node.children("key"))
        if what := too_long(keys):
            raise node.refuse(f"a {what} is not supported: {name}")
        if sum(key.kind is MatchKind.LPM for key in keys) > 1:
            raise node.refuse(f"more than one lpm field in a table is not supported: {name}")
        numbers = tuple(self.action_indices[number] for number in node.sequence("action_ids"))
        if profile is not None:
            # Tables that share it list them in any order; a member means the one with its place in this order.
            numbers = tuple(sorted(numbers, key=lambda number: self.actions[number].name))
        following = node.items("next_tables")
        by_hit = "__HIT__" in following or "__MISS__" in following
        by_name = {} if by_hit else following
        default = node.child("default_entry") if node.has("default_entry") else None
        call = self._call(default) if default else None
        entries = self._entries(list(node.children("entries")), keys)
        for used in (*(entry.call for entry in entries), *([call] if call else [])):
            if used.action not in numbers:
                raise node.refuse(f"{name} has an entry with {self.actions[used.action].name}, which it does not list")
        return Table(
            name=name,
            keys=keys,
            actions=numbers,
            default=call,
            const_default=default is not None and (default.flag("action_entry_const") or default.flag("action_const")),
            entries=entries,
            size=node.integer("max_size"),
            direct_counter=name in self.attached.counters or node.flag("with_counters"),
            next_by_action={number: self.follow(by_name.get(self.actions[number].name)) for number in numbers},
            next_hit=self.follow(following.get("__HIT__")),
            next_miss=self.follow(following.get("__MISS__") if by_hit else node.optional_text("base_default_next")),
            by_hit=by_hit,
            immutable=node.has("entries"),
            profile=profile,
            direct_meter=self.attached.meters.get(name),
            timeout=node.flag("support_timeout"),
        )

    @staticmethod
    def _attached(node: Node, key: str, known: dict[str, int]) -> int:
        if node.text(key) not in known:
            raise node.refuse(f"{key} {node.text(key)} does not exist")
        return known[node.text(key)]

    def _key(self, node: Node, table: str) -> Key:
        kind = node.text("match_type")
        target = find_field(node.sequence("target"), node, self.scope)
        width = 1 if isinstance(target, Valid) else target.width
        name = node.optional_text("name") or ".".join(node.sequence("target"))
        try:
            match = MatchKind.EXACT if kind == "valid" else MatchKind(kind)
        except ValueError:
            raise node.refuse(f"match kind {kind!r} is not supported: {table}") from None
        full = (1 << width) - 1
        mask = hex_value(node.text("mask"), node) & full if node.has("mask") else full
        return Key(match, width, name, target, mask)

    def _call(self, node: Node) -> ActionCall:
        index = self.action_indices[node.integer("action_id")]
        arguments = tuple(hex_value(text, node) for text in node.sequence("action_data"))
        widths = self.actions[index].params
        if len(arguments) != len(widths):
            raise node.refuse(f"{len(arguments)} arguments for an action of {len(widths)}: {self.actions[index].name}")
        return ActionCall(
            index, tuple(value & ((1 << width) - 1) for value, width in zip(arguments, widths, strict=True))
        )

    def _entries(self, nodes: list[Node], keys: tuple[Key, ...]) -> tuple[ConstEntry, ...]:
        # In BMv2's JSON the lowest number wins, in P4Runtime the highest.
        numbers = [item.integer("priority") if item.has("priority") else 0 for item in nodes]
        highest = max(numbers, default=0) + 1
        return tuple(self._entry(item, keys, highest - number) for item, number in zip(nodes, numbers, strict=True))

    def _entry(self, node: Node, keys: tuple[Key, ...], priority: int) -> ConstEntry:
        match = tuple(self._field_key(item, key) for item, key in zip(node.children("match_key"), keys, strict=True))
        return ConstEntry(match, self._call(node.child("action_entry")), priority)

    def _field_key(self, node: Node, key: Key) -> FieldKey:
        full = (1 << key.width) - 1
        if key.kind is MatchKind.RANGE:
            return FieldKey(hex_value(node.text("start"), node) & full, hex_value(node.text("end"), node) & full)
        raw = node.raw("key")
        value = int(raw) if isinstance(raw, bool) else hex_value(node.text("key"), node)
        if key.kind is MatchKind.LPM:
            length = node.integer("prefix_length")
            if not 0 <= length <= key.width:
                raise node.refuse(f"a prefix of {length} bits in a field of {key.width}")
            return FieldKey(value & full, length)
        if key.kind in (MatchKind.TERNARY, MatchKind.OPTIONAL):
            mask = hex_value(node.text("mask"), node) & full
            return FieldKey(value & mask, mask)
        return FieldKey(value & full)
