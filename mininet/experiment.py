# SPDX-License-Identifier: Apache-2.0
"""One experiment: a fabric with its switch, controller and agents, on which arms run one after the other."""

from contextlib import ExitStack
from pathlib import Path

import tomli_w

from arm_run import ArmRun, Report, Task, agent_socket
from control import Controller, difference, read_switch
from errors import ControlError, ProcessError
from fabric import Fabric
from plan import SWITCH, FabricPlan
from preconditions import RUN_DIRECTORY, find_program
from processes import Child, Supervisor
from results import ArmResult
from runner import HTTP_PORT, P4RUNTIME_PORT
from scenarios import Scenario
from training.arms import ARMS

READY_SECONDS = 20.0
PIPELINE_SECONDS = 75.0  # to the controller's readiness: a switch may have to compile the program


class Experiment:
    """A running fabric. Use as a context manager; leaving it ends every process and removes every interface.

    `target` is "gradlane" or "bmv2"; logs, records and files go below `out`. Raises ExperimentError where
    something does not come up.
    """

    def __init__(self, scenario: Scenario, task: Task, target: str, seed: int, out: Path) -> None:
        self.scenario = scenario
        self.plan = FabricPlan.of(scenario)
        self._task = task
        self._target = target
        self._seed = seed
        self._out = out
        self._admin = RUN_DIRECTORY / f"{SWITCH}.sock" if target == "gradlane" else None
        self._controller = Controller(f"127.0.0.1:{HTTP_PORT}")
        self._supervisor = Supervisor(out / "logs")
        self._fabric = Fabric(self.plan, shape_ports=target == "bmv2")
        self._stack = ExitStack()

    def __enter__(self) -> "Experiment":
        with ExitStack() as stack:
            self._out.mkdir(parents=True, exist_ok=True)
            stack.enter_context(self._fabric)
            stack.enter_context(self._supervisor)
            self._start_switch()
            self._start_controller()
            self._start_agents()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *details: object) -> None:
        self._stack.close()

    def run(self, arm: str, seed: int, report: Report) -> ArmResult:
        """Runs one arm to its end. Raises ExperimentError."""
        try:
            return self._run(arm, seed, report)
        except ControlError:
            dead = self._supervisor.dead()  # who does not answer may be so because of another's death
            if dead:
                raise ProcessError(f"{dead[0].obituary()}; before or after arm {arm}") from None
            raise

    def _run(self, arm: str, seed: int, report: Report) -> ArmResult:
        gradlane = ARMS[arm].kind == "gradlane"
        folder = self._out / f"{arm}-{seed}"
        folder.mkdir(parents=True, exist_ok=True)
        run = ArmRun(arm, seed, self.scenario, self._task, self._fabric, self._supervisor, folder)
        if gradlane:
            self._controller.put_job(run.write_job())
        before = read_switch(self._controller, self._admin)
        already = self._policy_drops()
        run.execute(report, (lambda: self._policy_drops() - already) if gradlane else lambda: 0)
        after = read_switch(self._controller, self._admin)
        if gradlane:
            self._controller.delete_job(arm)
        return run.result(difference(before, after))

    def _policy_drops(self) -> int:
        decisions, _ = self._controller.counters()
        return sum(decision.packets for decision in decisions if decision.is_policy_drop)

    def _start_switch(self) -> None:
        address = f"127.0.0.1:{P4RUNTIME_PORT}"
        name = f"switch {SWITCH}"
        if self._target == "gradlane":
            ports = [word for port in self.plan.port_descriptions() for word in ("-i", port)]
            # Hosts and switch share the machine's cores: rounds of forwarding are few, at the price of latency.
            options = ["--device-id", "1", "--grpc-server-addr", address, "--admin", str(self._admin)]
            options += ["--coalesce", "200us"]
            argv = [find_program("gradlane-switch"), *options, "--seed", str(self._seed), *ports]
            self._supervisor.start(name, argv).wait_ready(READY_SECONDS)
            return
        ports = [word for host in self.plan.hosts for word in ("-i", f"{host.number}@{host.port_interface}")]
        options = ["--device-id", "1", "--no-p4", "--notifications-addr", f"ipc://{RUN_DIRECTORY}/bmv2.ipc", *ports]
        own_options = ["--grpc-server-addr", address, "--priority-queues", "8"]
        argv = [find_program("simple_switch_grpc"), *options, "--", *own_options]
        self._supervisor.start(name, argv).wait_listening(P4RUNTIME_PORT, READY_SECONDS)

    def _start_controller(self) -> None:
        target = "gradlane-switch" if self._target == "gradlane" else "bmv2"
        file = self._out / "fabric.toml"
        file.write_text(tomli_w.dumps(self.plan.document(target, f"127.0.0.1:{P4RUNTIME_PORT}")), encoding="utf-8")
        argv = [find_program("gradlane-controller"), "run", "--fabric", str(file), "--http", f"127.0.0.1:{HTTP_PORT}"]
        self._supervisor.start("controller", argv).wait_ready(PIPELINE_SECONDS)

    def _start_agents(self) -> None:
        hosts = [host for host in self.plan.hosts if host.role != "traffic"]
        agents: list[Child] = []
        for host in hosts:
            argv = [find_program("gradlane"), "agent", "--address", host.address, "--socket", agent_socket(host)]
            command = self._fabric.inside(host.name, argv)
            agents.append(self._supervisor.start(f"agent of {host.name}", command))
        for agent in agents:
            agent.wait_ready(READY_SECONDS)
