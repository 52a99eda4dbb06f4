# SPDX-License-Identifier: Apache-2.0
"""Parser value sets: to the switch an exact table each, whose entries have no action."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gradlane_switch.changes import Changes, entry_or_memory_error
from gradlane_switch.expressions import split_words, words_of
from gradlane_switch.layout import Layout, TableKind
from gradlane_switch.native import NULL, ffi, runtime
from gradlane_switch.program import ValueSet


class ValueSetState:
    """The members of one value set. `table` is the number of its table. Raises MemoryError."""

    def __init__(self, state: Any, changes: Changes, table: int, value_set: ValueSet) -> None:
        self._state = state
        self._changes = changes
        self._table = table
        self._words = words_of(value_set.width)
        self._handles: dict[int, Any] = {}
        shape = Layout(TableKind.EXACT, self._words, (), 0, 0, None, 0, ()).shape(0)
        if runtime().gl_state_table(state, table, ffi.new("gl_table_shape *", shape)):
            raise MemoryError("the switch is out of memory")

    @property
    def members(self) -> tuple[int, ...]:
        """The members in the order in which they came."""
        return tuple(self._handles)

    def replace(self, members: Sequence[int]) -> None:
        """Makes these the members; those that stay are there all the time. Raises MemoryError."""
        for value in members:
            if value not in self._handles:
                key = split_words(value, self._words)
                handle = runtime().gl_entry_new(self._state, self._table, key, [], 0, 0, 0, [], NULL)
                self._changes.add(self._table, entry_or_memory_error(handle))
                self._handles[value] = handle
        for value in set(self._handles) - set(members):
            self._changes.remove(self._table, self._handles.pop(value))
