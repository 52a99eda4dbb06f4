# SPDX-License-Identifier: Apache-2.0
"""Action profiles: actions that entries of tables share, alone (members) or as groups that a hash chooses from.

A member has numbers, one for each copy of it that its greatest weight wants, and a group's choice is in the order of
these numbers, as behind simple_switch_grpc. The lowest free number comes first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from typing import Any

from gradlane_switch.ir.expressions import words_of
from gradlane_switch.ir.layout import argument_words
from gradlane_switch.ir.program import Program
from gradlane_switch.ir.tables import ActionCall
from gradlane_switch.native.ffi import NULL, ffi, runtime
from gradlane_switch.state.changes import Changes, entry_or_memory_error


@dataclass(frozen=True)
class MemberOf:
    """An entry's action is a member of the table's action profile."""

    member: int


@dataclass(frozen=True)
class GroupOf:
    """An entry's action is chosen from a group of the table's action profile."""

    group: int


@dataclass(frozen=True)
class Watch:
    """A port that a member depends on. `numbered`: the controller wrote it as a number, as before version 1.4."""

    port: int
    numbered: bool = False


@dataclass(frozen=True)
class WeightedAction:
    """One action of an entry that has several."""

    call: ActionCall
    weight: int
    watch: Watch | None = None


@dataclass(frozen=True)
class ActionSet:
    """An entry's action is chosen from actions of its own."""

    actions: tuple[WeightedAction, ...]


Chosen = MemberOf | GroupOf | ActionSet


@dataclass(frozen=True)
class GroupMember:
    """A member's part in a group."""

    member: int
    weight: int
    watch: Watch | None = None


@dataclass(frozen=True)
class ProfileGroup:
    """A group as it was written. `max_size` 0 is the profile's own."""

    members: tuple[GroupMember, ...]
    max_size: int = 0

    @property
    def size(self) -> int:
        """The sum of the weights."""
        return sum(item.weight for item in self.members)


@dataclass
class _Member:
    call: ActionCall
    entry: Any
    numbers: list[int]
    alone: Any
    entries: int = 0
    groups: dict[int, int] = field(default_factory=dict[int, int])
    """Weight by group."""


@dataclass
class _Group:
    written: ProfileGroup
    choice: Any
    entries: int = 0


@dataclass(frozen=True)
class _Own:
    """What an entry with a set of actions has made for it."""

    choice: Any
    members: tuple[Any, ...]
    numbers: tuple[int, ...]


_Part = tuple[int, Any, Watch | None]
"""A member's number, its entry, and what it depends on."""


class _Numbers:
    def __init__(self) -> None:
        self._free: list[int] = []
        self._next = 0

    def take(self) -> int:
        if self._free:
            return heappop(self._free)
        self._next += 1
        return self._next - 1

    def give(self, number: int) -> None:
        heappush(self._free, number)


class ProfileState:
    """Members and groups of one action profile. `positions`: where its tables have each of their actions."""

    def __init__(self, changes: Changes, program: Program, positions: Mapping[int, int]) -> None:
        self._changes = changes
        self._program = program
        self._positions = positions
        self._members: dict[int, _Member] = {}
        self._groups: dict[int, _Group] = {}
        self._numbers = _Numbers()
        self._own: dict[Any, _Own] = {}

    @property
    def members(self) -> dict[int, ActionCall]:
        """The members' actions by id."""
        return {number: item.call for number, item in self._members.items()}

    @property
    def groups(self) -> dict[int, ProfileGroup]:
        """The groups by id."""
        return {number: item.written for number, item in self._groups.items()}

    @property
    def sets(self) -> int:
        """How many entries have actions of their own."""
        return len(self._own)

    @property
    def member_count(self) -> int:
        """Members that controllers made, and those of entries with actions of their own."""
        return len(self._members) + sum(len(item.members) for item in self._own.values())

    def member_uses(self, number: int) -> int:
        """How many entries and groups refer to a member."""
        member = self._members[number]
        return member.entries + len(member.groups)

    def group_uses(self, number: int) -> int:
        """How many entries refer to a group."""
        return self._groups[number].entries

    def insert_member(self, number: int, call: ActionCall) -> None:
        """Adds a member whose id is new."""
        entry, own = self._new_entry(call), self._numbers.take()
        self._members[number] = _Member(call, entry, [own], self._new_choice([(own, entry, None)]))

    def modify_member(self, number: int, call: ActionCall) -> None:
        """Changes a member's action, for all that refer to it at once."""
        member = self._members[number]
        self._set(member.entry, call)
        member.call = call

    def delete_member(self, number: int) -> None:
        """Removes a member that nothing refers to."""
        member = self._members.pop(number)
        self._changes.keep(member)
        for item in member.numbers:
            self._numbers.give(item)

    def set_group(self, number: int, group: ProfileGroup) -> None:
        """Creates or changes a group, of members that exist."""
        found = self._groups.get(number)
        if found is None:
            found = self._groups[number] = _Group(group, self._new_choice([]))
        weights = {item.member: item.weight for item in group.members}
        touched = sorted({item.member for item in found.written.members} | set(weights))
        for member in touched:
            self._weigh(self._members[member], number, weights.get(member, 0))
        parts = [
            (self._members[item.member].numbers[position], self._members[item.member].entry, item.watch)
            for item in group.members
            for position in range(item.weight)
        ]
        self._choose(found.choice, parts)
        found.written = group

    def _weigh(self, member: _Member, group: int, weight: int) -> None:
        if weight:
            member.groups[group] = weight
        else:
            member.groups.pop(group, None)
        wanted = max(member.groups.values(), default=1)
        while len(member.numbers) < wanted:
            member.numbers.append(self._numbers.take())
        while len(member.numbers) > wanted:
            self._numbers.give(member.numbers.pop())

    def delete_group(self, number: int) -> None:
        """Removes a group that nothing refers to."""
        self.set_group(number, replace(self._groups[number].written, members=()))
        self._changes.keep(self._groups.pop(number))

    def acquire(self, chosen: Chosen) -> Any:
        """What the C entry that refers to it is to hold, until `release`."""
        match chosen:
            case MemberOf(number):
                self._members[number].entries += 1
                return self._members[number].alone
            case GroupOf(number):
                self._groups[number].entries += 1
                return self._groups[number].choice
            case ActionSet(actions):
                return self._acquire_set(actions)

    def _acquire_set(self, actions: tuple[WeightedAction, ...]) -> Any:
        members = [self._new_entry(item.call) for item in actions]
        parts = [
            (self._numbers.take(), member, item.watch)
            for member, item in zip(members, actions, strict=True)
            for _ in range(item.weight)
        ]
        choice = self._new_choice(parts)
        self._own[choice] = _Own(choice, tuple(members), tuple(number for number, _, _ in parts))
        return choice

    def release(self, chosen: Chosen, choice: Any) -> None:
        """The C entry does not hold it any more."""
        match chosen:
            case MemberOf(number):
                self._members[number].entries -= 1
            case GroupOf(number):
                self._groups[number].entries -= 1
            case ActionSet():
                own = self._own.pop(choice)
                self._choose(choice, [])
                self._changes.keep(own)
                for number in own.numbers:
                    self._numbers.give(number)

    def _new_entry(self, call: ActionCall) -> Any:
        most = max(sum(map(words_of, self._program.actions[index].params)) for index in self._positions)
        entry = ffi.gc(entry_or_memory_error(runtime().gl_member_new(most)), runtime().gl_member_free)
        self._set(entry, call)
        return entry

    def _set(self, entry: Any, call: ActionCall) -> None:
        arguments = argument_words(self._program.actions[call.action].params, call.arguments)
        position = self._positions[call.action]
        self._changes.set_entry(entry, position, arguments, NULL)

    def _new_choice(self, parts: list[_Part]) -> Any:
        choice = ffi.gc(entry_or_memory_error(runtime().gl_choice_new()), runtime().gl_choice_free)
        self._choose(choice, parts)
        return choice

    def _choose(self, choice: Any, parts: list[_Part]) -> None:
        ordered = sorted(parts, key=lambda part: part[0])
        ports = [None if watch is None else watch.port for _, _, watch in ordered]
        self._changes.set_choice(choice, [entry for _, entry, _ in ordered], ports)
