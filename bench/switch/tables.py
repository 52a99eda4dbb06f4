# SPDX-License-Identifier: Apache-2.0
"""What a packet costs with full tables and with empty ones, in one process, alternately, on one core.

A frame passes the whole program: parser, table, action, checksum, deparser; there are no ports. `hit` keys are drawn
from the entries, `random` ones are uniform and hardly ever match. There are 65,536 of each, so that caches help little.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from cffi import FFI

from bench.harness import benchmark
from bench.switch.table_cases import CASES, TABLES, distinct, entity, frame, hit_key, random_key
from gradlane_switch import Switch
from gradlane_switch.native.build import RUNTIME
from gradlane_switch.native.ffi import ffi
from lab import command_line
from lab.command_line import names_of
from lab.report.console import make_console, present
from lab.report.tables import TextTable

_FRAMES = 65_536


@dataclass(frozen=True)
class Result:
    """Medians in ns per packet. `ratio` is full to empty, `wire_ratio` the same with what I/O costs added to both."""

    case: str
    keys: str
    entries: int
    empty_ns: float
    full_ns: float
    lookup_ns: float
    ratio: float
    wire_ratio: float


class Load:
    """The C loop that puts frames through a program."""

    def __init__(self, folder: Path) -> None:
        library = folder / "table_load.so"
        source = Path(__file__).with_name("table_load.c")
        flags = ["-std=gnu11", "-Werror", "-D_GNU_SOURCE", "-O2", "-fPIC", "-shared", f"-I{RUNTIME}"]
        subprocess.run(["cc", *flags, "-o", str(library), str(source)], check=True)
        self._ffi: Any = FFI()
        self._ffi.cdef("uint64_t table_load(void *, void *, uint32_t, const uint8_t *, uint32_t, uint32_t);")
        self._library = self._ffi.dlopen(str(library))

    def run(self, switch: Switch, port: int, frames: list[bytes]) -> float:
        """ns per frame."""
        pipeline, length = switch.pipeline, len(frames[0])
        parts = (pipeline.loaded.process, pipeline.state.handle)
        pointers = [self._ffi.cast("void *", int(ffi.cast("uintptr_t", item))) for item in parts]
        return self._library.table_load(*pointers, port, b"".join(frames), length, len(frames)) / len(frames)


def measure(load: Load, name: str, rounds: int, io: float, seed: int) -> Iterator[Result]:
    """Fills the table of a case, and measures it beside an empty one."""
    case, random = CASES[name], Random(seed)
    full, empty = (Switch.load(TABLES.program, TABLES.p4info) for _ in range(2))
    ids = TABLES.ids()
    known = distinct(case, case.count, random)
    priorities = random.sample(range(1, 1 << 24), case.count)
    for priority, wanted in zip(priorities, known, strict=True):
        full.insert(entity(ids, case, wanted, priority))
    for keys in ("hit", "random"):
        drawn = (
            hit_key(random, case, random.choice(known)) if keys == "hit" else random_key(random) for _ in range(_FRAMES)
        )
        frames = [frame(case, key) for key in drawn]
        times: dict[str, list[float]] = {"empty": [], "full": []}
        for _ in range(rounds + 1):
            for kind, switch in (("empty", empty), ("full", full)):
                times[kind].append(load.run(switch, case.port, frames))
        # The first round warms up.
        before, after = (sorted(times[kind][1:])[rounds // 2] for kind in ("empty", "full"))
        figures = (before, after, after - before, after / before, (after + io) / (before + io))
        yield Result(name, keys, case.count, *(round(value, 2) for value in figures))


def table(results: Sequence[Result]) -> TextTable:
    """A row for each case and kind of keys."""
    columns = ("case", "keys", "entries", "empty, ns", "full, ns", "lookup, ns", "full / empty", "with I/O")
    rows = [
        [
            item.case,
            item.keys,
            f"{item.entries:,}",
            *(f"{value:.1f}" for value in (item.empty_ns, item.full_ns, item.lookup_ns)),
            *(f"{value:.2f}" for value in (item.ratio, item.wire_ratio)),
        ]
        for item in results
    ]
    return TextTable("A packet through the whole program", columns, rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark; the exit status."""
    parser = benchmark.parser(
        "switch.tables", __doc__, "--cases lpm_ipv4,acl --rounds 25 --json > tables.json", root=False
    )
    add = parser.add_argument
    known = f"of {', '.join(CASES)} (default: all)"
    add("--cases", type=names_of(CASES, "case"), default=tuple(CASES), metavar="A,B", help=known)
    add("--rounds", type=int, default=9, metavar="N", help="(default: %(default)s)")
    add("--core", type=int, default=0, metavar="N", help="(default: %(default)s)")
    io = "what ports cost per packet, for the last column (default: %(default)g)"
    add("--io", type=float, default=2000.0, metavar="NS", help=io)
    add("--seed", type=command_line.seed, default=1, metavar="N", help="(default: %(default)s)")
    return benchmark.run(parser, _run, arguments)


def _run(options: argparse.Namespace) -> int:
    console = make_console(to_stderr=options.json)
    os.sched_setaffinity(0, {options.core})
    results: list[Result] = []
    with tempfile.TemporaryDirectory() as folder:
        load = Load(Path(folder))
        for name in options.cases:
            for result in measure(load, name, options.rounds, options.io, options.seed):
                results.append(result)
                console.print(f"{name}, {result.keys} keys: {result.lookup_ns:.1f} ns for the lookup", soft_wrap=True)
    settings = benchmark.chosen(options, "cases", "rounds", "core", "io", "seed")
    present(console, options, "tables.json", benchmark.document(settings, results), [table(results)])
    return 0


if __name__ == "__main__":
    sys.exit(main())
