# SPDX-License-Identifier: Apache-2.0
"""Which strings of translated types are in use, so that their numbers stay theirs."""

from __future__ import annotations

from collections.abc import Sequence

from gradlane_switch.ir.tables import ActionCall, MatchKind
from gradlane_switch.p4info.schema import Schema
from gradlane_switch.p4info.translation import Names
from gradlane_switch.state.profiles import ActionSet
from gradlane_switch.state.tables import Entry

Uses = Sequence[tuple[Names, int]]
"""Strings that something has, by their type and number."""


class NameState:
    """The strings of a program. Its parts have been told apart once, so that most programs pay nothing."""

    def __init__(self, schema: Schema) -> None:
        self._names = schema.names
        self._keys: dict[int, list[tuple[int, Names, bool]]] = {}
        self._parameters: dict[int, list[tuple[int, Names]]] = {}
        for names in self._names:
            names.clear()
        for table in schema.tables.values() if self._names else ():
            self._keys[table.id] = [
                (position, field.translation, field.key.kind is MatchKind.OPTIONAL)
                for position, field in enumerate(table.fields)
                if isinstance(field.translation, Names)
            ]
            for action in table.actions:
                found = [(n, action.translations.get(number)) for n, (number, _) in enumerate(action.params)]
                self._parameters[action.index] = [(n, names) for n, names in found if isinstance(names, Names)]

    def of_entry(self, table: int, entry: Entry | None) -> Uses:
        """What an entry, or a default entry, of the table with an id has."""
        if entry is None or not self._names:
            return ()
        found = [
            (names, entry.match[position].value)
            for position, names, optional in (self._keys[table] if entry.match else ())
            if not optional or entry.match[position].operand
        ]
        calls = [it.call for it in entry.call.actions] if isinstance(entry.call, ActionSet) else [entry.call]
        for call in calls:
            found += self.of_call(call if isinstance(call, ActionCall) else None)
        return found

    def of_call(self, call: ActionCall | None) -> Uses:
        """What an action has."""
        if call is None or not self._names:
            return ()
        return [(names, call.arguments[n]) for n, names in self._parameters.get(call.action, ())]

    @staticmethod
    def count(new: Uses, old: Uses) -> None:
        """Takes note of what something has now, and had before."""
        for names, number in new:
            names.hold(number)
        for names, number in old:
            names.release(number)

    def settle(self) -> None:
        """Before a request: forgets what an earlier one named and did not make."""
        for names in self._names:
            names.settle()
