# SPDX-License-Identifier: Apache-2.0
"""The entries of one table: the C side holds what packets need, this side what a controller wrote."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from gradlane_switch.ir.layout import TableKind, argument_words, layout_of, most_argument_words, pack
from gradlane_switch.ir.program import Program
from gradlane_switch.ir.tables import ActionCall, FieldKey, Table
from gradlane_switch.native.ffi import NULL, ffi, runtime
from gradlane_switch.state.changes import Changes, check_memory, entry_or_memory_error
from gradlane_switch.state.counts import Colours, CounterValue, MeterRates, colours_of, meter_config
from gradlane_switch.state.profiles import Chosen, ProfileState

EntryKey = tuple[tuple[FieldKey, ...], int]


class Entry(NamedTuple):
    """A table entry as it was written."""

    match: tuple[FieldKey, ...]
    priority: int
    call: ActionCall | Chosen
    metadata: bytes = b""
    controller_metadata: int = 0
    constant: bool = False
    idle_timeout: int = 0
    """ns without a hit after which the controller is notified; 0: never."""

    @property
    def key(self) -> EntryKey:
        """What identifies it."""
        return self.match, self.priority


class TableState:
    """The entries of one table."""

    def __init__(
        self,
        state: Any,
        changes: Changes,
        index: int,
        program: Program,
        table: Table,
        profile: ProfileState | None = None,
    ) -> None:
        self._state = state
        self._changes = changes
        self._index = index
        self._program = program
        self._profile = profile
        self._chosen: dict[EntryKey, tuple[Chosen, Any]] = {}
        self.table = table
        self.meters: dict[EntryKey, MeterRates] = {}
        # Entries with an idle timeout, by when that would end if they are not hit; of each, the latest one counts.
        self._idle: list[tuple[int, int, EntryKey]] = []
        self._idle_end: dict[EntryKey, int] = {}
        self._idle_count = 0
        self.layout = layout_of(table.keys)
        self.entries: dict[EntryKey, Entry] = {}
        self._handles: dict[EntryKey, Any] = {}
        arguments = most_argument_words(program, table)
        check_memory(
            runtime().gl_state_table(
                state, index, ffi.new("gl_table_shape *", self.layout.shape(arguments, table.direct_meter is not None))
            )
        )
        self.default: Entry | None = None
        self.reset_default()
        for entry in table.entries:
            priority = entry.priority if self.layout.kind is TableKind.LIST else 0
            self.insert(Entry(entry.match, priority, entry.call, constant=True))

    def insert(self, entry: Entry) -> None:
        """Adds an entry whose key is new."""
        values, operands = pack(self.layout, self.table.keys, entry.match)
        position, arguments, choice = self._action(entry.call)
        parts = values, operands, entry.priority, position, len(arguments), arguments, choice
        handle = runtime().gl_entry_new(self._state, self._index, *parts)
        try:
            self._changes.add(self._index, entry_or_memory_error(handle))
        except MemoryError:
            if self._profile is not None and not isinstance(entry.call, ActionCall):
                self._profile.release(entry.call, choice)
            if handle != NULL:
                self._changes.remove(self._index, handle)
            raise
        key = entry.key
        self._handles[key] = handle
        self.entries[key] = entry
        self._keep(key, entry, choice)

    def modify(self, entry: Entry) -> None:
        """Changes the action and the metadata of an entry that exists."""
        key = entry.key
        position, arguments, choice = self._action(entry.call)
        self._changes.set_entry(self._handles[key], position, arguments, choice)
        self.entries[key] = entry
        self._keep(key, entry, choice)

    def delete(self, key: EntryKey) -> None:
        """Removes an entry that exists."""
        self._changes.remove(self._index, self._handles.pop(key))
        del self.entries[key]
        self.meters.pop(key, None)
        self._idle_end.pop(key, None)
        self._release(key)

    def free_entries(self) -> None:
        """Lets controllers change the entries of the program: they are what the table begins with, and not constant."""
        for key, entry in self.entries.items():
            self.entries[key] = entry._replace(constant=False)

    def set_default(self, entry: Entry | None) -> None:
        """What a miss does; None is nothing at all."""
        position, arguments, _ = (len(self.table.actions), [], NULL) if entry is None else self._action(entry.call)
        handle = runtime().gl_table_default(self._state, self._index)
        self._changes.set_entry(handle, position, arguments, NULL)
        self.default = entry

    @property
    def initial_default(self) -> Entry | None:
        call = self.table.default
        return None if call is None else Entry((), 0, call, constant=self.table.const_default)

    def reset_default(self) -> None:
        """Makes a miss do what the program says."""
        self.set_default(self.initial_default)

    @property
    def default_is_initial(self) -> bool:
        """Whether a miss does what the program says, and no controller has changed it."""
        return self.default == self.initial_default

    def read_counters(self, keys: Sequence[EntryKey | None]) -> list[CounterValue]:
        """The direct counters of entries; None is the default entry."""
        out = ffi.new("gl_counter[]", len(keys))
        runtime().gl_entry_counters_read(self._state, len(keys), list(map(self._handle, keys)), out)
        return [CounterValue(item.packets, item.bytes) for item in out]

    def write_counter(self, key: EntryKey | None, value: CounterValue) -> None:
        """Sets the direct counter of an entry, or of the default entry."""
        self._changes.write_entry_counter(self._handle(key), (value.packets, value.bytes))

    def write_meter(self, key: EntryKey, rates: MeterRates | None) -> None:
        """Configures the direct meter of an entry, full of tokens; None is the default: every packet is green."""
        self._changes.write_entry_meter(self._handles[key], meter_config(rates))
        if rates is None:
            self.meters.pop(key, None)
        else:
            self.meters[key] = rates

    def read_colours(self, keys: Sequence[EntryKey]) -> list[Colours]:
        """What the direct meters of entries have counted."""
        out = ffi.new("gl_counter[]", 3 * len(keys))
        runtime().gl_entry_meters_read(self._state, len(keys), list(map(self._handle, keys)), out)
        return [colours_of(out, 3 * number) for number in range(len(keys))]

    def clear_colours(self, key: EntryKey) -> None:
        """Zeroes that."""
        self._changes.clear_entry_meter(self._handles[key])

    def last_hit(self, key: EntryKey) -> int:
        """When an entry was last hit, in ns of the packets' clock; 0 if it never was."""
        return self._handles[key].last_hit

    def touch(self, key: EntryKey, now: int) -> None:
        """Makes the idle time of an entry count from now."""
        self._handles[key].last_hit = now
        timeout = self.entries[key].idle_timeout
        if timeout:
            self._wait(key, now + timeout)
        else:
            self._idle_end.pop(key, None)

    def _wait(self, key: EntryKey, end: int) -> None:
        self._idle_count += 1
        self._idle_end[key] = end
        heapq.heappush(self._idle, (end, self._idle_count, key))

    @property
    def next_expiry(self) -> int | None:
        """The earliest time at which an entry may have been idle for too long; None if none can."""
        return self._idle[0][0] if self._idle else None

    def expired(self, now: int, looks: Iterator[object]) -> Iterator[Entry]:
        """The entries that have not been hit for their timeout, which restarts then. Each look at one takes an item."""
        for _ in looks:
            if not self._idle or self._idle[0][0] > now:
                return
            end, _, key = heapq.heappop(self._idle)
            entry = self.entries.get(key)
            if entry is None or self._idle_end.get(key) != end:
                continue
            later = self.last_hit(key) + entry.idle_timeout
            if later > end:
                self._wait(key, later)
            else:
                self._wait(key, now + entry.idle_timeout)
                yield entry

    def at(self, address: int) -> Entry | None:
        """The entry at an address of the C side; None if there is none, or no more."""
        for key, handle in self._handles.items():
            if int(ffi.cast("uintptr_t", handle)) == address:
                return self.entries[key]
        return None

    def _handle(self, key: EntryKey | None) -> Any:
        return runtime().gl_table_default(self._state, self._index) if key is None else self._handles[key]

    def _action(self, call: ActionCall | Chosen) -> tuple[int, list[int], Any]:
        """Position of the action, its arguments in words, and what the action is chosen from instead, if not NULL."""
        if not isinstance(call, ActionCall):
            assert self._profile is not None
            return len(self.table.actions), [], self._profile.acquire(call)
        words = argument_words(self._program.actions[call.action].params, call.arguments)
        return self.table.actions.index(call.action), words, NULL

    def _keep(self, key: EntryKey, entry: Entry, choice: Any) -> None:
        """Remembers what the entry's action is chosen from, and forgets what it was chosen from before."""
        self._release(key)
        if not isinstance(entry.call, ActionCall):
            self._chosen[key] = entry.call, choice

    def _release(self, key: EntryKey) -> None:
        if key in self._chosen:
            assert self._profile is not None
            self._profile.release(*self._chosen.pop(key))
