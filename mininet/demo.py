# SPDX-License-Identifier: Apache-2.0
"""The demonstration: trains the same model by each arm over one congested fabric, and compares them."""

import argparse
import dataclasses
import sys
from collections.abc import Sequence

from gradlane.units import checked, parse_rate, parse_size
from lab import command_line
from lab.command_line import names, seed
from lab.experiment.runner import check_arms, ready_machine, run_scenario, settings_of
from lab.model import results
from lab.model.arms import ARMS
from lab.model.plan import FabricPlan
from lab.model.scenarios import SCENARIOS, Scenario
from lab.model.topology import KINDS
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
    scenario = _scenario(options)
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


def _scenario(options: argparse.Namespace) -> Scenario:
    """The scenario with the user's settings instead of its own. Raises ScenarioError or TopologyError."""
    own = SCENARIOS[options.scenario]
    given = {"kind": options.topo, "leaves": options.leaves, "spines": options.spines}
    topology = dataclasses.replace(own.topology, **{key: value for key, value in given.items() if value is not None})
    return own.with_settings(
        topology=topology,
        arms=options.arms,
        workers=options.workers,
        servers=options.servers,
        rate=options.rate,
        buffer=options.buffer,
        steps=options.steps,
    ).for_switch(options.switch)


def _parser() -> argparse.ArgumentParser:
    scenarios = "; ".join(f"{scenario.name}: {scenario.summary}" for scenario in SCENARIOS.values()).replace("%", "%%")
    parser = command_line.parser("demo.py", __doc__, _EXAMPLES)
    command_line.add_switch(parser)
    parser.add_argument("--topo", choices=KINDS, help="(default: the scenario's own)")
    parser.add_argument("--leaves", type=int, metavar="N", help="of a leafspine, 1 to 8; workers are spread over them")
    parser.add_argument("--spines", type=int, metavar="N", help="of a leafspine, 1 to 8")
    parser.add_argument("--scenario", choices=tuple(SCENARIOS), default=DEFAULT_SCENARIO, help=scenarios)
    parser.add_argument("--workers", type=int, metavar="N", help="2 to 16")
    parser.add_argument("--servers", type=int, metavar="N", help="1 to 8, for arms with parameter servers")
    parser.add_argument("--rate", type=checked(parse_rate), metavar="R", help="of every link, 1mbit to 1gbit")
    parser.add_argument("--buffer", type=checked(parse_size), metavar="B", help="of every switch port, 8kB to 4MB")
    parser.add_argument("--steps", type=int, metavar="N", help="of training, the same for every arm")
    parser.add_argument("--seed", type=seed, default=1, metavar="N", help="(default: %(default)s)")
    parser.add_argument(
        "--arms", type=names, metavar="A,B", help=f"of {', '.join(ARMS)}; the others are compared with the first"
    )
    command_line.add_model(parser)
    command_line.add_output(parser, "out/demo")
    return parser


if __name__ == "__main__":
    sys.exit(main())
