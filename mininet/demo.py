# SPDX-License-Identifier: Apache-2.0
"""The demonstration: trains one model in several ways over one congested fabric, side by side, and compares."""

import argparse
import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from gradlane.units import parse_rate, parse_size
from lab.command_line import names, quantity, seed
from lab.experiment.runner import SWITCH_HELP, check_arms, ready_machine, run_scenario, settings_of
from lab.model import results
from lab.model.arms import ARMS
from lab.model.errors import ExperimentError
from lab.model.plan import FabricPlan
from lab.model.preconditions import PreconditionError
from lab.model.results import ArmResult
from lab.model.scenarios import SCENARIOS, Scenario, ScenarioError
from lab.model.topology import KINDS, Topology, TopologyError
from lab.report import claims, tables
from lab.report.console import ProgressLine, make_console, print_tables

DEFAULT_SCENARIO = "incast"

_EXAMPLES = """examples:
  sudo python mininet/demo.py
  sudo python mininet/demo.py --scenario burst --workers 4 --rate 200mbit --buffer 64kB --seed 1
  sudo python mininet/demo.py --arms gradlane,ddp-gloo --model transformer --json > result.json
  sudo python mininet/demo.py --switch bmv2
  sudo python mininet/demo.py --scenario spine-failure --spines 3 --switch gradlane,spine1=bmv2
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the demonstration; returns the exit code: 0, 1 (something failed on the way), 2 (usage, or the machine)."""
    options = _parser().parse_args(arguments)
    console = make_console(to_stderr=options.json)
    try:
        scenario = (
            SCENARIOS[options.scenario]
            .with_settings(
                topology=_topology(options, SCENARIOS[options.scenario].topology),
                arms=options.arms,
                workers=options.workers,
                servers=options.servers,
                rate=options.rate,
                buffer=options.buffer,
                steps=options.steps,
            )
            .for_switch(options.switch)
        )
        check_arms([scenario])
        with ready_machine([FabricPlan.of(scenario, options.switch)]), ProgressLine(console) as line:
            line.say(f"scenario {scenario.name}: {scenario.summary}")
            if scenario.scale != 1:
                line.say(f"   rates and gradients are scaled by {scenario.scale:g}, to what BMv2 carries")
            for other in SCENARIOS.values():
                if other.name != scenario.name:
                    line.say(f"   (other: --scenario {other.name}: {other.summary})")
            found = list(run_scenario(scenario, options.model, options.switch, [options.seed], options.out, line))
    except (ScenarioError, TopologyError, PreconditionError) as problem:
        print(f"demo: error: {problem}", file=sys.stderr)
        return 2
    except ExperimentError as problem:
        print(f"demo: error: {problem}", file=sys.stderr)
        return 1
    _present(options, scenario, found, console)
    return 0


def _present(options: argparse.Namespace, scenario: Scenario, found: Sequence[ArmResult], console: Console) -> None:
    """The files and tables at the end."""
    from lab.report import page  # with matplotlib, which takes a second to import

    settings = settings_of(scenario, options.switch, options.model, [options.seed])
    checked = claims.evaluate(found)
    document = results.document(settings, found, checked)
    results.save(options.out / "result.json", document)
    html = page.render(scenario.name, scenario.summary, settings, found, checked)
    (options.out / "report.html").write_text(html, encoding="utf-8")
    print_tables(console, tables.of_runs(found, checked))
    console.print(f"report: {options.out / 'report.html'}   figures: {options.out / 'result.json'}", soft_wrap=True)
    if options.json:
        print(json.dumps(document, indent=1))


def _topology(options: argparse.Namespace, own: Topology) -> Topology:
    """The scenario's own, with what was asked for instead."""
    given = {"kind": options.topo, "leaves": options.leaves, "spines": options.spines}
    return dataclasses.replace(own, **{key: value for key, value in given.items() if value is not None})


def _parser() -> argparse.ArgumentParser:
    scenarios = "; ".join(f"{scenario.name}: {scenario.summary}" for scenario in SCENARIOS.values()).replace("%", "%%")
    parser = argparse.ArgumentParser(
        prog="demo.py", description=__doc__, epilog=_EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--switch", default="gradlane", metavar="S", help=SWITCH_HELP)
    parser.add_argument("--topo", choices=KINDS, help="(default: the scenario's own)")
    parser.add_argument("--leaves", type=int, metavar="N", help="of a leafspine, 1 to 8; workers are spread over them")
    parser.add_argument("--spines", type=int, metavar="N", help="of a leafspine, 1 to 8")
    parser.add_argument("--scenario", choices=tuple(SCENARIOS), default=DEFAULT_SCENARIO, help=scenarios)
    parser.add_argument("--workers", type=int, metavar="N", help="2 to 16")
    parser.add_argument("--servers", type=int, metavar="N", help="1 to 8, for arms with parameter servers")
    parser.add_argument("--rate", type=quantity(parse_rate), metavar="R", help="of every link, 1mbit to 1gbit")
    parser.add_argument("--buffer", type=quantity(parse_size), metavar="B", help="of every switch port, 8kB to 4MB")
    parser.add_argument("--steps", type=int, metavar="N", help="of training, the same for every arm")
    parser.add_argument("--seed", type=seed, default=1, metavar="N", help="(default: %(default)s)")
    parser.add_argument("--arms", type=names, metavar="A,B", help=f"of {', '.join(ARMS)}; the subject first")
    parser.add_argument("--model", choices=("cnn", "transformer"), default="cnn", help="(default: %(default)s)")
    parser.add_argument("--out", type=Path, default=Path("out/demo"), metavar="DIR", help="(default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="the result as JSON on standard output")
    return parser


if __name__ == "__main__":
    sys.exit(main())
