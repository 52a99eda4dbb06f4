# SPDX-License-Identifier: Apache-2.0
"""What processes hold while a soak goes on, and whether it grows."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from bench.harness.usage import descriptors, memory
from gradlane.control.listener import MAX_PENDING_OF_ONE
from lab.report.tables import TextTable

_MOST_GROWTH = 0.1  # of a process's memory or open files, from the second third of the run to the last
# Bytes and open files that do not count: what the calls hold that an agent is in the middle of.
_LEAST_GROWTH = MAX_PENDING_OF_ONE << 20, 4 * MAX_PENDING_OF_ONE

Usage = dict[str, tuple[int, int]]
"""Bytes and open files by process."""

Held = dict[str, tuple[tuple[int, int], tuple[int, int]]]
"""By process, the most bytes and open files in the second third of a run, and in the last."""


def usage_of(network: Any) -> Usage:
    """What the processes of a network hold now."""
    found: Usage = {}
    for name, pid in network.processes().items():
        with suppress(OSError):
            found[name] = memory(pid), descriptors(pid)
    return found


def held(usage: Sequence[Usage]) -> Held:
    """By process: the most bytes and open files in the second third of what was seen, and in the last."""
    third = len(usage) // 3
    if not third:
        return {}
    parts = usage[third : 2 * third], usage[2 * third :]
    found: Held = {}
    for name in sorted(set.intersection(*(set[str]().union(*part) for part in parts))):
        second, last = ([seen[name] for seen in part if name in seen] for part in parts)
        found[name] = (_most(second), _most(last))
    return found


def _most(seen: Sequence[tuple[int, int]]) -> tuple[int, int]:
    return max(memory for memory, _ in seen), max(files for _, files in seen)


def grown(of: Held) -> list[str]:
    """The processes that hold more in the last third than they did in the second, and what."""
    found: list[str] = []
    for name, (second, last) in of.items():
        for before, after, least, unit in zip(second, last, _LEAST_GROWTH, ("bytes", "open files"), strict=True):
            if after > before * (1 + _MOST_GROWTH) + least:
                found.append(f"{name} holds {after:,} {unit} after {before:,}")
    return found


def held_table(of: Held) -> TextTable:
    """What processes held."""
    rows = [
        (name, *(f"{memory / 1e6:,.0f}" for memory, _ in parts), *(f"{files:,}" for _, files in parts))
        for name, parts in of.items()
    ]
    columns = ("process", "MB, second third", "MB, last third", "open files, second third", "open files, last third")
    return TextTable("The most that a process held", columns, rows)
