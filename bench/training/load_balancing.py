# SPDX-License-Identifier: Apache-2.0
"""Load balancing on a leaf-spine: slices sprayed over all paths, against flows that keep to one by their hash (ECMP).

Three cases: nothing else on the fabric, other traffic on one spine's links, and a spine that dies in mid-training.
"""

import argparse
import dataclasses
import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from lab.command_line import names, seeds
from lab.experiment.runner import SWITCH_HELP, ready_machine, run_scenarios, settings_of
from lab.model import results
from lab.model.plan import FabricPlan
from lab.model.preconditions import PreconditionError
from lab.model.results import ArmResult
from lab.model.scenarios import SCENARIOS, Scenario, ScenarioError
from lab.model.topology import TopologyError
from lab.report import claims
from lab.report.console import ProgressLine, make_console, print_tables
from lab.report.tables import TextTable

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
_EXAMPLES = """examples:
  sudo python -m bench.training.load_balancing
  sudo python -m bench.training.load_balancing --cases spine-failure --seeds 1 --steps 40 --json > load_balancing.json
  sudo python -m bench.training.load_balancing --switch bmv2 --seeds 1
"""


def _cases(switch: str, steps: int | None) -> dict[str, Scenario]:
    """The scenarios, by name. Raises ScenarioError or TopologyError."""
    asymmetric, failure = SCENARIOS["asymmetric"], SCENARIOS["spine-failure"]
    balanced = dataclasses.replace(asymmetric, name="balanced", summary="nothing else on the leaf-spine", bursts=None)
    return {it.name: it.with_settings(steps=steps).for_switch(switch) for it in (balanced, asymmetric, failure)}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark; returns the exit code: 0, 1 (something failed on the way), 2 (usage, or the machine)."""
    options = _parser().parse_args(arguments)
    console = make_console(to_stderr=options.json)
    began = time.monotonic()
    try:
        cases = _cases(options.switch, options.steps)
        unknown = [name for name in options.cases if name not in cases]
        if unknown:
            raise ScenarioError(f"case {unknown[0]!r} is unknown; the cases are {', '.join(cases)}")
        scenarios = [cases[name] for name in options.cases or cases]
        plans = [FabricPlan.of(scenario, options.switch) for scenario in scenarios]
        with ready_machine(plans), ProgressLine(console) as line:
            found, failures = run_scenarios(scenarios, "cnn", options.switch, options.seeds, options.out, line)
    except (ScenarioError, TopologyError, PreconditionError) as problem:
        print(f"load_balancing: error: {problem}", file=sys.stderr)
        return 2
    settings = {
        "scenarios": [settings_of(scenario, options.switch, "cnn", options.seeds) for scenario in scenarios],
        "minutes": round((time.monotonic() - began) / 60, 1),
    }
    document = results.document(settings, found, claims.evaluate(found))
    results.save(options.out / "load_balancing.json", document)
    print_tables(console, [TextTable("Load balancing", _FIGURES, [_row(result) for result in found])])
    if found:
        from lab.report import plots  # with matplotlib, which takes a second to import

        page = options.out / "load_balancing.svg"
        page.write_text(plots.step_durations(found), encoding="utf-8")
        console.print(f"figures: {options.out / 'load_balancing.json'}   plot: {page}", soft_wrap=True)
    if options.json:
        print(json.dumps(document, indent=1))
    for failure in failures:
        print(f"load_balancing: error: {failure}", file=sys.stderr)
    return 1 if failures or any(result.budget_violations for result in found) else 0


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


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="load_balancing.py",
        description=__doc__,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--cases", type=names, default=(), metavar="A,B", help="of balanced, asymmetric, spine-failure (default: all)"
    )
    parser.add_argument("--seeds", type=seeds, default=(1, 2, 3), metavar="A,B", help="(default: 1,2,3)")
    parser.add_argument("--steps", type=int, metavar="N", help="of training (default: each scenario's own)")
    parser.add_argument("--switch", default="gradlane", metavar="S", help=SWITCH_HELP)
    parser.add_argument("--out", type=Path, default=Path("out/bench"), metavar="DIR", help="(default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="the result as JSON on standard output")
    return parser


if __name__ == "__main__":
    sys.exit(main())
