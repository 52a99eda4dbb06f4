# SPDX-License-Identifier: Apache-2.0
"""What the demonstration and the benchmark have in common: preparing the machine, running scenarios, settings."""

import platform
import shutil
import signal
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import preconditions
from console import ProgressLine
from gradlane.units import format_rate
from plan import FabricPlan
from preconditions import PreconditionError
from results import ArmResult
from scenarios import Scenario, ScenarioError
from training.arms import ARMS
from training.sockets import minimum_timeout_is_settable

P4RUNTIME_PORT = 9559
HTTP_PORT = 9560
PIPELINE = Path(__file__).resolve().parent.parent / "p4src" / "build" / "v1model"
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def ready_machine(switch: str, scenarios: Sequence[Scenario]) -> Generator[None, None, None]:
    """Checks the machine, takes the lock, and lets signals end the run in good order.

    Raises PreconditionError, or ScenarioError for a scenario that this switch can't give.
    """
    for scenario in scenarios:
        if scenario.loss and switch == "bmv2":
            raise ScenarioError(
                f"scenario {scenario.name!r} needs a link that loses frames; BMv2 can't lose them by itself and this "
                "runner does not use the netem qdisc for it: choose --switch gradlane"
            )
    preconditions.check_root()
    tuned = [arm for scenario in scenarios for arm in scenario.arms if ARMS[arm].min_rto_ms]
    if tuned and not minimum_timeout_is_settable():
        raise PreconditionError(
            f"arm {tuned[0]!r} needs the socket option TCP_RTO_MIN_US, of Linux 6.15; this is {platform.release()}"
        )
    with preconditions.lock():
        interfaces = {host.port_interface for scenario in scenarios for host in FabricPlan.of(scenario).hosts}
        preconditions.check(switch, (P4RUNTIME_PORT, HTTP_PORT), sorted(interfaces), PIPELINE)
        for number in _STOP_SIGNALS:
            signal.signal(number, _stop)
        yield


def _stop(number: int, _frame: object) -> None:
    """Ends the run as an exception, so that everything is torn down on the way out; further signals change nothing."""
    for each in _STOP_SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    print(f"\nstopped by {signal.Signals(number).name}: tearing down", file=sys.stderr)
    raise SystemExit(128 + number)


def run_scenario(
    scenario: Scenario, model: str, switch: str, seeds: Sequence[int], out: Path, line: ProgressLine
) -> Generator[ArmResult, None, None]:
    """Runs every arm of the scenario with every seed on one fabric. What the processes leave is in `out`/run.

    Yields each run's result. Raises ExperimentError.
    """
    # Imported only now: preconditions says it better than an ImportError if Mininet is missing.
    from arm_run import TASKS
    from experiment import Experiment

    run = out / "run" / scenario.name
    if run.exists():
        shutil.rmtree(run)
    with Experiment(scenario, TASKS[model], switch, seeds[0], run) as experiment:
        for seed in seeds:
            for arm in scenario.arms:
                line.say(f"{scenario.name}, seed {seed}, arm {arm}: {ARMS[arm].summary}")
                yield experiment.run(arm, seed, line.show)


def settings_of(scenario: Scenario, switch: str, model: str, seeds: Sequence[int]) -> dict[str, Any]:
    """The settings of a run, as the result file and the report state them."""
    return {
        "scenario": scenario.name,
        "switch": "gradlane-switch" if switch == "gradlane" else "BMv2",
        "model": model,
        "workers": scenario.workers,
        "servers": scenario.servers,
        "rate": format_rate(scenario.rate),
        "buffer": f"{scenario.buffer / 1000:g}kB",
        "steps": scenario.steps,
        "loss on the first worker's link": f"{scenario.loss:g}",
        "bursts": _describe_bursts(scenario),
        "seeds": ", ".join(map(str, seeds)),
    }


def _describe_bursts(scenario: Scenario) -> str:
    bursts = scenario.bursts
    if bursts is None:
        return "none"
    return (
        f"{bursts.rate_share:g} x rate for {1000 * bursts.period * bursts.duty:g} ms of every "
        f"{1000 * bursts.period:g} ms to every {bursts.receivers}" + (", in turn" if bursts.stagger else "")
    )
