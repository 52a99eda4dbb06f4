# SPDX-License-Identifier: Apache-2.0
"""Who refers to whom: how many entries a reference finds, and how many refer to them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from typing import NamedTuple

from finsy.proto import rpc_code

from gradlane_switch.errors import EntityError
from gradlane_switch.ir.tables import ActionCall
from gradlane_switch.p4info.references import GROUPS, Place, References
from gradlane_switch.state.names import NameState, Uses
from gradlane_switch.state.profiles import ActionSet, Chosen
from gradlane_switch.state.tables import Entry


class Target(NamedTuple):
    """What is referred to: entries that have these values at a place."""

    place: Place
    values: tuple[int, ...]

    def __str__(self) -> str:
        values = ", ".join(f"{name} = {it}" for name, it in zip(self.place.field_names, self.values, strict=True))
        return f"{self.place.name} with {values}"


Names = list[tuple[str, Target]]
"""What something refers to, and whose the names are."""


class ReferenceState:
    """References of a program, counted, and kept whole: each change is made in the context of one of these methods.

    So `names` learns of it as well.
    """

    def __init__(self, references: References, names: NameState) -> None:
        self._references = references
        self._names = names
        self._places: dict[int, list[Place]] = {}
        for place in references.places:
            self._places.setdefault(place.table, []).append(place)
        self._present = Counter[Target]()
        self._uses = Counter[Target]()
        self._deferred = False

    def entry(self, table: int, old: Entry | None, new: Entry | None) -> AbstractContextManager[None]:
        """Around the change of an entry, or of a default entry (which has no key), of the table with an id.

        What was not there before is None, and what will be no more. Raises EntityError before the change: NOT_FOUND if
        it would refer to what is not there, FAILED_PRECONDITION if others refer to what would go.
        """
        refers = self._of_entry(table, new), self._of_entry(table, old)
        named = self._names.of_entry(table, new), self._names.of_entry(table, old)
        return self._changing(*refers, self._targets(table, new), self._targets(table, old), *named)

    def member(self, old: ActionCall | None, new: ActionCall | None) -> AbstractContextManager[None]:
        """Around the change of an action profile's member. As `entry`."""
        named = self._names.of_call(new), self._names.of_call(old)
        return self._changing(self._of_call(new), self._of_call(old), [], [], *named)

    def group(self, number: int, *, old: bool, new: bool) -> AbstractContextManager[None]:
        """Around the change of a multicast group, which was there or not, and will be or not. Raises as `entry`."""
        found = [Target(place, (number,)) for place in self._places.get(GROUPS, [])]
        return self._changing([], [], found if new else [], found if old else [])

    @contextmanager
    def deferred(self) -> Generator[None]:
        """Within it, changes may come in any order. Raises EntityError at the end if something is missing."""
        self._deferred = True
        try:
            yield
        finally:
            self._deferred = False
        for target, users in self._uses.items():
            if users and not self._present[target]:
                raise EntityError(rpc_code.NOT_FOUND, f"{_entries(users)} to {target}, and there is none")

    @contextmanager
    def _changing(
        self,
        new: Names,
        old: Names,
        new_targets: list[Target],
        old_targets: list[Target],
        new_named: Uses = (),
        old_named: Uses = (),
    ) -> Generator[None]:
        if not self._deferred:
            self._check(new, old, new_targets, old_targets)
        yield
        _count(self._present, new_targets, old_targets)
        _count(self._uses, [target for _, target in new], [target for _, target in old])
        self._names.count(new_named, old_named)

    def _check(self, new: Names, old: Names, new_targets: list[Target], old_targets: list[Target]) -> None:
        for name, target in new:
            if not self._present[target] and target not in new_targets:
                raise EntityError(rpc_code.NOT_FOUND, f"{name} refers to {target}, and there is none")
        for target in old_targets:
            left = self._present[target] - 1 + new_targets.count(target)
            users = self._uses[target] - sum(it == target for _, it in old)
            if users and not left:
                text = f"{_entries(users)} to {target}, so it can't be deleted"
                raise EntityError(rpc_code.FAILED_PRECONDITION, text)

    def _targets(self, table: int, entry: Entry | None) -> list[Target]:
        if entry is None or not entry.match:
            return []
        return [Target(it, tuple(entry.match[n].value for n in it.fields)) for it in self._places.get(table, [])]

    def _of_entry(self, table: int, entry: Entry | None) -> Names:
        if entry is None:
            return []
        found: Names = []
        for it in self._references.keys[table] if entry.match else ():
            if all(entry.match[n].operand for n in it.optional):
                found.append((it.name, Target(it.place, tuple(entry.match[n].value for n in it.sources))))
        for call in _calls(entry.call):
            found += self._of_call(call)
        return found

    def _of_call(self, call: ActionCall | None) -> Names:
        if call is None:
            return []
        return [
            (it.name, Target(it.place, tuple(call.arguments[n] for n in it.sources)))
            for it in self._references.parameters.get(call.action, ())
        ]


def _calls(chosen: ActionCall | Chosen) -> list[ActionCall]:
    """The actions of an entry that are its own: what it takes from a profile refers for itself."""
    match chosen:
        case ActionCall():
            return [chosen]
        case ActionSet(actions):
            return [it.call for it in actions]
        case _:
            return []


def _count(counts: Counter[Target], more: list[Target], fewer: list[Target]) -> None:
    # One by one: mostly there are none, and Counter.update looks first what kind of iterable it is.
    for target in more:
        counts[target] += 1
    for target in fewer:
        counts[target] -= 1
    for target in fewer:
        if not counts[target]:
            del counts[target]  # or controllers that write ever other values would fill memory


def _entries(number: int) -> str:
    return "1 entry refers" if number == 1 else f"{number} entries refer"
