# SPDX-License-Identifier: Apache-2.0
"""What the packet tests reach of the P4 program: from what gradlane-switch says that it executed, and the source lines
in the BMv2 JSON.

A table's actions, parser states and their transitions are named; a line is a table, a conditional, a statement of an
action or the head of a parser state. The declarative parts (deparser, checksums) have no steps and are not counted, nor
are lines that only give a constant its name. What is inside an action is reached when the action runs.
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

_DECLARATIONS = ("types.p4", "arch.p4", "headers.p4", "metadata.p4")
_Line = tuple[str, int]
# By program, where the coverage is asked for.
COVERAGE = pytest.StashKey[dict[Path, "Coverage"]]()


def coverage_of(config: pytest.Config, program: Path) -> "Coverage | None":
    """What collects the coverage of one of the programs."""
    return config.stash.get(COVERAGE, {}).get(program)


class Coverage:
    """Collects what was reached of a program; `sources` is the folder that file names in the JSON are relative to."""

    def __init__(self, program: str, document: Mapping[str, Any], sources: Path, reasons: Iterable[Any]) -> None:
        self._program = program
        self._all_reasons = [reason.name for reason in reasons]
        (parser,) = document["parsers"]
        self._start = parser["init_state"]
        self._states = {state["name"]: state for state in parser["parse_states"]}
        actions = {action["id"]: action for action in document["actions"]}
        # By table and action. p4c makes a table of its own for statements between tables: those are lines only.
        self._actions: dict[tuple[str, str], set[_Line]] = {}
        self._named: set[tuple[str, str]] = set()
        self._tables: dict[str, set[_Line]] = {}
        self._conditions: dict[str, str] = {}
        for pipeline in document["pipelines"]:
            for table in pipeline["tables"]:
                name, made = table["name"], table["name"].startswith("tbl_")
                self._tables[name] = set() if made else _lines([table])
                for action, number in zip(table["actions"], table["action_ids"], strict=True):
                    self._actions[name, action] = _lines(actions[number]["primitives"])
                    if not made and action != "NoAction":  # p4c's own: a miss
                        self._named.add((name, action))
            for conditional in pipeline["conditionals"]:
                where = conditional.get("source_info")
                if where is None:
                    continue  # p4c's own: whether a `return` was met
                key = f"{where['filename']}:{where['line']}"
                assert key not in self._conditions, "each conditional must have a line of its own"
                self._conditions[key] = where["source_fragment"]
        self._state_lines = _state_lines(self._states, sources)
        self._transitions = {
            (name, each["next_state"] or "accept")
            for name, state in self._states.items()
            for each in state["transitions"]
        }
        self._seen_states: set[str] = set()
        self._seen_transitions: set[tuple[str, str]] = set()
        self._seen_actions: set[tuple[str, str]] = set()
        self._seen_tables: set[tuple[str, bool]] = set()
        self._seen_conditions: set[tuple[str, bool]] = set()
        self._reasons: dict[str, set[str]] = {}

    def observe(self, events: Iterable[Mapping[str, Any]]) -> None:
        """Takes the events of a packet, as gradlane-switch traces them."""
        state = table = None
        for event in events:
            match event["event"]:
                case "state":
                    if state is not None:
                        self._seen_transitions.add((state, event["name"]))
                    state = event["name"]
                    self._seen_states.add(state)
                case "parsed":
                    if event["error"] == "NoError" and state is not None:
                        self._seen_transitions.add((state, "accept"))
                case "condition":
                    self._seen_conditions.add((event["source"], event["holds"]))
                case "table":
                    table = event["name"]
                    self._seen_tables.add((table, event["hit"]))
                case "action":
                    assert table is not None
                    self._seen_actions.add((table, event["name"]))
                case _:
                    pass

    def decided(self, target: str, reasons: Iterable[Any]) -> None:
        """Takes the reasons that a target's counters have told."""
        for reason in reasons:
            self._reasons.setdefault(target, set()).add(reason.name)

    @property
    def complete(self) -> bool:
        """Whether every action of every table and every parser state was reached."""
        return not (self._named - self._seen_actions or self._states.keys() - self._seen_states)

    def report(self) -> str:
        """A table of figures, and a line for each thing that was not reached."""
        branches = {(key, way) for key in self._conditions for way in (True, False)}
        outcomes = {(name, hit) for name, lines in self._tables.items() if lines for hit in (True, False)}
        lines = {line for each in (*self._actions.values(), *self._tables.values()) for line in each}
        lines |= {_split(key) for key in self._conditions} | set(self._state_lines.values())
        seen = {line for key in self._seen_actions for line in self._actions[key]}
        seen |= {line for name, _ in self._seen_tables for line in self._tables[name]}
        seen |= {_split(key) for key, _ in self._seen_conditions if key in self._conditions}
        seen |= {self._state_lines[name] for name in self._seen_states}
        missing: list[str] = []
        figures: list[str] = []

        def add(what: str, wanted: Iterable[Any], reached: Iterable[Any], say: Any) -> None:
            left = sorted(set(wanted) - set(reached))
            count = len(set(wanted))
            share = 100 * (count - len(left)) / count
            figures.append(f"  {what:24}{count - len(left):5} of {count:4}  {share:5.1f} %")
            missing.extend(f"  {say(each)}" for each in left)

        add("actions of tables", self._named, self._seen_actions, lambda it: f"table {it[0]}: action {it[1]}")
        add("parser states", self._states, self._seen_states, lambda it: f"parser state {it}")
        add("parser transitions", self._transitions, self._seen_transitions, lambda it: f"parser: {it[0]} to {it[1]}")
        add(
            "conditionals, both ways",
            branches,
            self._seen_conditions,
            lambda it: f"{it[0]}: never {str(it[1]).lower()}: {self._conditions[it[0]]}",
        )
        add(
            "tables, hit and miss",
            outcomes,
            self._seen_tables,
            lambda it: f"table {it[0]}: no {['miss', 'hit'][it[1]]}",
        )
        add("lines", lines, seen, lambda it: f"{it[0]}:{it[1]}")
        for target, reasons in sorted(self._reasons.items()):
            add(f"reasons, {target}", self._all_reasons, reasons, lambda it: f"reason {it}")
        text = [f"What tests/p4src reaches of {self._program} (steps as gradlane-switch tells them)", *figures]
        text += ["Not reached:", *(missing or ["  nothing"])]
        text += [
            "BMv2 runs the same tests. Without logging and events compiled in it tells no steps, so of what it reached",
            "only the reasons are known, from the counter `decisions`.",
        ]
        return "\n".join(text) + "\n"


def _lines(items: Iterable[Mapping[str, Any]]) -> set[_Line]:
    found: set[_Line] = set()
    for item in items:
        where = item.get("source_info")
        if where is not None and not where["filename"].endswith(_DECLARATIONS):
            found.add((where["filename"], where["line"]))
    return found


def _split(key: str) -> _Line:
    name, _, line = key.rpartition(":")
    return name, int(line)


def _state_lines(states: Mapping[str, Any], sources: Path) -> dict[str, _Line]:
    """The JSON has no lines of parser states. The source has those of all profiles."""
    found: dict[str, _Line] = {}
    for number, line in enumerate((sources / "v1model" / "parser.p4").read_text().splitlines(), 1):
        if (head := re.match(r"\s*state (\w+) \{", line)) and head[1] in states:
            found[head[1]] = "v1model/parser.p4", number
    assert found.keys() == states.keys()
    return found
