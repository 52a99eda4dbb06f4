# SPDX-License-Identifier: Apache-2.0
"""The accuracy study: what a tolerated loss of gradients does to training, against plain DistributedDataParallel.

Four workers behind a gradlane-switch whose links lose datagrams, with the agents and the DDP hook that users have.
A run that is in the result file is not repeated: delete the file to begin anew.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from bench.study import tables
from bench.study.cases import SCENARIO, TOLERANCES, TRAININGS, Case, matrix
from bench.study.tables import Run
from lab.command_line import names, seeds
from lab.experiment.runner import ready_machine
from lab.model import results
from lab.model.errors import ExperimentError
from lab.model.plan import FabricPlan
from lab.model.preconditions import PreconditionError
from lab.report.console import make_console, print_tables

_MOST_FAILURES = 5  # after so many something is wrong in general

_EXAMPLES = """examples:
  sudo python -m bench.study.accuracy
  sudo python -m bench.study.accuracy --models cnn --seeds 1 --p 0,10 --steps 30
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the study; returns the exit code: 0, 1 (a run failed, or a claim does not hold), 2 (usage, the machine)."""
    options = _parser().parse_args(arguments)
    console = make_console(to_stderr=False)
    file = options.out / "study.json"
    cases = matrix(options.models, options.seeds, options.p, options.steps)
    failures: list[str] = []
    try:
        found, earlier = _load(file)
        missing = [case for case in cases if case.key not in found]
        console.print(f"{len(cases)} runs, {len(cases) - len(missing)} of them already in {file}", soft_wrap=True)
        if missing:
            with ready_machine([FabricPlan.of(scenario) for scenario in SCENARIO.values()]):
                failures = _run_all(missing, found, earlier, options.out, console)
    except (PreconditionError, ValueError) as problem:
        print(f"study: error: {problem}", file=sys.stderr)
        return 2
    runs = [found[case.key] for case in cases if case.key in found]
    shown, wrong = tables.identity(runs)
    print_tables(console, [*tables.of_models(runs), shown])
    if runs:
        from bench.study import plots  # with matplotlib, which takes a second to import

        plots.save(runs, options.out / "accuracy.png")
        console.print(f"figures: {file}   plot: {options.out / 'accuracy.png'}", soft_wrap=True)
    for problem in [*failures, *wrong]:
        print(f"study: error: {problem}", file=sys.stderr)
    return 1 if failures or wrong else 0


def _load(file: Path) -> tuple[dict[str, Run], list[dict[str, str]]]:
    """The runs and the failures of earlier calls. Raises ValueError."""
    if not file.exists():
        return {}, []
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        return {run["key"]: run for run in content["runs"]}, list(content.get("failures", []))
    except (ValueError, KeyError, TypeError) as problem:
        raise ValueError(f"{file} is no result of this study ({problem!r}): move it away") from None


def _run_all(
    missing: Sequence[Case], found: dict[str, Run], earlier: list[dict[str, str]], out: Path, console: Console
) -> list[str]:
    """Runs the cases, adds them to `found` and its file; returns the failures, each of which costs that run alone.

    With its reason and the logs of that laboratory a failure is kept in the file too, beside those of `earlier` calls.
    """
    # Imported only now: preconditions says it better than an ImportError if Mininet is missing.
    from bench.study.laboratory import Laboratory

    failures: list[str] = []
    kept = list(earlier)

    def save() -> None:
        content = {"machine": results.machine(), "runs": list(found.values()), "failures": kept}
        results.save(out / "study.json", content)

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


def _models(text: str) -> tuple[str, ...]:
    words = names(text)
    for word in words:
        if word not in TRAININGS:
            raise argparse.ArgumentTypeError(f"model {word!r} is unknown; the models are {', '.join(TRAININGS)}")
    return words


def _steps(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 10**6:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of steps, from 1 to 1000000")
    return int(text)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="study.py", description=__doc__, epilog=_EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    percents = ",".join(f"{100 * p:g}" for p in TOLERANCES)
    parser.add_argument("--models", type=_models, default=tuple(TRAININGS), metavar="A,B", help="(default: all)")
    parser.add_argument("--seeds", type=seeds, default=(1, 2, 3), metavar="A,B", help="(default: 1,2,3)")
    parser.add_argument(
        "--p", type=_tolerances, default=TOLERANCES, metavar="A,B", help=f"tolerances in %% (default: {percents})"
    )
    parser.add_argument("--steps", type=_steps, metavar="N", help="of training (default: each model's own)")
    parser.add_argument("--out", type=Path, default=Path("out/bench"), metavar="DIR", help="(default: %(default)s)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
