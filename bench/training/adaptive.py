# SPDX-License-Identifier: Apache-2.0
"""Step times in an incast whose congestion threshold was chosen badly, before the controller has tuned it and after.

Each run begins with a threshold that is stated in the fabric file: too low, the one that the controller would derive,
or too high, with [adaptive]; and once the derived one is fixed. "Before" are the steps until the first change, "after"
the last third. All cases of a repetition run one after the other on one fabric.
"""

import argparse
import dataclasses
import itertools
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bench.harness import benchmark
from gradlane.controller_client import Client, read_token
from gradlane.units import checked, parse_rate, parse_size
from gradlane_controller.network.fabric import DERIVED_YELLOW
from lab.experiment.runner import ready_machine
from lab.model.errors import ExperimentError
from lab.model.plan import HTTP_PORT, FabricPlan
from lab.model.scenarios import SCENARIOS, Scenario
from lab.report.console import make_console, present
from lab.report.metrics import Progress
from lab.report.tables import TextTable

ARM = "gradlane-ps"
STARTS = {"too low": 1 / 16, "derived": DERIVED_YELLOW, "too high": 0.9}
"""Yellow, of the buffer; red is twice that."""
CASES = (("derived", False), ("too low", True), ("derived", True), ("too high", True))
_MOST_RED = 0.95
_RATE = parse_rate("100mbit")  # at which the model has its full size


@dataclass(frozen=True)
class Run:
    """One training. `before` and `after`: median s of a step, `changes`: of the tuning, as the timeline tells them;
    `thresholds`: doublings in the end."""

    repetition: int
    start: str
    adaptive: bool
    before: float
    after: float
    thresholds: int
    changes: list[str]
    policy_drops: int
    repaired: int
    violations: int


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark; the exit status: 1 also if a message lost more than its budget."""
    parser = benchmark.parser("training.adaptive", __doc__, "--repetitions 1 --steps 60 --json > adaptive.json")
    add = parser.add_argument
    add("--repetitions", type=int, default=3, metavar="N", help="of all cases (default: %(default)s)")
    add("--steps", type=int, default=120, metavar="N", help="of each training (default: %(default)s)")
    add("--rate", type=checked(parse_rate), default="25mbit", metavar="R", help="of every link (default: 25mbit)")
    add("--buffer", type=checked(parse_size), default="32kB", metavar="B", help="of every port (default: 32kB)")
    add("--workers", type=int, default=8, metavar="N", help="(default: %(default)s)")
    add("--interval", type=float, default=8.0, metavar="S", help="from change to change (default: %(default)s)")
    return benchmark.run(parser, _run, arguments)


def _run(options: argparse.Namespace) -> int:
    console = make_console(to_stderr=options.json)
    scenario = _scenario(options)
    runs: list[Run] = []
    failures: list[str] = []
    with ready_machine([FabricPlan.of(scenario, "gradlane")]):
        from lab.experiment.arm_run import TASKS
        from lab.experiment.experiment import Experiment

        with Experiment(scenario, TASKS["cnn"], "gradlane", 1, options.out / "run" / "adaptive") as experiment:
            for repetition, (start, adaptive) in itertools.product(range(1, options.repetitions + 1), CASES):
                name = f"{repetition}, {start}, {'adaptive' if adaptive else 'fixed'}"
                try:
                    runs.append(_measure(experiment, options, repetition, start, adaptive))
                except ExperimentError as problem:  # of one run, on a machine that is too busy
                    failures.append(f"{name}: {problem}")
                    console.print(f"error: {failures[-1]}")
                else:
                    console.print(f"{name}: {runs[-1]}")
    settings = benchmark.chosen(options, "rate", "buffer", "workers", "steps", "interval")
    document = benchmark.document({**settings, "failures": failures}, runs)
    present(console, options, "adaptive.json", document, [table(runs)])
    return int(bool(failures) or any(run.violations for run in runs))


def _scenario(options: argparse.Namespace) -> Scenario:
    """The incast; gradients are as much smaller as links are slower. Raises ScenarioError."""
    found = SCENARIOS["incast"].with_settings(
        arms=(ARM,), rate=options.rate, buffer=options.buffer, steps=options.steps, workers=options.workers
    )
    return dataclasses.replace(found, scale=options.rate / _RATE)


def fabric_document(base: dict[str, Any], start: str, interval: float | None) -> dict[str, Any]:
    """The fabric file with the thresholds of that start; with [adaptive], if there is an interval (s)."""
    yellow = STARTS[start]
    found = base | {"thresholds": {"yellow": yellow, "red": max(yellow, min(2 * yellow, _MOST_RED))}}
    if interval is not None:
        found["adaptive"] = {"interval": interval, "least_threshold": 0.05, "most_threshold": 0.9}
    return found


def _measure(experiment: Any, options: argparse.Namespace, repetition: int, start: str, adaptive: bool) -> Run:
    network = experiment.network
    wanted = fabric_document(network.plan.document(), start, options.interval if adaptive else None)
    network.reload_controller(wanted)
    token = read_token(options.out / "run" / "adaptive" / "fabric.db.token")
    asked = Client(f"127.0.0.1:{HTTP_PORT}", token, seconds=10)
    known = [it["id"] for it in _events(asked)]
    result = experiment.run(ARM, repetition, _say_nothing)
    events = [it for it in _events(asked) if it["id"] not in known]
    changes = [it["text"] for it in events if it["subject"] == ARM]
    seconds = list(result.step_seconds)
    tuned = [it["data"]["after"]["threshold"] for it in events if "no more" not in it["text"]]
    third = max(1, len(seconds) // 3)
    return Run(
        repetition=repetition,
        start=start,
        adaptive=adaptive,
        before=statistics.median(_until(seconds, options.interval)),
        after=statistics.median(seconds[-third:]),
        thresholds=tuned[-1] if tuned else 0,
        changes=changes,
        policy_drops=result.switch.policy_drops,
        repaired=result.transport.repaired if result.transport else 0,
        violations=result.budget_violations,
    )


def _say_nothing(_progress: Progress) -> None:
    """The table says all."""


def _until(seconds: Sequence[float], end: float) -> list[float]:
    """The steps of that time, one at least: nothing is changed before an interval is over."""
    found, passed = list[float](), 0.0
    for each in seconds:
        if found and passed + each > end:
            break
        found.append(each)
        passed += each
    return found


def _events(asked: Client) -> list[dict[str, Any]]:
    return asked.get("/v1/events?kind=tuning&limit=1000", {"items"})["items"]


def table(runs: Sequence[Run]) -> TextTable:
    """Of each case the medians over the repetitions, and their ranges."""
    rows: list[list[str]] = []
    for start, adaptive in CASES:
        some = [run for run in runs if (run.start, run.adaptive) == (start, adaptive)]
        if some:
            rows.append(
                [
                    start,
                    "adaptive" if adaptive else "fixed",
                    _range([1000 * run.before for run in some]),
                    _range([1000 * run.after for run in some]),
                    ", ".join(f"{run.thresholds:+d}" for run in some) if adaptive else "-",
                    _range([run.policy_drops for run in some]),
                    _range([run.repaired for run in some]),
                    f"{sum(run.violations for run in some)}",
                ]
            )
    columns = ("threshold", "", "step before, ms", "step after, ms", "doublings", "policy drops", "repaired")
    return TextTable("Adaptive thresholds", (*columns, "violations"), rows)


def _range(values: Sequence[float]) -> str:
    return f"{statistics.median(values):,.0f} ({min(values):,.0f} - {max(values):,.0f})"


if __name__ == "__main__":
    sys.exit(main())
