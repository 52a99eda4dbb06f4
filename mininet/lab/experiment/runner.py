# SPDX-License-Identifier: Apache-2.0
"""What the demonstration and the benchmark have in common: preparing the machine, running scenarios, settings."""

import platform
import shutil
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gradlane.units import format_rate
from lab.model import preconditions, stopping
from lab.model.arms import ARMS
from lab.model.errors import ExperimentError, PreconditionError
from lab.model.plan import HTTP_PORT, FabricPlan
from lab.model.results import ArmResult
from lab.model.scenarios import Scenario
from lab.report.console import ProgressLine
from lab.training.sockets import minimum_timeout_is_settable

PIPELINE = Path(__file__).resolve().parents[3] / "p4src" / "build" / "v1model"


@contextmanager
def ready_machine(plans: Sequence[FabricPlan]) -> Generator[None, None, None]:
    """Checks that the machine can build the fabrics, takes the lock, and lets signals end the run in good order.

    Raises PreconditionError.
    """
    preconditions.check_root()
    with preconditions.lock():
        preconditions.check(
            {target for plan in plans for target in plan.targets.values()},
            {HTTP_PORT, *(port for plan in plans for switch in plan.switches for port in switch.tcp_ports)},
            sorted({name for plan in plans for name in plan.port_interfaces}),
            PIPELINE,
        )
        with stopping.in_good_order():
            yield


def check_arms(scenarios: Sequence[Scenario]) -> None:
    """Raises PreconditionError for an arm that this kernel can't run."""
    tuned = [arm for scenario in scenarios for arm in scenario.arms if ARMS[arm].min_rto_ms]
    if tuned and not minimum_timeout_is_settable():
        raise PreconditionError(
            f"arm {tuned[0]!r} needs the socket option TCP_RTO_MIN_US, of Linux 6.15; this is {platform.release()}"
        )


def run_scenario(
    scenario: Scenario, model: str, switch: str, seeds: Sequence[int], out: Path, line: ProgressLine
) -> Generator[ArmResult, None, None]:
    """Runs every arm of the scenario with every seed on one fabric. What the processes leave is in `out`/run.

    Yields each run's result. Raises ExperimentError.
    """
    # Imported only now: preconditions says it better than an ImportError if Mininet is missing.
    from lab.experiment.arm_run import TASKS
    from lab.experiment.experiment import Experiment

    run = out / "run" / scenario.name
    if run.exists():
        shutil.rmtree(run)
    with Experiment(scenario, TASKS[model], switch, seeds[0], run) as experiment:
        line.say(f"{scenario.name}: see it live at {experiment.network.page}")
        for seed in seeds:
            for arm in scenario.arms:
                line.say(f"{scenario.name}, seed {seed}, arm {arm}: {ARMS[arm].summary}")
                yield experiment.run(arm, seed, line.show)


def run_scenarios(
    scenarios: Sequence[Scenario], model: str, switch: str, seeds: Sequence[int], out: Path, line: ProgressLine
) -> tuple[list[ArmResult], list[str]]:
    """Runs one scenario after the other. Returns the results and the failures: each costs the rest of its scenario."""
    found: list[ArmResult] = []
    failures: list[str] = []
    for scenario in scenarios:
        try:
            for result in run_scenario(scenario, model, switch, seeds, out, line):
                found.append(result)
        except ExperimentError as problem:
            failures.append(f"{scenario.name}: {problem}")
            line.say(f"error: {failures[-1]}; going on with the next scenario")
    return found, failures


def settings_of(scenario: Scenario, switch: str, model: str, seeds: Sequence[int]) -> dict[str, Any]:
    """The settings of a run, as the result file and the report state them."""
    return {
        "scenario": scenario.name,
        "topology": str(scenario.topology),
        "switch": {"gradlane": "gradlane-switch", "bmv2": "BMv2"}.get(switch, switch),
        "model": model,
        "scale of rate and gradients": f"{scenario.scale:g}",
        "workers": scenario.workers,
        "servers": scenario.servers,
        "rate": format_rate(scenario.rate),
        "buffer": f"{scenario.buffer / 1000:g}kB",
        "steps": scenario.steps,
        "loss on the first worker's link": f"{scenario.loss:g}",
        "bursts": _describe_bursts(scenario),
        "failure": _describe_failure(scenario),
        "slow worker": _describe_slowness(scenario),
        "seeds": ", ".join(map(str, seeds)),
    }


def _describe_failure(scenario: Scenario) -> str:
    failure = scenario.failure
    return f"{failure.switch} after {failure.share:.0%} of the steps" if failure else "none"


def _describe_slowness(scenario: Scenario) -> str:
    slow = scenario.slow
    if slow is None:
        return "none"
    return f"the last: a step's computation takes {slow.factor} x {slow.computation_ms} ms, with a pause"


def _describe_bursts(scenario: Scenario) -> str:
    bursts = scenario.bursts
    if bursts is None:
        return "none"
    where = f" from {bursts.source}, DSCP {bursts.dscp}" if bursts.source else ""
    if bursts.duty == 1:
        return f"{bursts.rate_share:g} x rate all the time to every {bursts.receivers}{where}"
    return (
        f"{bursts.rate_share:g} x rate for {1000 * bursts.period * bursts.duty:g} ms of every "
        f"{1000 * bursts.period:g} ms to every {bursts.receivers}{where}" + (", in turn" if bursts.stagger else "")
    )
