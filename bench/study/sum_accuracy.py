# SPDX-License-Identifier: Apache-2.0
"""The accuracy study of sums in the switch: what integers, clipping and results without some workers do to training.

The models, data and optimizers are those of study.accuracy. Everything happens in one process, with the arithmetic and
the rules of the transport but no network: so it needs no root, and can lose what a network would lose only seldom. A
run that is in the result file is not repeated: delete the file to start afresh.
"""

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from bench.harness import benchmark
from bench.study import runs, sum_plots, tables
from bench.study.cases import TRAININGS
from bench.study.runs import Run
from bench.study.sum_cases import ARMS, Arm, matrix
from bench.study.sum_training import train
from lab import command_line
from lab.command_line import names_of
from lab.model import results
from lab.report.console import make_console, present
from lab.report.tables import TextTable
from lab.training.models import TASKS

_WORKERS = (4, 8)
_FIGURES = ("arm", "workers", "clipped", "left out", "test loss", "less DDP's", "test accuracy, %", "less DDP's")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the study; the exit status."""
    parser = benchmark.parser("study.sum_accuracy", __doc__, "--models cnn --seeds 1 --steps 30", root=False)
    models = tuple(TRAININGS)
    parser.add_argument(
        "--models", type=names_of(models, "model"), default=models, metavar="A,B", help="(default: all)"
    )
    command_line.add_seeds(parser, (1, 2, 3, 4, 5))
    text = "sums should use that part of what lanes can hold (default: 32 of int16, 512 of int32)"
    parser.add_argument("--headroom", type=int, choices=(8, 16, 32, 64, 128, 256, 512), default=0, help=text)
    parser.add_argument("--steps", type=_steps, metavar="N", help="of training (default: each model's own)")
    return benchmark.run(parser, _run, arguments)


def _run(options: argparse.Namespace) -> int:
    torch.set_num_threads(1)
    console = make_console(to_stderr=options.json)
    file = options.out / "sum_accuracy.json"
    steps = {model: options.steps or training.steps for model, training in TRAININGS.items()}
    cases = matrix(options.models, _WORKERS, options.seeds, steps, ARMS, options.headroom)
    found, _ = runs.load(file)
    missing = [case for case in cases if case.key not in found]
    console.print(f"{len(cases)} runs, {len(cases) - len(missing)} of them already in {file}", soft_wrap=True)
    data = {model: TASKS[model].load() for model in options.models}
    began = time.monotonic()
    for done, case in enumerate(missing, 1):
        run = found[case.key] = {"key": case.key, **train(case, data[case.model])}
        results.save(file, runs.document(found, []))
        left = (time.monotonic() - began) / done * (len(missing) - done)
        console.print(
            f"{done}/{len(missing)}  {case.key}: {run['seconds']:.1f} s, test loss {run['test_loss']:.3f}, "
            f"accuracy {run['test_accuracy']:.1%}; {left / 60:.0f} min left",
            soft_wrap=True,
        )
    finished = [found[case.key] for case in cases]
    plot = options.out / "sum_accuracy.png"
    sum_plots.save(finished, plot)
    present(console, options, file.name, runs.document(found, []), _tables(finished), plot=plot)
    return 0


def _tables(finished: Sequence[Run]) -> list[TextTable]:
    """A table for each model: medians over the seeds, in brackets the least and the greatest; differences by seed."""
    shown: list[TextTable] = []
    for model in dict.fromkeys(run["model"] for run in finished):
        of_model = [run for run in finished if run["model"] == model]
        rows = [_row(arm, workers, of_model) for arm in ARMS for workers in _WORKERS]
        shown.append(TextTable(f"{model}: median over the seeds (least to greatest)", _FIGURES, rows))
    return shown


def _row(arm: Arm, workers: int, of_model: Sequence[Run]) -> list[str]:
    these = [run for run in of_model if (run["arm"], run["workers"]) == (arm.name, workers)]
    pairs = sum_plots.pairs(of_model, arm, workers)
    by_switch = these[0]["clipped"] is not None
    return [
        arm.name,
        str(workers),
        _percent(these, "clipped") if by_switch else "-",
        _percent(these, "left_out") if by_switch else "-",
        tables.spread([run["test_loss"] for run in these], "{:.3f}"),
        tables.spread([run["test_loss"] - other["test_loss"] for run, other in pairs], "{:+.3f}"),
        tables.spread([100 * run["test_accuracy"] for run in these], "{:.1f}"),
        tables.spread([100 * (run["test_accuracy"] - other["test_accuracy"]) for run, other in pairs], "{:+.1f}"),
    ]


def _steps(text: str) -> int:
    if not text.isdecimal() or not 2 <= int(text) <= 10**6:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of steps, from 2 (the first is by hosts) to 1000000")
    return int(text)


def _percent(these: Sequence[Mapping[str, Any]], figure: str) -> str:
    return f"{sum(run[figure] for run in these) / len(these):.2%}"


if __name__ == "__main__":
    sys.exit(main())
