# SPDX-License-Identifier: Apache-2.0
"""One experiment: a network with an agent on every host, on which arms run one after the other."""

from contextlib import ExitStack
from pathlib import Path

from lab.experiment.arm_run import ArmRun, Report, Task
from lab.model.arms import ARMS
from lab.model.errors import ControlError, ProcessError
from lab.model.plan import FabricPlan
from lab.model.results import ArmResult
from lab.model.scenarios import Scenario
from lab.net.control import read_switches
from lab.net.network import Network


class Experiment:
    """A running network with agents. Use as a context manager; leaving it ends every process and removes every
    interface.

    `switch` says what runs as each switch, as Topology.targets takes it; `network` is the kind of network; logs,
    records and files go below `out`. Raises ExperimentError where something does not come up.
    """

    def __init__(
        self, scenario: Scenario, task: Task, switch: str, seed: int, out: Path, network: type[Network] = Network
    ) -> None:
        self.scenario = scenario
        self._task = task
        self._out = out
        self.network = network(FabricPlan.of(scenario, switch), out, seed=seed)
        self._stack = ExitStack()

    def __enter__(self) -> "Experiment":
        with ExitStack() as stack:
            stack.enter_context(self.network)
            self.network.start_agents([*self.network.plan.of_role("worker"), *self.network.plan.of_role("server")])
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *details: object) -> None:
        self._stack.close()

    def run(self, arm: str, seed: int, report: Report) -> ArmResult:
        """Runs one arm to its end. Raises ExperimentError."""
        try:
            return self._run(arm, seed, report)
        except ControlError:
            dead = self.network.supervisor.dead()  # who does not answer may be so because of another's death
            if dead:
                raise ProcessError(f"{dead[0].obituary()}; before or after arm {arm}") from None
            raise

    def _run(self, arm: str, seed: int, report: Report) -> ArmResult:
        gradlane = ARMS[arm].kind == "gradlane"
        folder = self._out / f"{arm}-{seed}"
        folder.mkdir(parents=True, exist_ok=True)
        run = ArmRun(arm, seed, self.scenario, self._task, self.network, folder)
        controller = self.network.controller
        if gradlane:
            controller.put_job(run.write_job())
        before = read_switches(controller, self.network.admins())
        sent = self.network.fabric.bytes_sent()
        run.execute(report, before)
        after = read_switches(controller, self.network.admins())
        if gradlane:
            controller.delete_job(arm)
        links = {end: octets - sent[end] for end, octets in self.network.fabric.bytes_sent().items()}
        if run.failed_switch:
            self.network.restore_switch(run.failed_switch)
        return run.result(before, after, links)
