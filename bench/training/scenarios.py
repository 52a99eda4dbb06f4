# SPDX-License-Identifier: Apache-2.0
"""The training benchmark: every scenario and arm with several seeds, on the fabric of the demonstration."""

import argparse
import dataclasses
import sys
import time
from collections.abc import Sequence

from bench.harness import benchmark
from lab import command_line
from lab.command_line import names_of
from lab.experiment.runner import check_arms, ready_machine, run_scenarios, settings_of
from lab.model import results
from lab.model.arms import ARMS
from lab.model.errors import ExperimentError
from lab.model.plan import FabricPlan
from lab.model.scenarios import SCENARIOS, Scenario
from lab.report import claims, tables
from lab.report.console import ProgressLine, make_console, present
from lab.training.sockets import minimum_timeout_is_settable


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark; the exit status."""
    parser = benchmark.parser(
        "training.scenarios",
        __doc__,
        "--scenarios clean,gray --seeds 1,2,3 --json > training.json",
        "--scenarios burst --seeds 7 --steps 60",
        "--scenarios clean --workers 8 --arms gradlane-switch-sum,gradlane,ddp-gloo-fp16",
    )
    known = tuple(SCENARIOS)
    parser.add_argument(
        "--scenarios", type=names_of(known, "scenario"), default=known, metavar="A,B", help="(default: all)"
    )
    command_line.add_seeds(parser, (1, 2, 3))
    command_line.add_settings(parser)
    command_line.add_model(parser)
    command_line.add_switch(parser)
    return benchmark.run(parser, _run, arguments)


def _run(options: argparse.Namespace) -> int:
    console = make_console(to_stderr=options.json)
    began = time.monotonic()
    scenarios = [command_line.with_settings(_with_all_arms(SCENARIOS[name]), options) for name in options.scenarios]
    check_arms(scenarios)
    with ready_machine([FabricPlan.of(it, options.switch) for it in scenarios]), ProgressLine(console) as line:
        found, failures = run_scenarios(scenarios, options.model, options.switch, options.seeds, options.out, line)
    checked = claims.evaluate(found)
    settings = {
        "scenarios": [settings_of(scenario, options.switch, options.model, options.seeds) for scenario in scenarios],
        "minutes": round((time.monotonic() - began) / 60, 1),
    }
    document = results.document(settings, found, checked)
    present(console, options, "training.json", document, tables.of_benchmark(found, checked))
    if failures:
        raise ExperimentError("; ".join(failures))
    return 0


def _with_all_arms(scenario: Scenario) -> Scenario:
    """The scenario with the further arms that this kernel can run; the others are named."""
    further = [name for name in scenario.further_arms if not ARMS[name].min_rto_ms or minimum_timeout_is_settable()]
    for name in set(scenario.further_arms).difference(further):
        print(f"arm {name} is left out: this kernel lacks TCP_RTO_MIN_US (Linux 6.15)", file=sys.stderr)
    return dataclasses.replace(scenario, arms=(*scenario.arms, *further))


if __name__ == "__main__":
    sys.exit(main())
