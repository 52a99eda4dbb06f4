# SPDX-License-Identifier: Apache-2.0
"""The training benchmark: every scenario and arm with several seeds, on the fabric of the demonstration."""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from lab.command_line import names, seeds
from lab.experiment.runner import SWITCH_HELP, ready_machine, run_scenarios, settings_of
from lab.model import results
from lab.model.arms import ARMS
from lab.model.plan import FabricPlan
from lab.model.preconditions import PreconditionError
from lab.model.scenarios import SCENARIOS, Scenario, ScenarioError
from lab.model.topology import TopologyError
from lab.report import claims, tables
from lab.report.console import ProgressLine, make_console, print_tables
from lab.training.sockets import minimum_timeout_is_settable

_EXAMPLES = """examples:
  sudo python -m bench.training.scenarios
  sudo python -m bench.training.scenarios --scenarios clean,gray --seeds 1,2,3 --json > training.json
  sudo python -m bench.training.scenarios --scenarios burst --seeds 7 --steps 60
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark; returns the exit code: 0, 1 (something failed on the way), 2 (usage, or the machine)."""
    options = _parser().parse_args(arguments)
    console = make_console(to_stderr=options.json)
    began = time.monotonic()
    try:
        unknown = [name for name in options.scenarios if name not in SCENARIOS]
        if unknown:
            raise ScenarioError(f"scenario {unknown[0]!r} is unknown; the scenarios are {', '.join(SCENARIOS)}")
        scenarios = [
            _with_all_arms(SCENARIOS[name], options.steps).for_switch(options.switch) for name in options.scenarios
        ]
        with ready_machine([FabricPlan.of(it, options.switch) for it in scenarios]), ProgressLine(console) as line:
            found, failures = run_scenarios(scenarios, options.model, options.switch, options.seeds, options.out, line)
    except (ScenarioError, TopologyError, PreconditionError) as problem:
        print(f"training: error: {problem}", file=sys.stderr)
        return 2
    checked = claims.evaluate(found)
    settings = {
        "scenarios": [settings_of(scenario, options.switch, options.model, options.seeds) for scenario in scenarios],
        "minutes": round((time.monotonic() - began) / 60, 1),
    }
    document = results.document(settings, found, checked)
    results.save(options.out / "training.json", document)
    print_tables(console, tables.of_benchmark(found, checked))
    console.print(f"figures: {options.out / 'training.json'}", soft_wrap=True)
    if options.json:
        print(json.dumps(document, indent=1))
    for failure in failures:
        print(f"training: error: {failure}", file=sys.stderr)
    return 1 if failures else 0


def _with_all_arms(scenario: Scenario, steps: int | None) -> Scenario:
    """The scenario with the further arms that this kernel can run; the others are named."""
    further = [name for name in scenario.further_arms if not ARMS[name].min_rto_ms or minimum_timeout_is_settable()]
    for name in set(scenario.further_arms).difference(further):
        print(f"training: arm {name} is left out: this kernel lacks TCP_RTO_MIN_US (Linux 6.15)", file=sys.stderr)
    return scenario.with_settings(arms=(*scenario.arms, *further), steps=steps)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="training.py", description=__doc__, epilog=_EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scenarios", type=names, default=tuple(SCENARIOS), metavar="A,B", help="(default: all)")
    parser.add_argument("--seeds", type=seeds, default=(1, 2, 3), metavar="A,B", help="(default: 1,2,3)")
    parser.add_argument("--steps", type=int, metavar="N", help="of training (default: each scenario's own)")
    parser.add_argument("--model", choices=("cnn", "transformer"), default="cnn", help="(default: %(default)s)")
    parser.add_argument("--switch", default="gradlane", metavar="S", help=SWITCH_HELP)
    parser.add_argument("--out", type=Path, default=Path("out/bench"), metavar="DIR", help="(default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="the result as JSON on standard output")
    return parser


if __name__ == "__main__":
    sys.exit(main())
