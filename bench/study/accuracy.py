# SPDX-License-Identifier: Apache-2.0
"""The accuracy study: what a tolerated loss of gradients does to training, against plain DistributedDataParallel.

Four workers behind a gradlane-switch whose links lose datagrams, with the agents and the DDP hook that users have.
A run that is in the result file is not repeated: delete the file to start afresh.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from bench.harness import benchmark
from bench.study import plots, runs, tables
from bench.study.cases import SCENARIO, TOLERANCES, TRAININGS, Case, matrix
from bench.study.runs import Run
from lab import command_line
from lab.command_line import names, names_of
from lab.experiment.runner import ready_machine
from lab.model import results
from lab.model.errors import ExperimentError
from lab.model.plan import FabricPlan
from lab.report.console import make_console, present

_MOST_FAILURES = 5  # after so many something is wrong in general


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the study; the exit status: 1 also if a claim does not hold."""
    parser = benchmark.parser("study.accuracy", __doc__, "--models cnn --seeds 1 --p 0,10 --steps 30")
    add, models = parser.add_argument, tuple(TRAININGS)
    add("--models", type=names_of(models, "model"), default=models, metavar="A,B", help="(default: all)")
    command_line.add_seeds(parser, (1, 2, 3))
    percents = ",".join(f"{100 * p:g}" for p in TOLERANCES)
    text = f"tolerances in %% (default: {percents})"
    add("--p", type=_tolerances, default=TOLERANCES, metavar="A,B", help=text)
    add("--steps", type=_steps, metavar="N", help="of training (default: each model's own)")
    return benchmark.run(parser, _run, arguments)


def _run(options: argparse.Namespace) -> int:
    console = make_console(to_stderr=options.json)
    file = options.out / "study.json"
    cases = matrix(options.models, options.seeds, options.p, options.steps)
    failures: list[str] = []
    found, kept = runs.load(file)
    missing = [case for case in cases if case.key not in found]
    console.print(f"{len(cases)} runs, {len(cases) - len(missing)} of them already in {file}", soft_wrap=True)
    if missing:
        with ready_machine([FabricPlan.of(scenario) for scenario in SCENARIO.values()]):
            failures = _run_all(missing, found, kept, options.out, console)
    finished = [found[case.key] for case in cases if case.key in found]
    shown, wrong = tables.identity(finished)
    plot = options.out / "accuracy.png"
    if finished:
        plots.save(finished, plot)
    document, others = runs.document(found, kept), {"plot": plot} if finished else {}
    present(console, options, file.name, document, [*tables.of_models(finished), shown], **others)
    if failures or wrong:
        raise ExperimentError("; ".join([*failures, *wrong]))
    return 0


def _run_all(
    missing: Sequence[Case], found: dict[str, Run], kept: list[dict[str, str]], out: Path, console: Console
) -> list[str]:
    """Runs the cases, adds them to `found` and its file; returns the failures, each of which costs that run alone.

    With its reason and the logs of that laboratory a failure is added to `kept`, and to the file.
    """
    # Imported only now: preconditions says it better than an ImportError if Mininet is missing.
    from bench.study.laboratory import Laboratory

    failures: list[str] = []

    def save() -> None:
        results.save(out / "study.json", runs.document(found, kept))

    began, done = time.monotonic(), 0
    for drops in SCENARIO:
        pending = [case for case in missing if case.drops == drops]
        while pending:
            case, logs = pending[0], out / "study" / f"{drops}-{len(kept)}"
            try:
                with Laboratory(drops, logs) as laboratory:
                    while pending:
                        case = pending.pop(0)
                        run = found[case.key] = {"key": case.key, **laboratory.run(case)}
                        save()
                        done += 1
                        left = (time.monotonic() - began) / done * (len(missing) - done)
                        console.print(
                            f"{done + len(failures)}/{len(missing)}  {case.model}, seed {case.seed}, {case.arm}: "
                            f"{run['seconds']:.1f} s, test loss {run['test_loss']:.3f}, "
                            f"accuracy {run['test_accuracy']:.1%}; {left / 60:.0f} min left",
                            soft_wrap=True,
                        )
            except ExperimentError as problem:
                failures.append(f"{case.model}, seed {case.seed}, {case.arm}: {problem}")
                kept.append({"key": case.key, "reason": str(problem), "logs": str(logs)})
                save()
                console.print(f"error: {failures[-1]} (logs: {logs})", soft_wrap=True)
                if len(failures) > _MOST_FAILURES or case in pending:  # it did not come up, or it will not get better
                    return failures
    return failures


def _tolerances(text: str) -> tuple[float, ...]:
    words = names(text)
    try:
        percents = [float(word) for word in words]
    except ValueError:
        percents = []
    if not percents or not all(0 <= p <= 50 for p in percents):
        raise argparse.ArgumentTypeError(f"{text!r} is no list of percentages from 0 to 50, e.g. 0,1,10")
    return tuple(p / 100 for p in percents)


def _steps(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 10**6:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of steps, from 1 to 1000000")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
