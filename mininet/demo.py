# SPDX-License-Identifier: Apache-2.0
"""The demonstration: trains the same model by each arm over one congested fabric, and compares them."""

import argparse
import sys
from collections.abc import Sequence

from lab import command_line
from lab.command_line import seed
from lab.experiment.runner import check_arms, ready_machine, run_scenario, settings_of
from lab.model import results
from lab.model.plan import FabricPlan
from lab.model.scenarios import SCENARIOS
from lab.report import claims, tables
from lab.report.console import ProgressLine, make_console, present

DEFAULT_SCENARIO = "incast"

_EXAMPLES = """examples:
  sudo .venv/bin/python mininet/demo.py
  sudo .venv/bin/python mininet/demo.py --scenario burst --workers 4 --rate 200mbit --buffer 64kB --seed 1
  sudo .venv/bin/python mininet/demo.py --arms gradlane,ddp-gloo --model transformer --json > result.json
  sudo .venv/bin/python mininet/demo.py --switch bmv2
  sudo .venv/bin/python mininet/demo.py --scenario spine-failure --spines 3 --switch gradlane,spine1=bmv2
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the demonstration; returns the exit status: 0, 1 (something failed), 2 (usage, or the machine)."""
    return command_line.run(_parser(), _demonstrate, arguments)


def _demonstrate(options: argparse.Namespace) -> int:
    console = make_console(to_stderr=options.json)
    scenario = command_line.with_settings(SCENARIOS[options.scenario], options)
    check_arms([scenario])
    with ready_machine([FabricPlan.of(scenario, options.switch)]), ProgressLine(console) as line:
        line.say(f"scenario {scenario.name}: {scenario.summary}")
        if scenario.scale != 1:
            line.say(f"   rates and gradients are scaled by {scenario.scale:g}, to what BMv2 carries")
        for other in SCENARIOS.values():
            if other.name != scenario.name:
                line.say(f"   (other: --scenario {other.name}: {other.summary})")
        found = list(run_scenario(scenario, options.model, options.switch, [options.seed], options.out, line))
    from lab.report import page  # with matplotlib, which takes a second to import

    settings = settings_of(scenario, options.switch, options.model, [options.seed])
    checked = claims.evaluate(found)
    report = options.out / "report.html"
    report.write_text(page.render(scenario.name, scenario.summary, settings, found, checked), encoding="utf-8")
    document = results.document(settings, found, checked)
    present(console, options, "result.json", document, tables.of_runs(found, checked), report=report)
    return 0


def _parser() -> argparse.ArgumentParser:
    scenarios = "; ".join(f"{scenario.name}: {scenario.summary}" for scenario in SCENARIOS.values()).replace("%", "%%")
    parser = command_line.parser("demo.py", __doc__, _EXAMPLES)
    command_line.add_switch(parser)
    parser.add_argument("--scenario", choices=tuple(SCENARIOS), default=DEFAULT_SCENARIO, help=scenarios)
    command_line.add_settings(parser)
    parser.add_argument("--seed", type=seed, default=1, metavar="N", help="(default: %(default)s)")
    command_line.add_model(parser)
    command_line.add_output(parser, "out/demo")
    return parser


if __name__ == "__main__":
    sys.exit(main())
