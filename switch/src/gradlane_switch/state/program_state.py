# SPDX-License-Identifier: Apache-2.0
"""The forwarding state of one program: what its tables, counters, meters, registers and groups hold.

The C side holds what packets need; this side holds what a controller wrote, so that it reads back as written.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

from gradlane_switch.ir.expressions import join_words, split_words, words_of
from gradlane_switch.ir.program import Program
from gradlane_switch.native.ffi import ffi, runtime
from gradlane_switch.state.changes import Changes, check_memory, entry_or_memory_error
from gradlane_switch.state.counts import Colours, CounterValue, MeterRates, colours_of, meter_config, meter_rates
from gradlane_switch.state.digests import Digests
from gradlane_switch.state.mailbox import Mailbox
from gradlane_switch.state.profiles import ProfileState
from gradlane_switch.state.replicas import CloneSession, Group
from gradlane_switch.state.tables import TableState
from gradlane_switch.state.value_sets import ValueSetState


@dataclass(frozen=True)
class Losses:
    """What the program could not have.

    `out_of_range`: accesses beyond the end of a counter, meter or register, which change nothing. `endless`: packets
    that were resubmitted, recirculated or cloned too often. `packets`, `digests`: packets to the controller, and values
    of digests, that came faster than they were taken. `log`: messages of the program to the log that were too many.
    `assertions`: packets for which one did not hold.
    """

    out_of_range: int
    endless: int
    packets: int
    digests: int
    log: int
    assertions: int


class Lock:
    """The lock that the forwarding thread shares with the state's writers."""

    def __init__(self) -> None:
        self.handle: Any = ffi.gc(entry_or_memory_error(runtime().gl_lock_new()), runtime().gl_lock_free)


class State:
    """All state of one program, as the program starts with it. Raises MemoryError."""

    def __init__(self, program: Program, lock: Lock) -> None:
        self.program = program
        self.lock = lock
        library = runtime()
        tables = len(program.tables) + len(program.value_sets)
        counts = (tables, len(program.counters), len(program.meters), len(program.registers), len(program.digests))
        self.handle: Any = ffi.gc(
            entry_or_memory_error(library.gl_state_new(lock.handle, *counts)), library.gl_state_free
        )
        self.changes = Changes(self.handle)
        self.profiles = [
            ProfileState(self.changes, program, _positions(program, number)) for number in range(len(program.profiles))
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
            check_memory(library.gl_state_counter(self.handle, index, counter.size))
        for index, meter in enumerate(program.meters):
            check_memory(library.gl_state_meter(self.handle, index, meter.size, meter.counts_bytes))
        for index, register in enumerate(program.registers):
            check_memory(library.gl_state_register(self.handle, index, register.size, words_of(register.width)))
        self.groups: dict[int, Group] = {}
        self.sessions: dict[int, CloneSession] = {}
        self.digests = Digests(self.handle, program)
        self.clock: Callable[[], int] = time.monotonic_ns
        """The time in ns that packets are stamped with."""
        self.has_port: Callable[[int], bool] = lambda number: 0 <= number < runtime().GL_DROP_PORT
        """Whether there is a port of a number."""
        self.mailbox = Mailbox(self.handle, program)

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

    def write_meters(self, meter: int, first: int, count: int, rates: MeterRates | None) -> None:
        """Configures `count` meter cells from `first` on, full of tokens. None, the default: all packets are green."""
        self.changes.write_meters(meter, first, count, meter_config(rates))

    def read_meters(self, meter: int, first: int, count: int) -> list[MeterRates | None]:
        """What `count` meter cells from `first` on are configured with."""
        out = ffi.new("gl_meter_config[]", count)
        runtime().gl_meters_configured(self.handle, meter, first, count, out)
        return [meter_rates(item) for item in out]

    def read_colours(self, meter: int, first: int, count: int) -> list[Colours]:
        """What `count` meter cells from `first` on have counted."""
        out = ffi.new("gl_counter[]", 3 * count)
        runtime().gl_meters_read(self.handle, meter, first, count, out)
        return [colours_of(out, 3 * cell) for cell in range(count)]

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
        """What the program could not have since it was loaded."""
        out = ffi.new("gl_losses *")
        runtime().gl_losses_read(self.handle, out)
        return Losses(**{field.name: getattr(out, field.name) for field in fields(Losses)})


def _positions(program: Program, profile: int) -> dict[int, int]:
    """Where the tables of an action profile have their actions. They have the same ones, or copies of them."""
    tables = [table for table in program.tables if table.profile == profile]
    return {number: position for table in tables for position, number in enumerate(table.actions)}
