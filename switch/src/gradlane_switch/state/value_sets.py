# SPDX-License-Identifier: Apache-2.0
"""Parser value sets: to the switch a table each, whose entries have no action."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gradlane_switch.ir.layout import layout_of, pack
from gradlane_switch.ir.parser import ValueSet
from gradlane_switch.ir.tables import FieldKey
from gradlane_switch.native.ffi import NULL, ffi, runtime
from gradlane_switch.state.changes import Changes, check_memory, entry_or_memory_error

Member = tuple[FieldKey, ...]


class ValueSetState:
    """The members of one value set. `table` is the number of its table. Raises MemoryError."""

    def __init__(self, state: Any, changes: Changes, table: int, value_set: ValueSet) -> None:
        self._state = state
        self._changes = changes
        self._table = table
        self._keys = value_set.keys
        self._layout = layout_of(value_set.keys)
        self._handles: dict[Member, Any] = {}
        check_memory(runtime().gl_state_table(state, table, ffi.new("gl_table_shape *", self._layout.shape(0))))

    @property
    def members(self) -> tuple[Member, ...]:
        """The members in the order in which they came."""
        return tuple(self._handles)

    def replace(self, members: Sequence[Member]) -> None:
        """Makes these the members; those that stay are there all the time. Raises MemoryError."""
        for member in members:
            if member not in self._handles:
                values, operands = pack(self._layout, self._keys, member)
                handle = runtime().gl_entry_new(self._state, self._table, values, operands, 0, 0, 0, [], NULL)
                self._changes.add(self._table, entry_or_memory_error(handle))
                self._handles[member] = handle
        for member in set(self._handles) - set(members):
            self._changes.remove(self._table, self._handles.pop(member))
