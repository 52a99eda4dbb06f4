# SPDX-License-Identifier: Apache-2.0
"""Which learning rate suits each arm of bench.sync.training: steps to the target by the rate, workers being equal.

With short pauses, and without a limit of the links: what is counted is steps, not seconds. Seeds are others than those
of the benchmark. The best rate of each arm belongs into cases.py; all arms have the same grid, and where the best is at
its edge, others beyond it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from bench.harness import benchmark
from bench.sync.cases import ARMS, LEARNING_RATES, Order, Settings
from bench.sync.team import Team
from lab import command_line
from lab.command_line import names_of, several
from lab.report.console import make_console, present
from lab.report.tables import TextTable

_STEPS, _COMPUTATION = 100, 0.01
_SECONDS = 60.0  # of a run, at most


@dataclass(frozen=True)
class Result:
    """Mean over the seeds of the steps to the target, of those of the run where it was not reached; and the final
    accuracy."""

    arm: str
    learning_rate: float
    steps: float
    final: float


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs it; the exit status."""
    parser = benchmark.parser("sync.rates", __doc__, "--arms ringmaster --rates 0.0015,0.003,0.006")
    names = tuple(ARMS)
    parser.add_argument("--arms", type=names_of(names, "arm"), default=names, metavar="A,B", help="(default: all)")
    text = f"(default: {','.join(f'{rate:g}' for rate in LEARNING_RATES)})"
    parser.add_argument("--rates", type=several(float), default=LEARNING_RATES, metavar="A,B", help=text)
    parser.add_argument("--workers", type=int, default=8, metavar="N", help="(default: 8)")
    command_line.add_seeds(parser, (101, 102))
    return benchmark.run(parser, _run, arguments)


def _run(options: argparse.Namespace) -> int:
    console = make_console(to_stderr=options.json)
    benchmark.take_priority()
    settings = Settings(options.workers, _COMPUTATION, ratio=None)
    results: list[Result] = []
    with Team(settings) as team:
        for arm in options.arms:
            for rate in options.rates:
                orders = [Order(settings, "equal", arm, seed, rate, _SECONDS, _STEPS, 0.0) for seed in options.seeds]
                runs = [team.run(order) for order in orders]
                steps = fmean(run.steps if run.steps_to_target is None else run.steps_to_target for run in runs)
                results.append(Result(arm, rate, steps, fmean(run.final for run in runs)))
                console.print(f"{arm}, {rate:g}: {steps:.0f} steps, {results[-1].final:.1%}", soft_wrap=True)
    document = benchmark.document(benchmark.chosen(options, "workers", "seeds", "rates"), results)
    present(console, options, "sync-rates.json", document, [_table(results, options.rates)])
    return 0


def _table(results: Sequence[Result], rates: Sequence[float]) -> TextTable:
    rows = [
        [ARMS[arm].title, *(f"{r.steps:.0f} ({r.final:.1%})" for r in results if r.arm == arm)]
        for arm in dict.fromkeys(result.arm for result in results)
    ]
    columns = ("arm", *(f"{rate:g}" for rate in rates))
    return TextTable("Steps to the target (final accuracy), by the learning rate", columns, rows)


if __name__ == "__main__":
    sys.exit(main())
