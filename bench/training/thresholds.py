# SPDX-License-Identifier: Apache-2.0
"""How long a training step takes by the threshold from which a port counts as congested, in an incast.

For each buffer the thresholds of the whole range are stated in the fabric file, yellow as a fraction of the buffer and
red twice that, and at last none, so that the controller derives them from rate and buffer: the derived point has to be
where nothing is gained by another one.
"""

import argparse
import dataclasses
import io
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import tomli_w

from bench.harness.benchmark import save
from gradlane.units import parse_rate, parse_size
from gradlane_controller.network import fabric
from gradlane_controller.policy.thresholds import thresholds
from lab.command_line import quantity, seeds
from lab.experiment.runner import SWITCH_HELP, ready_machine, run_scenario
from lab.model.errors import ExperimentError
from lab.model.plan import FabricPlan
from lab.model.preconditions import PreconditionError
from lab.model.results import ArmResult
from lab.model.scenarios import SCENARIOS, Scenario, ScenarioError
from lab.report.console import ProgressLine, make_console, print_tables
from lab.report.tables import TextTable

FRACTIONS = (1 / 16, 1 / 8, 1 / 4, 3 / 8, 1 / 2, 3 / 4)
ARM = "gradlane-ps"
_MOST_RED = 0.95
_EXAMPLES = """examples:
  sudo python -m bench.training.thresholds
  sudo python -m bench.training.thresholds --buffers 64kB --seeds 1 --steps 20 --json > thresholds.json
"""


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
    """Runs the benchmark; returns the exit code: 0, 1 (something failed on the way), 2 (usage, or the machine)."""
    options = _parser().parse_args(arguments)
    console = make_console(to_stderr=options.json)
    points: list[Point] = []
    try:
        scenarios = [
            _scenario(options, buffer, fraction) for buffer in options.buffers for fraction in (*FRACTIONS, None)
        ]
        with ready_machine([FabricPlan.of(scenarios[0], options.switch)]), ProgressLine(console) as line:
            for scenario in scenarios:
                line.say(f"buffer {scenario.buffer} bytes, {scenario.summary}")
                runs = run_scenario(scenario, "cnn", options.switch, options.seeds, options.out, line)
                points.append(_point(scenario, list(runs)))
    except (ScenarioError, PreconditionError) as problem:
        print(f"thresholds: error: {problem}", file=sys.stderr)
        return 2
    except ExperimentError as problem:
        print(f"thresholds: error: {problem}", file=sys.stderr)
        return 1
    settings = {"rate": options.rate, "steps": options.steps}
    save(options.out / "thresholds.json", settings, points, show=options.json)
    plot = options.out / "thresholds.svg"
    plot.write_text(_plot(points), encoding="utf-8")
    print_tables(console, [_table(points)])
    console.print(f"figures: {options.out / 'thresholds.json'}   plot: {plot}", soft_wrap=True)
    return 1 if any(point.violations for point in points) else 0


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
    it = fabric.parse(tomli_w.dumps(FabricPlan.of(scenario).document()), "fabric.toml")
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


def _plot(points: Sequence[Point]) -> str:
    """Step times over the yellow threshold, a panel for each buffer. SVG."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    buffers = sorted({point.buffer for point in points})
    figure, panels = pyplot.subplots(1, len(buffers), figsize=(5 * len(buffers), 3.6), squeeze=False, sharey=True)
    for buffer, panel in zip(buffers, panels[0], strict=True):
        stated = sorted((p for p in points if p.buffer == buffer and not p.derived), key=lambda p: p.yellow)
        for name, value in (("median", "p50_ms"), ("99th percentile", "p99_ms")):
            panel.plot([p.yellow / 1000 for p in stated], [getattr(p, value) for p in stated], marker="o", label=name)
        for point in (p for p in points if p.buffer == buffer and p.derived):
            panel.axvline(point.yellow / 1000, color="grey", linestyle=":", label="derived")
            panel.plot([point.yellow / 1000] * 2, [point.p50_ms, point.p99_ms], "k*", markersize=11)
        panel.set_title(f"buffer of {buffer / 1000:g} kB")
        panel.set_xlabel("yellow threshold, kB")
        panel.set_ylim(bottom=0)
    panels[0][0].set_ylabel("step, ms")
    panels[0][-1].legend()
    figure.tight_layout()
    page = io.StringIO()
    figure.savefig(page, format="svg")
    pyplot.close(figure)
    return page.getvalue()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="thresholds.py",
        description=__doc__,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    sizes = [parse_size("32kB"), parse_size("256kB")]
    parser.add_argument("--buffers", type=_list(parse_size), default=sizes, metavar="A,B", help="(default: 32kB,256kB)")
    parser.add_argument(
        "--rate", type=quantity(parse_rate), default=parse_rate("100mbit"), help="of every link (default: 100mbit)"
    )
    parser.add_argument("--seeds", type=seeds, default=(1, 2), metavar="A,B", help="(default: 1,2)")
    parser.add_argument("--steps", type=int, default=30, metavar="N", help="of training (default: %(default)s)")
    parser.add_argument("--switch", default="gradlane", metavar="S", help=SWITCH_HELP)
    parser.add_argument("--out", type=Path, default=Path("out/bench"), metavar="DIR", help="(default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="the result as JSON on standard output")
    return parser


def _list(parse: Callable[[str], int]) -> Callable[[str], list[int]]:
    def convert(text: str) -> list[int]:
        try:
            return [parse(word.strip()) for word in text.split(",")]
        except ValueError as problem:
            raise argparse.ArgumentTypeError(str(problem)) from None

    return convert


if __name__ == "__main__":
    sys.exit(main())
