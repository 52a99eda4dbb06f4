# SPDX-License-Identifier: Apache-2.0
"""Load balancing on a leaf-spine: slices sprayed over all paths, against flows that keep to one by their hash (ECMP).

Three cases: nothing else on the fabric, other traffic on one spine's links, and a spine that dies in mid-training.
"""

import argparse
import dataclasses
import sys
import time
from collections.abc import Mapping, Sequence

from bench.harness import benchmark
from lab import command_line
from lab.command_line import names_of
from lab.experiment.runner import ready_machine, run_scenarios, settings_of
from lab.model import results
from lab.model.errors import ExperimentError
from lab.model.plan import FabricPlan
from lab.model.results import ArmResult
from lab.model.scenarios import SCENARIOS, Scenario
from lab.report import claims
from lab.report.console import ProgressLine, make_console, present
from lab.report.tables import TextTable

_CASES = ("balanced", "asymmetric", "spine-failure")
_FIGURES = (
    "case",
    "arm",
    "step p50 / p99, ms",
    "longest",
    "steps/s",
    "spine1's share",
    "before -> after failure, ms",
    "recovery, ms",
    "repaired",
    "policy drops",
    "tail drops",
    "violations",
)


def _case(name: str, switch: str, steps: int | None) -> Scenario:
    """That case's scenario. Raises ScenarioError or TopologyError."""
    if name == "balanced":
        own = SCENARIOS["asymmetric"]
        scenario = dataclasses.replace(own, name=name, summary="nothing else on the leaf-spine", bursts=None)
    else:
        scenario = SCENARIOS[name]
    return scenario.with_settings(steps=steps).for_switch(switch)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark; the exit status: 1 also if a message lost more than its budget."""
    parser = benchmark.parser(
        "training.load_balancing",
        __doc__,
        "--cases spine-failure --seeds 1 --steps 40 --json > load_balancing.json",
        "--switch bmv2 --seeds 1",
    )
    known = f"of {', '.join(_CASES)} (default: all)"
    parser.add_argument("--cases", type=names_of(_CASES, "case"), default=_CASES, metavar="A,B", help=known)
    command_line.add_seeds(parser, (1, 2, 3))
    parser.add_argument("--steps", type=int, metavar="N", help="of training (default: each scenario's own)")
    command_line.add_switch(parser)
    return benchmark.run(parser, _run, arguments)


def _run(options: argparse.Namespace) -> int:
    console = make_console(to_stderr=options.json)
    began = time.monotonic()
    scenarios = [_case(name, options.switch, options.steps) for name in options.cases]
    plans = [FabricPlan.of(scenario, options.switch) for scenario in scenarios]
    with ready_machine(plans), ProgressLine(console) as line:
        found, failures = run_scenarios(scenarios, "cnn", options.switch, options.seeds, options.out, line)
    settings = {
        "scenarios": [settings_of(scenario, options.switch, "cnn", options.seeds) for scenario in scenarios],
        "minutes": round((time.monotonic() - began) / 60, 1),
    }
    document = results.document(settings, found, claims.evaluate(found))
    shown = [TextTable("Load balancing", _FIGURES, [_row(result) for result in found])]
    plot = options.out / "load_balancing.svg"
    if found:
        from lab.report import plots  # with matplotlib, which takes a second to import

        plot.write_text(plots.step_durations(found), encoding="utf-8")
    present(console, options, "load_balancing.json", document, shown, **({"plot": plot} if found else {}))
    if failures:
        raise ExperimentError("; ".join(failures))
    return int(any(result.budget_violations for result in found))


def _row(result: ArmResult) -> list[str]:
    transport, tail_drops = result.transport, result.switch.tail_drops
    before, after = result.step_before_failure, result.step_after_failure
    return [
        result.scenario,
        f"{result.arm} ({result.seed})",
        f"{1000 * result.step.p50:.0f} / {1000 * result.step.p99:.0f}",
        f"{1000 * max(result.step_seconds):.0f}",
        f"{len(result.step_seconds) / result.seconds:.2f}",
        _share(result.links),
        "-" if before is None or after is None else f"{1000 * before:.0f} -> {1000 * after:.0f}",
        "-" if result.recovery_seconds is None else f"{1000 * result.recovery_seconds:.0f}",
        "-" if transport is None else f"{transport.repaired:,}",
        f"{result.switch.policy_drops:,}",
        "-" if tail_drops is None else f"{sum(drops.packets for drops in tail_drops):,}",
        "-" if transport is None else f"{result.budget_violations}",
    ]


def _share(links: Mapping[str, int]) -> str:
    """Of what the leaves have sent upwards: the first link of each leaf leads to the first spine."""
    by_leaf: dict[str, list[tuple[int, int]]] = {}
    for end, octets in links.items():
        switch, _, port = end.partition(":")
        if switch.startswith("leaf"):
            by_leaf.setdefault(switch, []).append((int(port), octets))
    total = sum(octets for ports in by_leaf.values() for _, octets in ports)
    first = sum(min(ports)[1] for ports in by_leaf.values())
    return f"{first / total:.0%}" if total else "-"


if __name__ == "__main__":
    sys.exit(main())
