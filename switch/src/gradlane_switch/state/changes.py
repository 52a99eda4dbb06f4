# SPDX-License-Identifier: Apache-2.0
"""Changes of what packets meet: each made as it comes, or collected, and then made between two packets, all at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

from gradlane_switch.native.ffi import NULL, ffi, runtime


class Changes:
    """Of one state; `state` is the C side's. Methods raise MemoryError; `together` does for what was collected."""

    def __init__(self, state: Any) -> None:
        self._state = state
        self._collected: list[dict[str, Any]] | None = None
        self._kept: list[Any] = []
        self._added: Counter[int] = Counter()

    @contextmanager
    def together(self) -> Generator[None]:
        """Collects the changes made within, and makes them at its end, between two packets."""
        self._collected, self._kept, self._added = [], [], Counter()
        try:
            yield
        finally:
            changes, self._collected = self._collected, None
            # What may take long comes before packets have to wait. Without memory for it, adding finds that out again.
            for table, count in self._added.items():
                runtime().gl_table_reserve(self._state, table, count)
            result = runtime().gl_change_all(self._state, len(changes), ffi.new("gl_change[]", changes))
            self._kept.clear()
            check_memory(result)

    def keep(self, thing: Any) -> None:
        """Packets may still meet what a collected change is about to replace."""
        if self._collected is not None:
            self._kept.append(thing)

    def _collect(self, kind: str, **parts: Any) -> bool:
        if self._collected is None:
            return False
        self._collected.append({"kind": getattr(runtime(), f"GL_CHANGE_{kind}"), **parts})
        self._kept.extend(part for part in parts.values() if isinstance(part, ffi.CData))
        return True

    # Tables

    def add(self, table: int, entry: Any) -> None:
        """Puts an entry into its table."""
        if self._collect("ADD", index=table, target=entry):
            self._added[table] += 1
        else:
            check_memory(runtime().gl_table_add(self._state, table, entry))

    def remove(self, table: int, entry: Any) -> None:
        """Takes an entry out of its table, and frees it."""
        if not self._collect("REMOVE", index=table, target=entry):
            runtime().gl_table_remove(self._state, table, entry)

    def set_entry(self, entry: Any, action: int, arguments: Sequence[int], choice: Any) -> None:
        """Gives an entry, or a member of an action profile, another action."""
        if self._collected is None:
            runtime().gl_entry_set(self._state, entry, action, len(arguments), arguments, choice)
            return
        values = ffi.new("uint64_t[]", arguments)
        self._collect("SET", target=entry, index=action, count=len(arguments), values=values, other=choice)

    def set_choice(self, choice: Any, members: list[Any], ports: list[int | None]) -> None:
        """What entries choose their action from, and the ports that these depend on, if any."""
        array = ffi.new("gl_entry *[]", members)
        none = runtime().GL_PORTS
        watched = any(port is not None for port in ports)
        values = ffi.new("uint64_t[]", [none if port is None else port for port in ports]) if watched else NULL
        if not self._collect("CHOICE", target=choice, count=len(members), other=array, values=values):
            check_memory(runtime().gl_choice_set(self._state, choice, len(members), array, values))

    def write_entry_counter(self, entry: Any, value: tuple[int, int]) -> None:
        """Sets packets and bytes of an entry's counter."""
        if not self._collect("ENTRY_COUNTER", target=entry, counter=value):
            runtime().gl_entry_counter_write(self._state, entry, value)

    def write_entry_meter(self, entry: Any, config: tuple[int, int, int, int, int]) -> None:
        """Configures an entry's meter."""
        if not self._collect("ENTRY_METER", target=entry, meter=config):
            runtime().gl_entry_meter_write(self._state, entry, config)

    def clear_entry_meter(self, entry: Any) -> None:
        """Zeroes the counts of an entry's meter."""
        if not self._collect("ENTRY_METER_CLEAR", target=entry):
            runtime().gl_entry_meter_clear(self._state, entry)

    # Cells

    def write_counters(self, index: int, first: int, count: int, value: tuple[int, int]) -> None:
        """Sets packets and bytes of counter cells."""
        if not self._collect("COUNTERS", index=index, first=first, count=count, counter=value):
            runtime().gl_counters_write(self._state, index, first, count, value)

    def write_registers(self, index: int, first: int, count: int, words: list[int]) -> None:
        """Sets register cells."""
        values = ffi.new("uint64_t[]", words)
        if not self._collect("REGISTERS", index=index, first=first, count=count, values=values):
            runtime().gl_registers_write(self._state, index, first, count, values)

    def write_meters(self, index: int, first: int, count: int, config: tuple[int, int, int, int, int]) -> None:
        """Configures meter cells."""
        if not self._collect("METERS", index=index, first=first, count=count, meter=config):
            runtime().gl_meters_write(self._state, index, first, count, config)

    def clear_meters(self, index: int, first: int, count: int) -> None:
        """Zeroes the counts of meter cells."""
        if not self._collect("METERS_CLEAR", index=index, first=first, count=count):
            runtime().gl_meters_clear(self._state, index, first, count)

    # Copies

    def set_group(self, group: int, replicas: list[tuple[int, int]]) -> None:
        """The (port, instance) of a multicast group's copies; none: there is no such group."""
        array = ffi.new("gl_replica[]", replicas)
        if not self._collect("GROUP", index=group, count=len(replicas), other=array):
            check_memory(runtime().gl_group_set(self._state, group, len(replicas), array))

    def set_session(self, session: int, replicas: list[tuple[int, int]], limit: int, priority: int) -> None:
        """The same for a clone session."""
        array = ffi.new("gl_replica[]", replicas)
        parts = {"count": len(replicas), "other": array, "limit": limit, "priority": priority}
        if not self._collect("SESSION", index=session, **parts):
            check_memory(runtime().gl_session_set(self._state, session, len(replicas), array, limit, priority))


def entry_or_memory_error(entry: Any) -> Any:
    """What the C side has made. Raises MemoryError if that is nothing."""
    if entry == NULL:
        raise MemoryError("the switch is out of memory")
    return entry


def check_memory(result: int) -> None:
    """Of a call of the C side, which is 0 if it had the memory. Raises MemoryError."""
    if result:
        raise MemoryError("the switch is out of memory")
