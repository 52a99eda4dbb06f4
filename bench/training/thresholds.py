# SPDX-License-Identifier: Apache-2.0
"""How long a training step takes by the threshold from which a port counts as congested, in an incast.

For each buffer the thresholds of the whole range are stated in the fabric file, yellow as a fraction of the buffer and
red twice that, and at last none, so that the controller derives them from rate and buffer: the derived point has to be
where nothing is gained by another one.
"""

import argparse
import dataclasses
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tomli_w

from bench.harness import benchmark
from bench.harness.figure import panels
from gradlane.units import checked, parse_rate, parse_size
from gradlane_controller.network import fabric_file
from gradlane_controller.policy.thresholds import thresholds
from lab import command_line
from lab.command_line import several
from lab.experiment.runner import ready_machine, run_scenario
from lab.model.plan import FabricPlan
from lab.model.results import ArmResult
from lab.model.scenarios import SCENARIOS, Scenario
from lab.report.console import ProgressLine, make_console, present
from lab.report.tables import TextTable

FRACTIONS = (1 / 16, 1 / 8, 1 / 4, 3 / 8, 1 / 2, 3 / 4)
ARM = "gradlane-ps"
_MOST_RED = 0.95


@dataclass(frozen=True)
class Point:
    """One threshold at one buffer, in bytes; times of the steps of all seeds in ms, packets over all steps."""

    buffer: int
    yellow: int
    red: int
    derived: bool
    p50_ms: float
    p99_ms: float
    policy_drops: int
    tail_drops: int
    repaired: int
    violations: int


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark; the exit status: 1 also if a message lost more than its budget."""
    parser = benchmark.parser(
        "training.thresholds", __doc__, "--buffers 64kB --seeds 1 --steps 20 --json > thresholds.json"
    )
    add = parser.add_argument
    buffers = (parse_size("32kB"), parse_size("256kB"))
    add("--buffers", type=several(parse_size), default=buffers, metavar="A,B", help="(default: 32kB,256kB)")
    add("--rate", type=checked(parse_rate), default="100mbit", metavar="R", help="of every link (default: 100mbit)")
    command_line.add_seeds(parser, (1, 2))
    add("--steps", type=int, default=30, metavar="N", help="of training (default: %(default)s)")
    command_line.add_switch(parser)
    return benchmark.run(parser, _run, arguments)


def _run(options: argparse.Namespace) -> int:
    console = make_console(to_stderr=options.json)
    points: list[Point] = []
    scenarios = [_scenario(options, buffer, fraction) for buffer in options.buffers for fraction in (*FRACTIONS, None)]
    with ready_machine([FabricPlan.of(scenarios[0], options.switch)]), ProgressLine(console) as line:
        for scenario in scenarios:
            line.say(f"buffer {scenario.buffer} bytes, {scenario.summary}")
            runs = run_scenario(scenario, "cnn", options.switch, options.seeds, options.out, line)
            points.append(_point(scenario, list(runs)))
    document = benchmark.document(benchmark.chosen(options, "rate", "steps"), points)
    figure = options.out / "thresholds.svg"
    plot(points, figure)
    present(console, options, "thresholds.json", document, [_table(points)], plot=figure)
    return int(any(point.violations for point in points))


def _scenario(options: argparse.Namespace, buffer: int, fraction: float | None) -> Scenario:
    """The incast with these thresholds. Raises ScenarioError."""
    base = SCENARIOS["incast"].with_settings(arms=(ARM,), rate=options.rate, buffer=buffer, steps=options.steps)
    stated = None if fraction is None else (fraction, min(2 * fraction, _MOST_RED))
    summary = "thresholds derived" if fraction is None else f"yellow from {fraction:.3g} of it on"
    return dataclasses.replace(base, summary=summary, thresholds=stated)


def _point(scenario: Scenario, runs: Sequence[ArmResult]) -> Point:
    yellow, red = _bytes(scenario)
    seconds = sorted(step for run in runs for step in run.step_seconds)
    return Point(
        buffer=scenario.buffer,
        yellow=yellow,
        red=red,
        derived=scenario.thresholds is None,
        p50_ms=round(1000 * statistics.median(seconds), 1),
        p99_ms=round(1000 * seconds[int(0.99 * (len(seconds) - 1))], 1),
        policy_drops=sum(run.switch.policy_drops for run in runs),
        tail_drops=sum(drops.packets for run in runs for drops in run.switch.tail_drops or ()),
        repaired=sum(run.transport.repaired for run in runs if run.transport),
        violations=sum(run.budget_violations for run in runs),
    )


def _bytes(scenario: Scenario) -> tuple[int, int]:
    """The thresholds as the controller gives them to the switch."""
    it = fabric_file.parse(tomli_w.dumps(FabricPlan.of(scenario).document()), "fabric.toml")
    return thresholds(it, it.ports[0])


def _table(points: Sequence[Point]) -> TextTable:
    best = {buffer: min(p.p50_ms for p in points if p.buffer == buffer) for buffer in {p.buffer for p in points}}
    rows = [
        [
            f"{point.buffer / 1000:g} kB",
            f"{point.yellow} / {point.red}" + (" (derived)" if point.derived else ""),
            f"{point.p50_ms:.0f} / {point.p99_ms:.0f}",
            f"{point.p50_ms / best[point.buffer]:.2f}",
            f"{point.policy_drops:,}",
            f"{point.tail_drops:,}",
            f"{point.repaired:,}",
            f"{point.violations}",
        ]
        for point in points
    ]
    columns = ("buffer", "yellow / red, bytes", "step p50 / p99, ms", "p50 to the best", "policy drops", "tail drops")
    return TextTable("Thresholds", (*columns, "repaired", "violations"), rows)


def plot(points: Sequence[Point], path: Path) -> None:
    """Step times over the yellow threshold, a panel for each buffer."""
    buffers = sorted({point.buffer for point in points})
    with panels(path, 1, len(buffers), (5, 3.6), share_y=True) as axes:
        for buffer, panel in zip(buffers, axes[0], strict=True):
            stated = sorted((p for p in points if p.buffer == buffer and not p.derived), key=lambda p: p.yellow)
            for name, value in (("median", "p50_ms"), ("99th percentile", "p99_ms")):
                panel.plot([p.yellow / 1000 for p in stated], [getattr(p, value) for p in stated], "o-", label=name)
            for point in (p for p in points if p.buffer == buffer and p.derived):
                panel.axvline(point.yellow / 1000, color="grey", linestyle=":", label="derived")
                panel.plot([point.yellow / 1000] * 2, [point.p50_ms, point.p99_ms], "k*", markersize=11)
            panel.set_title(f"buffer of {buffer / 1000:g} kB")
            panel.set_xlabel("yellow threshold, kB")
            panel.set_ylim(bottom=0)
        axes[0][0].set_ylabel("step, ms")
        axes[0][-1].legend()


if __name__ == "__main__":
    sys.exit(main())
