# SPDX-License-Identifier: Apache-2.0
"""What a slice costs the engine, without any I/O: ns of one core, for more and more ranks.

Rank 0 owns all elements of an all-reduce: a contribution of each other rank comes in and is reduced, and the result
goes out to each. What is sent lies in one buffer for the receiver, as the kernel leaves it; that copy is not counted.
Each rank has an engine, and they take turns, so each finds in the cache what the others have left of it. With --alone
there is that of rank 0 only, and the others' datagrams are made for it.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from cffi import FFI

import gradlane
from bench.harness import benchmark
from gradlane import wire
from lab.command_line import several
from lab.model.errors import ExperimentError, UsageError
from lab.report.console import make_console, present
from lab.report.tables import TextTable

_CORE = Path(gradlane.__file__).parent / "core"
_HERE = Path(__file__).parent
_FLAGS = ("-std=gnu11", "-O3", "-ffp-contract=off", "-fvisibility=default", "-fPIC", "-D_GNU_SOURCE=", "-w")
_VOLUME = 64 << 20  # bytes that come in in a round
_MOST_BYTES = 8192  # of a slice
_TYPES = """
typedef struct {
    uint64_t received_ns, received, sent_ns, sent, taken_ns, taken, control_ns, wrong;
} core_figures;
void *core_load_new(unsigned ranks, uint32_t elements, uint32_t slice_bytes);
void core_load_free(void *load);
int core_load_run(void *load, int timed, core_figures *figures);
"""


@dataclass(frozen=True)
class Result:
    """Medians of `rounds`, in ns for a slice.

    `received`: taken in and reduced by the owner; `sent`: a result that it sends; `control`: all else that it does,
    divided by what it receives; `taken`: a result as another rank takes it in; None: it has no engine.
    """

    ranks: int
    slices: int
    received: float
    sent: float
    control: float
    taken: float | None


class Load:
    """The C loop between engines, compiled with the core as it is installed."""

    def __init__(self, folder: Path, alone: bool = False) -> None:
        (folder / "wire.h").write_text(wire.c_definitions())
        name = "core_alone" if alone else "core_load"
        library = folder / f"{name}.so"
        sources = [Path(__file__).with_name(f"{name}.c"), *sorted(_CORE.glob("*/*.c"))]
        paths = ("-I", str(_CORE), "-I", str(_HERE), "-I", str(folder))
        subprocess.run(
            ["cc", *_FLAGS, *paths, "-shared", "-o", str(library), *map(str, sources), "-lpthread"], check=True
        )
        self._ffi: Any = FFI()
        self._ffi.cdef(_TYPES)
        self._library = self._ffi.dlopen(str(library))

    def measure(self, ranks: int, slices: int, slice_bytes: int, rounds: int) -> Result:
        """Of an all-reduce of so many slices. Raises ExperimentError: memory is out, or the result is wrong."""
        load = self._library.core_load_new(ranks, slices * slice_bytes // 4, slice_bytes)
        if load == self._ffi.NULL:
            raise ExperimentError(f"{ranks} engines: memory is out")
        try:
            times = max(1, _VOLUME // (slices * slice_bytes * (ranks - 1)))
            found: list[tuple[float, ...]] = []
            taken: list[float] = []
            for a_round in range(rounds + 1):
                figures = self._ffi.new("core_figures *")
                for _ in range(times):
                    if self._library.core_load_run(load, a_round > 0, figures):
                        raise ExperimentError(
                            f"{ranks} ranks, {slices} slices: an engine refused it, or does not end it"
                        )
                if figures.wrong:
                    raise ExperimentError(f"{figures.wrong} elements are wrong")
                if a_round:  # the one before fills the caches
                    f = figures
                    found.append((f.received_ns / f.received, f.sent_ns / f.sent, f.control_ns / f.received))
                    if f.taken:
                        taken.append(f.taken_ns / f.taken)
            received, sent, control = (round(median(column), 1) for column in zip(*found, strict=True))
            return Result(ranks, slices, received, sent, control, round(median(taken), 1) if taken else None)
        finally:
            self._library.core_load_free(load)


def table(results: Sequence[Result]) -> TextTable:
    """A row for each number of ranks and slices."""
    columns = ("ranks", "slices", "received and reduced", "sent", "control", "result taken in")
    rows = [
        [
            *(f"{it.ranks}", f"{it.slices:,}", f"{it.received:.0f}", f"{it.sent:.0f}", f"{it.control:.0f}"),
            "" if it.taken is None else f"{it.taken:.0f}",
        ]
        for it in results
    ]
    return TextTable("ns for a slice", columns, rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark; the exit status."""
    parser = benchmark.parser("agent.core", __doc__, "--ranks 2,8 --slices 1000 --json > core.json", root=False)
    add = parser.add_argument
    add("--ranks", type=several(int), default=(2, 4, 16, 64, 256), metavar="A,B", help="(default: 2,4,16,64,256)")
    add("--slices", type=several(int), default=(64, 1024), metavar="A,B", help="of a contribution (default: 64,1024)")
    add("--slice-bytes", type=int, default=1432, metavar="N", help="(default: %(default)s)")
    add("--rounds", type=int, default=9, metavar="N", help="(default: %(default)s)")
    add("--alone", action="store_true", help="one engine, with the cache to itself")
    add("--core", type=int, default=0, metavar="N", help="of the machine (default: %(default)s)")
    return benchmark.run(parser, _run, arguments)


def _run(options: argparse.Namespace) -> int:
    console = make_console(to_stderr=options.json)
    for name, values, most in (("ranks", options.ranks, wire.MAX_RANKS), ("slices", options.slices, wire.MAX_SLICES)):
        least = 2 if name == "ranks" else 1
        if wrong := [value for value in values if not least <= value <= most]:
            raise UsageError(f"--{name}: {wrong[0]} must be {least} to {most}")
    if options.rounds < 1 or options.slice_bytes % 8 or not 8 <= options.slice_bytes <= _MOST_BYTES:
        raise UsageError(f"--rounds must be at least 1, and --slice-bytes a multiple of 8 up to {_MOST_BYTES}")
    os.sched_setaffinity(0, {options.core})
    results: list[Result] = []
    with tempfile.TemporaryDirectory() as folder:
        load = Load(Path(folder), options.alone)
        for ranks in options.ranks:
            for slices in options.slices:
                result = load.measure(ranks, slices, options.slice_bytes, options.rounds)
                results.append(result)
                console.print(f"{ranks} ranks, {slices} slices: {result.received:.0f} ns", soft_wrap=True)
    settings = benchmark.chosen(options, "slice_bytes", "rounds", "alone", "core")
    present(console, options, "core.json", benchmark.document(settings, results), [table(results)])
    return 0


if __name__ == "__main__":
    sys.exit(main())
