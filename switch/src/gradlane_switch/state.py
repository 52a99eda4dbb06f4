# SPDX-License-Identifier: Apache-2.0
"""The forwarding state of one program: what its tables, counters, meters, registers and groups hold.

The C side holds what packets need; this side holds what a controller wrote, so that it reads back as written.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gradlane_switch.layout import TableKind, layout_of, pack
from gradlane_switch.native import NULL, ffi, runtime
from gradlane_switch.program import ActionCall, FieldKey, Program, Table

EntryKey = tuple[tuple[FieldKey, ...], int]


@dataclass(frozen=True)
class CounterValue:
    """Packets and bytes."""

    packets: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class MeterRates:
    """Rates in bytes/s or packets/s, bursts in bytes or packets (RFC 2698)."""

    cir: int
    cburst: int
    pir: int
    pburst: int


@dataclass(frozen=True)
class Replica:
    """One copy of a multicast packet."""

    port: int
    instance: int


@dataclass(frozen=True)
class Group:
    """A multicast group."""

    replicas: tuple[Replica, ...]
    metadata: bytes = b""


@dataclass(frozen=True)
class Entry:
    """A table entry as it was written. `match` and `priority` identify it."""

    match: tuple[FieldKey, ...]
    priority: int
    call: ActionCall
    metadata: bytes = b""
    controller_metadata: int = 0
    constant: bool = False


class Lock:
    """The lock that the forwarding thread shares with the state's writers."""

    def __init__(self) -> None:
        self.handle: Any = ffi.gc(_memory(runtime().gl_lock_new()), runtime().gl_lock_free)


class TableState:
    """The entries of one table."""

    def __init__(self, state: Any, index: int, program: Program, table: Table) -> None:
        self._state = state
        self._index = index
        self.table = table
        self.layout = layout_of(table)
        self.entries: dict[EntryKey, Entry] = {}
        self._handles: dict[EntryKey, Any] = {}
        arguments = max((len(program.actions[number].params) for number in table.actions), default=0)
        kind = int(self.layout.kind)
        _check(runtime().gl_state_table(state, index, kind, self.layout.stored_words, arguments))
        self.default: Entry | None = None
        self.set_default(None if table.default is None else Entry((), 0, table.default, constant=table.const_default))
        for entry in table.entries:
            priority = entry.priority if self.layout.kind is TableKind.LIST else 0
            self.insert(Entry(entry.match, priority, entry.call, constant=True))

    def insert(self, entry: Entry) -> None:
        """Adds an entry whose key is new."""
        values, operands = pack(self.layout, self.table.keys, entry.match)
        prefix = prefix_width = 0
        if self.layout.prefix_field is not None:
            prefix = entry.match[self.layout.prefix_field].operand
            prefix_width = self.table.keys[self.layout.prefix_field].width
        position, arguments = self._action(entry.call)
        handle = runtime().gl_table_insert(
            self._state,
            self._index,
            values,
            operands,
            prefix,
            prefix_width,
            entry.priority,
            position,
            len(arguments),
            arguments,
        )
        self._handles[entry.match, entry.priority] = _memory(handle)
        self.entries[entry.match, entry.priority] = entry

    def modify(self, entry: Entry) -> None:
        """Changes the action and the metadata of an entry that exists."""
        key = entry.match, entry.priority
        position, arguments = self._action(entry.call)
        runtime().gl_entry_set(self._state, self._handles[key], position, len(arguments), arguments)
        self.entries[key] = entry

    def delete(self, key: EntryKey) -> None:
        """Removes an entry that exists."""
        runtime().gl_table_remove(self._state, self._index, self._handles.pop(key))
        del self.entries[key]

    def set_default(self, entry: Entry | None) -> None:
        """What a miss does; None is nothing at all."""
        position, arguments = (len(self.table.actions), []) if entry is None else self._action(entry.call)
        handle = runtime().gl_table_default(self._state, self._index)
        runtime().gl_entry_set(self._state, handle, position, len(arguments), arguments)
        self.default = entry

    def reset_default(self) -> None:
        """What the program said a miss does."""
        call = self.table.default
        self.set_default(None if call is None else Entry((), 0, call, constant=self.table.const_default))

    @property
    def default_is_initial(self) -> bool:
        """Whether a miss does what the program said, and no controller has changed it."""
        entry = self.default
        call = self.table.default
        return entry == (None if call is None else Entry((), 0, call, constant=self.table.const_default))

    def read_counter(self, key: EntryKey | None) -> CounterValue:
        """The direct counter of an entry, or of the default entry."""
        out = ffi.new("gl_counter *")
        runtime().gl_entry_counter_read(self._state, self._handle(key), out)
        return CounterValue(out.packets, out.bytes)

    def write_counter(self, key: EntryKey | None, value: CounterValue) -> None:
        """Sets the direct counter of an entry, or of the default entry."""
        runtime().gl_entry_counter_write(self._state, self._handle(key), (value.packets, value.bytes))

    def _handle(self, key: EntryKey | None) -> Any:
        return runtime().gl_table_default(self._state, self._index) if key is None else self._handles[key]

    def _action(self, call: ActionCall) -> tuple[int, list[int]]:
        return self.table.actions.index(call.action), list(call.arguments)


class State:
    """All state of one program, as the program starts with it. Raises MemoryError."""

    def __init__(self, program: Program, lock: Lock) -> None:
        self.program = program
        self.lock = lock
        library = runtime()
        counts = (len(program.tables), len(program.counters), len(program.meters), len(program.registers))
        self.handle: Any = ffi.gc(_memory(library.gl_state_new(lock.handle, *counts)), library.gl_state_free)
        self.tables = [TableState(self.handle, index, program, table) for index, table in enumerate(program.tables)]
        for index, counter in enumerate(program.counters):
            _check(library.gl_state_counter(self.handle, index, counter.size))
        for index, meter in enumerate(program.meters):
            _check(library.gl_state_meter(self.handle, index, meter.size, meter.counts_bytes))
        for index, register in enumerate(program.registers):
            _check(library.gl_state_register(self.handle, index, register.size))
        self.meters: dict[tuple[int, int], MeterRates] = {}
        self.groups: dict[int, Group] = {}

    def read_counters(self, counter: int, first: int, count: int) -> list[CounterValue]:
        """`count` cells of an indirect counter from `first` on."""
        out = ffi.new("gl_counter[]", count)
        runtime().gl_counters_read(self.handle, counter, first, count, out)
        return [CounterValue(out[n].packets, out[n].bytes) for n in range(count)]

    def write_counters(self, counter: int, first: int, count: int, value: CounterValue) -> None:
        """Sets `count` cells of an indirect counter from `first` on."""
        runtime().gl_counters_write(self.handle, counter, first, count, (value.packets, value.bytes))

    def read_registers(self, register: int, first: int, count: int) -> list[int]:
        """`count` cells of a register from `first` on."""
        out = ffi.new("uint64_t[]", count)
        runtime().gl_registers_read(self.handle, register, first, count, out)
        return list(out)

    def write_registers(self, register: int, first: int, count: int, value: int) -> None:
        """Sets `count` cells of a register from `first` on."""
        runtime().gl_registers_write(self.handle, register, first, count, value)

    def write_meter(self, meter: int, cell: int, rates: MeterRates | None) -> None:
        """Configures a meter cell, full of tokens; None is the default: every packet is green."""
        config = (0, 0, 0, 0, 0) if rates is None else (rates.cir, rates.cburst, rates.pir, rates.pburst, 1)
        runtime().gl_meter_write(self.handle, meter, cell, config)
        if rates is None:
            self.meters.pop((meter, cell), None)
        else:
            self.meters[meter, cell] = rates

    def set_group(self, number: int, group: Group | None) -> None:
        """Creates, replaces or (None) removes a multicast group."""
        replicas = [] if group is None else [(item.port, item.instance) for item in group.replicas]
        _check(runtime().gl_group_set(self.handle, number, len(replicas), ffi.new("gl_replica[]", replicas)))
        if group is None:
            self.groups.pop(number, None)
        else:
            self.groups[number] = group


def _memory(handle: Any) -> Any:
    if handle == NULL:
        raise MemoryError("the switch is out of memory")
    return handle


def _check(result: int) -> None:
    if result:
        raise MemoryError("the switch is out of memory")
