# SPDX-License-Identifier: Apache-2.0
"""The forwarding state of one program: what its tables, counters, meters, registers and groups hold.

The C side holds what packets need; this side holds what a controller wrote, so that it reads back as written.
"""

from __future__ import annotations

import contextlib
import heapq
import os
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from gradlane_switch.changes import Changes, entry_or_memory_error
from gradlane_switch.digests import DigestBuffer
from gradlane_switch.expressions import join_words, split_words, words_of
from gradlane_switch.layout import TableKind, argument_words, layout_of, most_argument_words, pack
from gradlane_switch.native import NULL, ffi, runtime
from gradlane_switch.profiles import Chosen, ProfileState
from gradlane_switch.program import ActionCall, FieldKey, Program, Table
from gradlane_switch.value_sets import ValueSetState

_LONGEST_MAIL = 1 << 17

EntryKey = tuple[tuple[FieldKey, ...], int]


@dataclass(frozen=True)
class CounterValue:
    """Packets and bytes."""

    packets: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class Colours:
    """What a meter has found green, yellow and red."""

    green: CounterValue
    yellow: CounterValue
    red: CounterValue


@dataclass(frozen=True)
class MeterRates:
    """Rates in bytes/s or packets/s, bursts in bytes or packets (RFC 2698)."""

    cir: int
    cburst: int
    pir: int
    pburst: int


@dataclass(frozen=True)
class Replica:
    """One copy of a multicast packet. `numbered`: the controller wrote the port as a number, as before version 1.4."""

    port: int
    instance: int
    numbered: bool = field(default=False, compare=False)


@dataclass(frozen=True)
class Group:
    """A multicast group."""

    replicas: tuple[Replica, ...]
    metadata: bytes = b""


@dataclass(frozen=True)
class CloneSession:
    """A clone session; its copies leave with at most `length` bytes, and with that priority, if these are not 0."""

    replicas: tuple[Replica, ...]
    length: int = 0
    priority: int = 0


@dataclass(frozen=True)
class Losses:
    """What the program asked for in vain.

    `out_of_range`: accesses beyond the end of a counter, meter or register, which change nothing. `endless`: packets
    that were resubmitted, recirculated or cloned too often. `mail`: messages to the controller that found no room.
    `log`: messages of the program to the log that were too many. `assertions`: packets for which one did not hold.
    """

    out_of_range: int
    endless: int
    mail: int
    log: int
    assertions: int


@dataclass(frozen=True)
class LearnedData:
    """A digest: its index in the program (the first with its name), and a number per field."""

    digest: int
    values: tuple[int, ...]
    time: int


@dataclass(frozen=True)
class PacketToCpu:
    """A packet that left through the CPU port, and the port where it had come in."""

    port: int
    frame: bytes
    time: int


@dataclass(frozen=True)
class LogMessage:
    """What the program says to the log, and where in the program."""

    text: str
    source: str


Mail = LearnedData | PacketToCpu | LogMessage


class Entry(NamedTuple):
    """A table entry as it was written. `match` and `priority` identify it."""

    match: tuple[FieldKey, ...]
    priority: int
    call: ActionCall | Chosen
    metadata: bytes = b""
    controller_metadata: int = 0
    constant: bool = False
    idle_timeout: int = 0
    """ns without a hit after which the controller is told; 0: never."""


class Lock:
    """The lock that the forwarding thread shares with the state's writers."""

    def __init__(self) -> None:
        self.handle: Any = ffi.gc(entry_or_memory_error(runtime().gl_lock_new()), runtime().gl_lock_free)


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
        _check(
            runtime().gl_state_table(
                state, index, ffi.new("gl_table_shape *", self.layout.shape(arguments, table.direct_meter is not None))
            )
        )
        self.default: Entry | None = None
        self.set_default(None if table.default is None else Entry((), 0, table.default, constant=table.const_default))
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
        key = entry.match, entry.priority
        self._handles[key] = handle
        self.entries[key] = entry
        self._keep(key, entry, choice)

    def modify(self, entry: Entry) -> None:
        """Changes the action and the metadata of an entry that exists."""
        key = entry.match, entry.priority
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
        self._changes.write_entry_counter(self._handle(key), (value.packets, value.bytes))

    def write_meter(self, key: EntryKey, rates: MeterRates | None) -> None:
        """Configures the direct meter of an entry, full of tokens; None is the default: every packet is green."""
        self._changes.write_entry_meter(self._handles[key], _meter_config(rates))
        if rates is None:
            self.meters.pop(key, None)
        else:
            self.meters[key] = rates

    def read_colours(self, key: EntryKey) -> Colours:
        """What the direct meter of an entry has counted."""
        out = ffi.new("gl_counter[]", 3)
        runtime().gl_entry_meter_read(self._state, self._handles[key], out)
        return _colours(out, 0)

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

    def expired(self, now: int) -> Iterator[Entry]:
        """The entries that have not been hit for their timeout, which begins anew then."""
        while self._idle and self._idle[0][0] <= now:
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


class State:
    """All state of one program, as the program starts with it. Raises MemoryError."""

    def __init__(self, program: Program, lock: Lock) -> None:
        self.program = program
        self.lock = lock
        library = runtime()
        tables = len(program.tables) + len(program.value_sets)
        counts = (tables, len(program.counters), len(program.meters), len(program.registers))
        self.handle: Any = ffi.gc(
            entry_or_memory_error(library.gl_state_new(lock.handle, *counts)), library.gl_state_free
        )
        self.changes = Changes(self.handle)
        self.profiles = [
            ProfileState(self.changes, program, _actions_of(program, number)) for number in range(len(program.profiles))
        ]
        self.tables = [
            TableState(
                self.handle,
                self.changes,
                index,
                program,
                table,
                None if table.profile is None else self.profiles[table.profile],
            )
            for index, table in enumerate(program.tables)
        ]
        self.value_sets = [
            ValueSetState(self.handle, self.changes, index, item)
            for index, item in enumerate(program.value_sets, len(program.tables))
        ]
        for index, counter in enumerate(program.counters):
            _check(library.gl_state_counter(self.handle, index, counter.size))
        for index, meter in enumerate(program.meters):
            _check(library.gl_state_meter(self.handle, index, meter.size, meter.counts_bytes))
        for index, register in enumerate(program.registers):
            _check(library.gl_state_register(self.handle, index, register.size, words_of(register.width)))
        self.meters: dict[tuple[int, int], MeterRates] = {}
        self.groups: dict[int, Group] = {}
        self.sessions: dict[int, CloneSession] = {}
        names = [item.name for item in program.digests]
        # The program has a list for each place where it learns; those of a name are one digest.
        self._first_digest = [names.index(name) for name in names]
        self.digests: dict[int, DigestBuffer] = {}
        """The digests that a controller wants, by index."""
        self.clock: Callable[[], int] = time.monotonic_ns
        """The time in ns that packets are stamped with."""
        self.has_port: Callable[[int], bool] = lambda number: 0 <= number < runtime().GL_DROP_PORT
        """Whether there is a port of a number."""
        self.mail_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        """Readable when there may be mail: what the program tells the controller."""
        weakref.finalize(self, os.close, self.mail_fd)
        self._mail_head = ffi.new("gl_mail_head *")
        self._mail_bytes = ffi.new("uint8_t[]", _LONGEST_MAIL)
        self.set_cpu_port(None)

    def set_value_set(self, number: int, members: Sequence[tuple[FieldKey, ...]]) -> None:
        """Makes these the members of a value set."""
        self.value_sets[number].replace(members)

    def read_counters(self, counter: int, first: int, count: int) -> list[CounterValue]:
        """`count` cells of an indirect counter from `first` on."""
        out = ffi.new("gl_counter[]", count)
        runtime().gl_counters_read(self.handle, counter, first, count, out)
        return [CounterValue(out[n].packets, out[n].bytes) for n in range(count)]

    def write_counters(self, counter: int, first: int, count: int, value: CounterValue) -> None:
        """Sets `count` cells of an indirect counter from `first` on."""
        self.changes.write_counters(counter, first, count, (value.packets, value.bytes))

    def read_registers(self, register: int, first: int, count: int) -> list[int]:
        """`count` cells of a register from `first` on."""
        words = words_of(self.program.registers[register].width)
        out = ffi.new("uint64_t[]", count * words)
        runtime().gl_registers_read(self.handle, register, first, count, out)
        return [join_words(out[start : start + words]) for start in range(0, count * words, words)]

    def write_registers(self, register: int, first: int, count: int, value: int) -> None:
        """Sets `count` cells of a register from `first` on."""
        words = words_of(self.program.registers[register].width)
        self.changes.write_registers(register, first, count, split_words(value, words))

    def write_meter(self, meter: int, cell: int, rates: MeterRates | None) -> None:
        """Configures a meter cell, full of tokens; None is the default: every packet is green."""
        self.changes.write_meter(meter, cell, _meter_config(rates))
        if rates is None:
            self.meters.pop((meter, cell), None)
        else:
            self.meters[meter, cell] = rates

    def read_colours(self, meter: int, first: int, count: int) -> list[Colours]:
        """What `count` meter cells from `first` on have counted."""
        out = ffi.new("gl_counter[]", 3 * count)
        runtime().gl_meters_read(self.handle, meter, first, count, out)
        return [_colours(out, 3 * cell) for cell in range(count)]

    def clear_colours(self, meter: int, first: int, count: int) -> None:
        """Zeroes that."""
        self.changes.clear_meters(meter, first, count)

    def set_group(self, number: int, group: Group | None) -> None:
        """Creates, replaces or (None) removes a multicast group."""
        replicas = [] if group is None else [(item.port, item.instance) for item in group.replicas]
        self.changes.set_group(number, replicas)
        if group is None:
            self.groups.pop(number, None)
        else:
            self.groups[number] = group

    def set_session(self, number: int, session: CloneSession | None) -> None:
        """Creates, replaces or (None) removes a clone session."""
        replicas = [] if session is None else [(item.port, item.instance) for item in session.replicas]
        limit = session.length if session is not None and session.length else (1 << 32) - 1
        self.changes.set_session(number, replicas, limit, 0 if session is None else session.priority)
        if session is None:
            self.sessions.pop(number, None)
        else:
            self.sessions[number] = session

    def set_port(self, port: int, up: bool) -> None:
        """Says whether a port is up; at first every one is. Members that depend on it are left out if not."""
        runtime().gl_port_state(self.handle, port, up)

    @property
    def losses(self) -> Losses:
        """What the program has asked for in vain since it was loaded."""
        out = ffi.new("gl_losses *")
        runtime().gl_losses_read(self.handle, out)
        return Losses(out.out_of_range, out.endless, out.mail, out.log, out.assertions)

    # Mail

    def set_cpu_port(self, port: int | None) -> None:
        """Makes packets that leave through a port packets to the controller; None: there is no such port."""
        number = runtime().GL_PORTS if port is None else port
        runtime().gl_controller(self.handle, number, self.mail_fd)

    def mail(self) -> Iterator[Mail]:
        """Takes what the program has told the controller, oldest first."""
        head = self._mail_head
        with contextlib.suppress(BlockingIOError):  # Nobody has called; looking costs little.
            os.eventfd_read(self.mail_fd)
        while runtime().gl_mail_take(self.handle, head, self._mail_bytes, _LONGEST_MAIL) > 0:
            content = bytes(ffi.buffer(self._mail_bytes, head.length))
            if head.kind == runtime().GL_MAIL_PACKET:
                yield PacketToCpu(head.id, content, head.time)
            elif head.kind == runtime().GL_MAIL_LOG:
                message = self.program.messages[head.id]
                yield LogMessage(message.filled(memoryview(content).cast("Q").tolist()), message.source)
            else:
                yield LearnedData(self._first_digest[head.id], self._learned(head.id, content), head.time)

    def _learned(self, digest: int, content: bytes) -> tuple[int, ...]:
        values: list[int] = []
        for item in self.program.digests[digest].fields:
            octets = (item.width + 7) // 8
            values.append(int.from_bytes(content[:octets], "big"))
            content = content[octets:]
        return tuple(values)


def _actions_of(program: Program, profile: int) -> tuple[int, ...]:
    """The actions of an action profile: those of its tables, which all have the same."""
    return next((table.actions for table in program.tables if table.profile == profile), ())


def _meter_config(rates: MeterRates | None) -> tuple[int, int, int, int, int]:
    return (0, 0, 0, 0, 0) if rates is None else (rates.cir, rates.cburst, rates.pir, rates.pburst, 1)


def _colours(out: Any, first: int) -> Colours:
    return Colours(*(CounterValue(out[first + n].packets, out[first + n].bytes) for n in range(3)))


def _check(result: int) -> None:
    if result:
        raise MemoryError("the switch is out of memory")
