# SPDX-License-Identifier: Apache-2.0
"""Slices per second that gradlane-switch sums on one core, beside those that it forwards.

Workers at ports of their own send slices of 1,408 bytes, each as fast as results come: 128 are on the way at most. The
switch takes a slice of every worker and sends the sum to every worker, so as many frames leave as come. `sum16` and
`sum32` have lanes of 16 and 32 bits. `forward` are gradients of the same size, each for the next worker, through the
same program; `ordinary` the same through the program that does not sum. `bmv2` is sum32 on BMv2.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median_high

from finsy.proto import p4r
from google.protobuf import text_format

from bench.harness import benchmark
from bench.harness.switches import GRADLANE, Pipeline, RunningSwitch
from bench.harness.wires import Wires, compiled
from bench.harness.worker import Worker
from bench.switch import bmv2
from bench.switch.profiling import perf, profile
from bench.switch.sum_cases import (
    AGGREGATION,
    CHECKSUM_AT,
    NUMBER_AT,
    SLOT_AT,
    WINDOW,
    contribution,
    plain,
    updates,
)
from gradlane.wire import Lanes
from lab.command_line import names_of, several
from lab.model.errors import PreconditionError
from lab.report.console import make_console, present
from lab.report.tables import TextTable

CASES: dict[str, tuple[Pipeline, Lanes | None]] = {
    "sum16": (AGGREGATION, Lanes.INT16_LANES),
    "sum32": (AGGREGATION, Lanes.INT32_LANES),
    "forward": (AGGREGATION, None),
    "ordinary": (GRADLANE, None),
    "bmv2": (AGGREGATION, Lanes.INT32_LANES),
}
_MOST_WORKERS = 32
_SWITCH_CORE, _SENDER_CORE = 0, 1
_BUSY = 0.9  # of the switch's core: below, the senders were the limit (the kernel keeps 5 % from real-time priority)


@dataclass(frozen=True)
class Result:
    """One run. `slices_per_second` come from all workers together, and as many frames leave; `cpu_us` is the switch's
    time for each, `busy` the share of its core that it had. `lost`: slices that did not come back in a second."""

    case: str
    workers: int
    round: int
    slices_per_second: int
    cpu_us: float
    busy: float
    lost: int


@contextmanager
def target(case: str, network: Wires, workers: int, folder: Path) -> Generator[Worker, None, None]:
    """Runs the switch of a case, on its core. Raises ExperimentError."""
    pinned = ("taskset", "-c", str(_SWITCH_CORE))
    pipeline, _ = CASES[case]
    wanted = updates(pipeline, workers)
    if case == "bmv2":
        with bmv2.running(network, folder, workers, pipeline, wanted, ("chrt", "--rr", "1", *pinned)) as switch:
            yield switch
        return
    entries = folder / "entries.txtpb"
    entries.write_text(text_format.MessageToString(p4r.WriteRequest(updates=wanted)))
    ports = [f"{port}@switch-{port}" for port in range(1, workers + 1)]
    flags = ("--entries", str(entries))
    with RunningSwitch(network, folder, ports, pipeline=pipeline, before=pinned, flags=flags) as switch:
        yield switch


class Load:
    """What the workers send in a case."""

    def __init__(self, network: Wires, program: Path, case: str, workers: int, seconds: float) -> None:
        self._network, self._program, self._seconds = network, program, seconds
        self._lanes = CASES[case][1]
        self._workers = workers
        self._generation = 0

    def run(self) -> tuple[int, int, float]:
        """Slices that have come to all, slices that have not, and the time in s. Raises FabricError."""
        self._generation += 1  # so that no slice is older than what a run before has left
        ports = range(1, self._workers + 1)
        frames = [
            plain(port, self._workers)
            if self._lanes is None
            else contribution(port, self._workers, self._lanes, self._generation)
            for port in ports
        ]
        words = [self._seconds, WINDOW, NUMBER_AT, SLOT_AT, CHECKSUM_AT, *(frame.hex() for frame in frames)]
        command = ("taskset", "-c", str(_SENDER_CORE), str(self._program), *map(str, words))
        done, lost, taken = map(int, self._network.run(self._network.hosts, *command).split())
        return done, lost, taken / 1e9


def measure(options: argparse.Namespace, folder: Path, say: Callable[[str], None]) -> list[Result]:
    """Every case with every number of workers, in turn, `rounds` times. Raises ExperimentError."""
    results: list[Result] = []
    program = compiled(Path(__file__).with_name("sum_load.c"), folder)
    for workers in options.workers:
        with Wires(workers) as network:
            for number in range(options.rounds):
                for case in options.cases:
                    with target(case, network, workers, folder) as process:
                        load = Load(network, program, case, workers, options.seconds)
                        load.run()  # so that nothing is new any more
                        results.append(_measured(load, process, case, workers, number))
                        say(_line(results[-1]))
                        if options.profile:
                            say(profile(load.run, process, folder))
    return results


def _measured(load: Load, process: Worker, case: str, workers: int, number: int) -> Result:
    cpu = process.cpu_seconds()
    done, lost, seconds = load.run()
    cpu = process.cpu_seconds() - cpu
    slices = max(done * workers, 1)
    figures = (round(slices / seconds), round(cpu / slices * 1e6, 2), round(cpu / seconds, 2))
    return Result(case, workers, number, *figures, lost)


def _line(item: Result) -> str:
    lost = f"  {item.lost} lost" if item.lost else ""
    rate = f"{item.slices_per_second:9,} slices/s {item.cpu_us:6.2f} us CPU"
    return f"round {item.round + 1}  {item.workers:2} workers  {item.case:8} {rate}{lost}"


def table(results: Sequence[Result]) -> TextTable:
    """Medians over the rounds, and their ratios to forwarding by the ordinary program."""
    rows: list[list[str]] = []
    for workers in sorted({item.workers for item in results}):
        same = [item for item in results if item.workers == workers]
        cases = dict.fromkeys(item.case for item in same)
        rates = {case: median_high([item.slices_per_second for item in same if item.case == case]) for case in cases}
        for case, rate in rates.items():
            mine = [item for item in same if item.case == case]
            rows.append(
                [
                    f"{workers}",
                    case,
                    (">= " if median_high([item.busy for item in mine]) < _BUSY else "") + f"{rate:,}",
                    f"{median_high([item.cpu_us for item in mine]):.2f}",
                    f"{rate / rates['ordinary']:.0%}" if "ordinary" in rates else "-",
                    f"{sum(item.lost for item in mine)}",
                ]
            )
    columns = ("workers", "what", "slices/s", "CPU, us", "of ordinary", "lost")
    return TextTable("Slices of 1,408 bytes on one core (>=: the senders were the limit)", columns, rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark; the exit status."""
    profiled = "--cases sum32 --workers 8 --rounds 1 --profile  # with perf: where the time goes"
    parser = benchmark.parser("switch.aggregation", __doc__, "--workers 2,8 --json > sums.json", profiled)
    add = parser.add_argument
    known = f"of {', '.join(CASES)} (default: all; bmv2 where it is on PATH)"
    add("--cases", type=names_of(tuple(CASES), "case"), default=None, metavar="A,B", help=known)
    add("--workers", type=several(int), default=(2, 4, 8, 16, 32), metavar="A,B", help="(default: 2,4,8,16,32)")
    add("--rounds", type=int, default=3, metavar="N", help="(default: %(default)s)")
    add("--seconds", type=float, default=2.0, metavar="S", help="of a run (default: %(default)g)")
    add("--profile", action="store_true", help="a profile by perf of each case")
    return benchmark.run(parser, _run, arguments)


def _run(options: argparse.Namespace) -> int:
    console = make_console(to_stderr=options.json)
    if (os.cpu_count() or 1) < 2:
        raise PreconditionError("it needs two cores: one for the switch, one for the workers")
    if not all(2 <= workers <= _MOST_WORKERS for workers in options.workers):
        raise PreconditionError(f"--workers: 2 to {_MOST_WORKERS} each")
    if options.profile:
        perf()
    benchmark.take_priority()
    say = partial(console.print, soft_wrap=True)
    if options.cases is None:
        options.cases = tuple(CASES)
        if shutil.which("simple_switch_grpc") is None:
            say("simple_switch_grpc (BMv2) is not on PATH: gradlane-switch alone is measured")
            options.cases = tuple(case for case in CASES if case != "bmv2")
    with tempfile.TemporaryDirectory() as folder:
        results = measure(options, Path(folder), say)
    settings = benchmark.chosen(options, "cases", "workers", "rounds", "seconds")
    present(console, options, "aggregation.json", benchmark.document(settings, results), [table(results)])
    return 0


if __name__ == "__main__":
    sys.exit(main())
