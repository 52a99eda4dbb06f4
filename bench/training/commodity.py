# SPDX-License-Identifier: Apache-2.0
"""How far Gradlane gets on ordinary switches: the same training over the P4 program, and over an emulated one.

The emulated switch is gradlane-switch with commodity.p4: DSCP to queue, strict priority, WRED by DSCP, ECN by queue,
and no knowledge of gradients; there the hosts write the tags. TCP runs on it too. See docs/commodity-switches.md.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Literal

from bench.harness import benchmark
from gradlane.units import checked, parse_rate
from lab import command_line
from lab.command_line import names_of
from lab.experiment.runner import ready_machine
from lab.model.errors import ExperimentError
from lab.model.plan import FabricPlan
from lab.model.results import ArmResult
from lab.model.scenarios import SCENARIOS, Scenario
from lab.report.console import ProgressLine, make_console, present
from lab.report.tables import TextTable

Kind = Literal["P4", "commodity"]
# By scenario, what is compared: on which switch, and which arm.
RUNS: dict[str, tuple[tuple[Kind, str], ...]] = {
    "incast": (("P4", "gradlane-ps"), ("commodity", "gradlane-ps-host"), ("commodity", "ps-tcp")),
    "burst": (("P4", "gradlane"), ("commodity", "gradlane-host"), ("commodity", "ddp-gloo-fp16")),
}
_COLUMNS = (
    "scenario", "switch", "arm", "step p50 / p99, ms", "relative", "delivered", "repaired", "early drops", "tail drops",
    "over budget",
)  # fmt: skip


@dataclass(frozen=True)
class Result:
    """One training. Times of a step in ms; slices of all messages; packets that the switch dropped.

    `early_drops`: by the gradient policy within budgets, or by WRED. `tail_drops`: of full buffers. `over_budget`:
    messages that completed with more missing than tolerated, which must be 0.
    """

    scenario: str
    network: Kind
    arm: str
    seed: int
    step_p50: float
    step_p99: float
    delivered: float | None
    repaired: int | None
    early_drops: int
    tail_drops: int
    over_budget: int


def _experiment(network: Kind, scenario: Scenario, model: str, seed: int, out: Path) -> Any:
    # Imported only now: preconditions says it better than an ImportError if Mininet is missing.
    from bench.training.commodity_network import CommodityNetwork
    from lab.experiment.arm_run import TASKS
    from lab.experiment.experiment import Experiment
    from lab.net.network import Network

    kind = Network if network == "P4" else CommodityNetwork
    return Experiment(scenario, TASKS[model], "gradlane", seed, out, kind)


def _result(network: Kind, run: ArmResult, early: int) -> Result:
    transport = run.transport
    return Result(
        scenario=run.scenario,
        network=network,
        arm=run.arm,
        seed=run.seed,
        step_p50=1000 * run.step.p50,
        step_p99=1000 * run.step.p99,
        delivered=transport.delivered_fraction if transport else None,
        repaired=transport.repaired if transport else None,
        early_drops=early,
        tail_drops=sum(row.packets for row in run.switch.tail_drops or ()),
        over_budget=transport.budget_violations if transport else 0,
    )


def measure(scenario: Scenario, model: str, seeds: Sequence[int], out: Path, line: ProgressLine) -> Iterator[Result]:
    """Every run of a scenario, one fabric after the other. Raises ExperimentError."""
    for seed in seeds:
        kinds: dict[Kind, None] = dict.fromkeys(where for where, _ in RUNS[scenario.name])
        for network in kinds:
            arms = [arm for where, arm in RUNS[scenario.name] if where == network]
            folder = out / "run" / f"{scenario.name}-{network}-{seed}"
            with _experiment(network, scenario.with_settings(arms=tuple(arms)), model, seed, folder) as experiment:
                for arm in arms:
                    line.say(f"{scenario.name}, seed {seed}, {network} switch, arm {arm}")
                    before = experiment.network.operator.early_drops() if network == "commodity" else 0
                    run = experiment.run(arm, seed, line.show)
                    early = experiment.network.operator.early_drops() - before if network == "commodity" else None
                    yield _result(network, run, run.switch.policy_drops if early is None else early)


def table(results: Sequence[Result]) -> TextTable:
    """Medians over the seeds; `relative` is how many times as fast as TCP on the commodity switch, by step time."""
    rows: list[list[str]] = []
    for scenario in dict.fromkeys(item.scenario for item in results):
        of_arm = {key: [item for item in results if (item.scenario, item.network, item.arm) == (scenario, *key)]
                  for key in RUNS[scenario]}  # fmt: skip
        last = of_arm[RUNS[scenario][-1]]
        for (network, arm), found in of_arm.items():
            if not found:
                continue
            p50 = median(item.step_p50 for item in found)
            delivered, repaired = found[0].delivered, [item.repaired for item in found if item.repaired is not None]
            rows.append(
                [
                    scenario,
                    network,
                    arm,
                    f"{p50:.0f} / {median(item.step_p99 for item in found):.0f}",
                    f"{median(item.step_p50 for item in last) / p50:.2f}x" if last else "-",
                    "-" if delivered is None else f"{median(item.delivered or 0 for item in found):.2%}",
                    f"{median(repaired):,.0f}" if repaired else "-",
                    f"{median(item.early_drops for item in found):,.0f}",
                    f"{median(item.tail_drops for item in found):,.0f}",
                    f"{sum(item.over_budget for item in found)}" if repaired else "-",
                ]
            )
    return TextTable("The same training on both switches", _COLUMNS, rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark; the exit status."""
    parser = benchmark.parser(
        "training.commodity", __doc__, "--scenarios incast --steps 40 --seeds 1,2,3 --json > commodity.json"
    )
    add, known = parser.add_argument, tuple(RUNS)
    text = f"of {', '.join(known)} (default: all)"
    add("--scenarios", type=names_of(known, "scenario"), default=known, metavar="A,B", help=text)
    command_line.add_seeds(parser, (1,))
    add("--steps", type=int, default=30, metavar="N", help="of training (default: %(default)s)")
    add("--rate", type=checked(parse_rate), metavar="R", help="of every link (default: each scenario's own)")
    command_line.add_model(parser)
    return benchmark.run(parser, _run, arguments)


def _run(options: argparse.Namespace) -> int:
    console = make_console(to_stderr=options.json)
    found: list[Result] = []
    failures: list[str] = []
    scenarios = [SCENARIOS[name].with_settings(steps=options.steps, rate=options.rate) for name in options.scenarios]
    with ready_machine([FabricPlan.of(scenario) for scenario in scenarios]), ProgressLine(console) as line:
        for scenario in scenarios:
            try:
                for result in measure(scenario, options.model, options.seeds, options.out, line):
                    found.append(result)
            except ExperimentError as problem:
                failures.append(f"{scenario.name}: {problem}")
                line.say(f"error: {failures[-1]}; going on with the next scenario")
    document = benchmark.document(benchmark.chosen(options, "model"), found)
    present(console, options, "commodity.json", document, [table(found)])
    if failures:
        raise ExperimentError("; ".join(failures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
