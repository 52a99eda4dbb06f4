# SPDX-License-Identifier: Apache-2.0
"""Time to accuracy by scheme of synchronisation, where workers or links are slow.

Each host is a network namespace behind a port of limited rate, with an agent and a training process. A small model
learns for real; what an accelerator would compute is a pause, drawn from the case and the same in all arms. The links'
rate follows from it: a ring of float32 all-reduces takes as long as a usual worker computes. A run that has a record in
OUT/sync is not repeated. docs/measurements/sync.md has the figures.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console

from bench.harness import benchmark
from bench.sync import plots, tables
from bench.sync.cases import ARMS, CASES, Order, Settings
from bench.sync.evaluation import Run
from bench.sync.team import Team
from lab import command_line
from lab.command_line import names_of, several
from lab.model import results
from lab.model.errors import ExperimentError, LabError
from lab.report.console import make_console, present

_MOST_FAILURES = 3  # after so many something is wrong in general
_USUAL_COMPUTATION = 80.0  # ms, with which Case.seconds are
_USUAL_CASES, _USUAL_ARMS = ("equal", "slow5"), ("ddp", "overlap", "pairs-late", "ripples-late", "local-sgd")
_MOST_STEPS = 20_000  # of a worker
_SNAPSHOTS = 150  # of a run
_DISTURBED, _TRIES = 0.1, 3  # what a run may oversleep, or it is repeated; in all so many times


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark; the exit status."""
    examples = ("--cases slow5,tail3 --arms overlap,ripples --seeds 1", "--cases all --arms all --seeds 1,2,3,4,5")
    parser = benchmark.parser("sync.training", __doc__, *examples)
    add = parser.add_argument
    add("--workers", type=several(_count), default=(8,), metavar="N,M", help="from 2 to 64 (default: 8)")
    for name, known, default in (("cases", CASES, _USUAL_CASES), ("arms", ARMS, _USUAL_ARMS)):
        text = f"all, or of {', '.join(known)} (default: {','.join(default)})"
        add(f"--{name}", type=_chosen(known, name[:-1]), default=default, metavar="A,B", help=text)
    command_line.add_seeds(parser, (1, 2))
    text = "of a usual worker's step (default: %(default)s)"
    add("--computation", type=_positive, default=_USUAL_COMPUTATION, metavar="MS", help=text)
    add("--seconds", type=_positive, metavar="S", help="of each run (default: each case's own)")
    return benchmark.run(parser, _run, arguments)


def orders(options: argparse.Namespace) -> list[Order]:
    """All runs; those of one seed one after the other, so that arms which are compared run at about the same time."""
    found: list[Order] = []
    for workers in options.workers:
        settings = Settings(workers, options.computation / 1e3)
        for case in options.cases:
            seconds = options.seconds or CASES[case].seconds * options.computation / _USUAL_COMPUTATION
            for seed in options.seeds:
                for arm in options.arms:
                    rate = ARMS[arm].learning_rate
                    found.append(Order(settings, case, arm, seed, rate, seconds, _MOST_STEPS, seconds / _SNAPSHOTS))
    return found


def _run(options: argparse.Namespace) -> int:
    console = make_console(to_stderr=options.json)
    benchmark.take_priority()
    wanted, folder = orders(options), options.out / "sync"
    folder.mkdir(parents=True, exist_ok=True)
    found = {order.name: run for order in wanted if (run := load(folder, order)) is not None}
    missing = [order for order in wanted if order.name not in found]
    seconds = sum(order.seconds for order in missing)
    console.print(
        f"{len(wanted)} runs, {len(found)} of them already in {folder}; the others train for {seconds / 60:.0f} min",
        soft_wrap=True,
    )
    failures = _run_all(missing, found, folder, console)
    runs = [found[order.name] for order in wanted if order.name in found]
    files = plots.save(runs, options.out) if runs else {}
    document = benchmark.document({**benchmark.chosen(options, "computation"), "failures": failures}, runs)
    present(console, options, "sync.json", document, tables.of_runs(runs), **files)
    if failures:
        raise ExperimentError("; ".join(failures))
    return 0


def load(folder: Path, order: Order) -> Run | None:
    """The record of a run with just this order, if there is one."""
    try:
        record = json.loads((folder / f"{order.name}.json").read_text(encoding="utf-8"))
        return Run(**record["run"]) if record["order"] == _plain(order) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def keep(folder: Path, order: Order, run: Run) -> None:
    """Writes it."""
    results.save(folder / f"{order.name}.json", {"order": _plain(order), "run": asdict(run)})


def _plain(order: Order) -> object:
    return json.loads(json.dumps(order.document()))


def _run_all(missing: Sequence[Order], found: dict[str, Run], folder: Path, console: Console) -> list[str]:
    """Runs the orders, adds them to `found` and keeps their records. A run that fails costs itself alone, and a new
    team; the failures, in words."""
    failures: list[str] = []
    began, spent = time.monotonic(), 0.0
    pending = list(missing)
    while pending and len(failures) < _MOST_FAILURES:
        settings = pending[0].settings
        order = pending[0]
        try:
            with Team(settings) as team:
                while pending and pending[0].settings == settings:
                    order = pending.pop(0)
                    run = found[order.name] = _undisturbed(team, order)
                    keep(folder, order, run)
                    spent += order.seconds
                    left = (time.monotonic() - began) / spent * sum(order.seconds for order in pending)
                    console.print(f"{_line(order, run)}; {left / 60:.0f} min left", soft_wrap=True)
        except LabError as problem:
            failures.append(f"{order.name}: {problem}")
            console.print(f"error: {failures[-1]}", soft_wrap=True)
    return failures


def _undisturbed(team: Team, order: Order) -> Run:
    """The first run that other load of the machine leaves alone, else the one that it disturbs least."""
    runs: list[Run] = []
    for _ in range(_TRIES):
        runs.append(team.run(order))
        if runs[-1].overslept <= _DISTURBED:
            break
    return min(runs, key=lambda run: run.overslept)


def _line(order: Order, run: Run) -> str:
    reached = "not reached" if run.to_target is None else f"reached after {run.to_target:.1f} s"
    return (
        f"{order.settings.workers} workers, {order.case}, {order.arm}, seed {order.seed}: {run.steps:.0f} steps of "
        f"{1e3 * run.seconds / run.steps:.0f} ms (pauses {run.overslept:.1%} too long), target {reached}, "
        f"accuracy {run.final:.1%}"
    )


def _chosen(known: Collection[str], what: str) -> Callable[[str], tuple[str, ...]]:
    """A converter of names, or of "all"."""
    convert = names_of(known, what)

    def chosen(text: str) -> tuple[str, ...]:
        return tuple(known) if text == "all" else convert(text)

    return chosen


def _count(text: str) -> int:
    if not text.isdecimal() or not 2 <= int(text) <= 64:
        raise ValueError(f"{text!r} is no number of workers, from 2 to 64")
    return int(text)


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} is no number above 0")
    return value


if __name__ == "__main__":
    sys.exit(main())
