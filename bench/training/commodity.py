# SPDX-License-Identifier: Apache-2.0
"""How far Gradlane gets on ordinary switches: the same training over the P4 program, and over an emulated one.

The emulated switch is gradlane-switch with commodity.p4: DSCP to queue, strict priority, WRED by DSCP, ECN by queue,
and no knowledge of gradients; there the hosts write the tags. TCP runs on it too. See docs/commodity-switches.md.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Literal

from finsy import P4ClientError
from rich.console import Console

from bench.harness.benchmark import save
from bench.training import commodity_switch
from bench.training.commodity_switch import Port
from gradlane.units import parse_rate
from lab.command_line import seeds
from lab.experiment.runner import ready_machine
from lab.model.errors import ControlError, ExperimentError
from lab.model.plan import DSCP_CLASSES, FabricPlan
from lab.model.preconditions import RUN_DIRECTORY, PreconditionError
from lab.model.results import ArmResult
from lab.model.scenarios import SCENARIOS, Scenario, ScenarioError
from lab.net.control import Controller, ask_switch
from lab.report.console import ProgressLine, make_console, print_tables
from lab.report.tables import TextTable

Kind = Literal["P4", "commodity"]
# By scenario, what is compared: on which switch, and which arm.
RUNS: dict[str, tuple[tuple[Kind, str], ...]] = {
    "incast": (("P4", "gradlane-ps"), ("commodity", "gradlane-ps-host"), ("commodity", "ps-tcp")),
    "burst": (("P4", "gradlane"), ("commodity", "gradlane-host"), ("commodity", "ddp-gloo-fp16")),
}
_MULTICAST = "239.1.0.0/24"  # the jobs' groups
_COLUMNS = (
    "scenario", "switch", "arm", "step p50 / p99, ms", "relative", "delivered", "repaired", "early drops", "tail drops",
    "over budget",
)  # fmt: skip
_EXAMPLES = """examples:
  sudo python -m bench.training.commodity
  sudo python -m bench.training.commodity --scenarios incast --steps 40 --seeds 1,2,3 --json > commodity.json
"""


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


class _Operator(Controller):
    """In the controller's place: a switch that was configured once, and is told of no job."""

    def __init__(self, plan: FabricPlan, address: str, admin: Path) -> None:
        super().__init__(address)
        self._plan, self._p4runtime, self._admin = plan, address, admin

    def configure(self) -> None:
        """Writes the switch's configuration. Raises ControlError."""
        plan = self._plan
        hosts = [
            Port(host.port, host.address, host.mac, host.gateway_mac, plan.rate, plan.buffer) for host in plan.hosts
        ]
        workers = [host.port for host in plan.of_role("worker")]
        queues = dict(DSCP_CLASSES)
        try:
            commodity_switch.configure(self._p4runtime, commodity_switch.entries(hosts, _MULTICAST, workers, queues))
        except (P4ClientError, TimeoutError) as problem:
            raise ControlError(f"the commodity switch can't be configured: {problem}") from None
        for host in plan.hosts:
            mark = round(commodity_switch.YELLOW * plan.buffer)
            ask_switch(self._admin, {"op": "set", "port": host.port, "ecn": f"{mark}B"})

    def put_job(self, document: dict[str, Any]) -> None:
        """Nothing to be told."""

    def delete_job(self, name: str) -> None:
        """Nothing to be told."""

    def counters(self) -> dict[str, Any]:
        """No decision about gradients."""
        return {"decisions": [], "drop_map": []}

    def early_drops(self) -> int:
        """Packets that WRED has dropped so far."""
        return sum(commodity_switch.early_drops(self._p4runtime).values())


def _experiment(network: Kind, scenario: Scenario, model: str, seed: int, out: Path) -> Any:
    # Imported only now: preconditions says it better than an ImportError if Mininet is missing.
    from lab.experiment.arm_run import TASKS
    from lab.experiment.experiment import Experiment
    from lab.net.network import Network

    class OnCommodity(Network):
        """The same network, with the operator's configuration instead of the controller."""

        def __init__(self, plan: FabricPlan, out: Path, *, seed: int = 1, neighbours: bool = True) -> None:
            super().__init__(plan, out, seed=seed, neighbours=neighbours)
            (switch,) = plan.switches
            self.controller = self.operator = _Operator(plan, switch.address, RUN_DIRECTORY / f"{switch.name}.sock")

        def start_controller(self) -> None:
            self.operator.configure()

    return Experiment(scenario, TASKS[model], "gradlane", seed, out, Network if network == "P4" else OnCommodity)


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
            with ExitStack() as stack:
                experiment = stack.enter_context(
                    _experiment(network, scenario.with_settings(arms=tuple(arms)), model, seed, folder)
                )
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
    """Runs the benchmark; the exit code: 0, 1 (something failed on the way), 2 (usage, or the machine)."""
    options = _parser().parse_args(arguments)
    console: Console = make_console(to_stderr=options.json)
    found: list[Result] = []
    failures: list[str] = []
    try:
        scenarios = [
            SCENARIOS[name].with_settings(steps=options.steps, rate=options.rate) for name in options.scenarios
        ]
        with ready_machine([FabricPlan.of(scenario) for scenario in scenarios]), ProgressLine(console) as line:
            for scenario in scenarios:
                try:
                    for result in measure(scenario, options.model, options.seeds, options.out, line):
                        found.append(result)
                except ExperimentError as problem:
                    failures.append(f"{scenario.name}: {problem}")
                    line.say(f"error: {failures[-1]}; going on with the next scenario")
    except (ScenarioError, PreconditionError) as problem:
        print(f"commodity: error: {problem}", file=sys.stderr)
        return 2
    print_tables(console, [table(found)])
    save(options.out / "commodity.json", {"model": options.model}, found, show=options.json)
    for failure in failures:
        print(f"commodity: error: {failure}", file=sys.stderr)
    return 1 if failures else 0


def _scenarios(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    for name in names:
        if name not in RUNS:
            raise argparse.ArgumentTypeError(f"{name!r} is not compared here: there are {', '.join(RUNS)}")
    return names


def _rate(text: str) -> int:
    try:
        return parse_rate(text)
    except ValueError as problem:
        raise argparse.ArgumentTypeError(str(problem)) from None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="commodity.py", description=__doc__, epilog=_EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    known = ", ".join(RUNS)
    parser.add_argument("--scenarios", type=_scenarios, default=tuple(RUNS), metavar="A,B", help=f"of {known} (all)")
    parser.add_argument("--seeds", type=seeds, default=(1,), metavar="A,B", help="(default: 1)")
    parser.add_argument("--steps", type=int, default=30, metavar="N", help="of training (default: %(default)s)")
    parser.add_argument("--rate", type=_rate, metavar="R", help="of every link (default: each scenario's own)")
    parser.add_argument("--model", choices=("cnn", "transformer"), default="cnn", help="(default: %(default)s)")
    parser.add_argument("--out", type=Path, default=Path("out/bench"), metavar="DIR", help="(default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="every run as JSON on standard output")
    return parser


if __name__ == "__main__":
    sys.exit(main())
