# SPDX-License-Identifier: Apache-2.0
"""One run of one arm on a running network: its processes are started, watched to their end, and read out."""

import json
import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w

from gradlane.units import format_rate
from lab.model import jobs
from lab.model.arms import ARMS
from lab.model.errors import ArmError, ControlError
from lab.model.preconditions import find_program
from lab.model.results import ArmResult
from lab.model.scenarios import Scenario
from lab.net.control import Reading, read_switches
from lab.net.forks import Forks
from lab.net.network import Network, agent_socket
from lab.net.processes import Child, wait_for_exit
from lab.report.metrics import Progress, Record, RecordFile, arm_result, progress
from lab.training.bursts import DISCARD_PORT
from lab.training.config import Config, Node

READY_SECONDS = 20.0
STALL_SECONDS = 30.0
PROGRESS_SECONDS = 1.0
DROPS_SECONDS = 5.0  # between two looks at the switches' counters, and more where they take long:
DROPS_PART = 0.01  # of the time, as everybody shares the machine's cores
_POLL_SECONDS = 0.1
_TRAIN = ("-m", "lab.train")
# The hosts share this machine's cores; PyTorch warns that they have no names.
_ENVIRONMENT = {"OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "ERROR"}
# To import PyTorch for each of them would take the better part of a short run; its optimizers import the second.
_FORKS = Forks({"lab.train": ("lab.training.worker", "torch._dynamo")}, _ENVIRONMENT)

Report = Callable[[Progress], None]


@dataclass(frozen=True)
class Task:
    """What is trained, the same for every arm: the model, its width, and the examples of all workers in one step."""

    model: str
    width: int
    global_batch: int

    def width_at(self, scale: float) -> int:
        """The width at which the gradients are `scale` times as large: they go with its square. A multiple of 8."""
        return max(8, 8 * round(self.width * math.sqrt(scale) / 8))


TASKS = {"cnn": Task("cnn", 256, 128), "transformer": Task("transformer", 96, 32)}


class ArmRun:
    """One arm on that network. `folder` takes the files of the run and its records.

    `failed_switch` is the name of the switch that died in the run, empty if none did.
    """

    def __init__(
        self,
        arm: str,
        seed: int,
        scenario: Scenario,
        task: Task,
        network: Network,
        folder: Path,
    ) -> None:
        self._arm = ARMS[arm]
        self._seed = seed
        self._scenario = scenario
        self._network = network
        self._plan = network.plan
        self._supervisor = network.supervisor
        self._folder = folder
        self.failed_switch = ""
        self._failed: float | None = None
        self._last_reading = Reading({}, {}, None)
        self._config = self._make_config(task)
        self._files = [RecordFile(folder / f"worker-{node.rank}.jsonl") for node in self._config.workers]
        self._statistics: list[Record] = []
        self._temporary: list[Child] = []  # the processes of this run, which may end well

    def write_job(self) -> dict[str, Any]:
        """Writes the arm's job file; returns its content."""
        document = jobs.document(self._arm.name, self._plan, self._seed)
        Path(self._config.job).write_text(tomli_w.dumps(document), encoding="utf-8")
        return document

    def execute(self, report: Report, before: Reading) -> None:
        """Runs the arm to its end. Raises ExperimentError; its processes are gone in any case.

        `report` is called with the progress, `before` is what the switches had counted when the arm began.
        """
        self._last_reading = before
        self._config.save(self._folder / "run.json")
        try:
            self._start_servers()
            self._start_sinks()
            workers = [
                self._start_rank("worker", node, file.path)
                for node, file in zip(self._config.workers, self._files, strict=True)
            ]
            self._watch(workers, report, before)
            if self._arm.kind == "gradlane":
                self._statistics = self._read_statistics()
        finally:
            self._supervisor.release(self._temporary)

    def result(self, before: Reading, after: Reading, links: Mapping[str, int]) -> ArmResult:
        """The figures, after the run, with the switches' counts before and after it, and the bytes that the ends of
        links have sent. Raises RecordsError."""
        after = after.completed_by(self._last_reading.of_switch(self.failed_switch))
        name = self._scenario.name
        switch = after.since(before)
        return arm_result(
            name,
            self._arm.name,
            self._seed,
            self._files,
            self._statistics,
            switch,
            self._failed,
            links,
            with_exchanges=self._scenario.slow is not None,
        )

    def _make_config(self, task: Task) -> Config:
        plan = self._plan
        hosts = plan.of_role("worker") + (plan.of_role("server") if self._arm.servers else ())
        slow = self._scenario.slow
        nodes = tuple(
            Node(
                rank,
                host.name,
                host.address,
                host.interface,
                agent_socket(host),
                slow.milliseconds(rank, plan.workers) if slow and rank < plan.workers else 0,
            )
            for rank, host in enumerate(hosts)
        )
        return Config(
            arm=self._arm.name,
            seed=self._seed,
            model=task.model,
            width=task.width_at(self._scenario.scale),
            batch=max(1, round(task.global_batch / plan.workers)),
            steps=self._scenario.steps,
            workers=nodes[: plan.workers],
            servers=nodes[plan.workers :],
            job=str(self._folder / "job.toml") if self._arm.kind == "gradlane" else "",
            discard_port=DISCARD_PORT if self._scenario.bursts else 0,
        )

    def _start(self, name: str, host: str, argv: Sequence[str]) -> Child:
        inside = self._network.fabric.inside(host, argv)
        child = self._supervisor.start(name, inside, _ENVIRONMENT, self._folder, _FORKS.start)
        self._temporary.append(child)
        return child

    def _start_rank(self, role: str, node: Node, records: Path) -> Child:
        records.unlink(missing_ok=True)  # what an earlier run left is no progress of this one
        options = ["--config", str(self._folder / "run.json"), "--rank", str(node.rank), "--out", str(records)]
        return self._start(f"{role} {node.rank}", node.host, [sys.executable, *_TRAIN, role, *options])

    def _start_servers(self) -> None:
        servers: list[Child] = []
        for node in self._config.servers:
            if self._arm.kind == "ps":
                servers.append(self._start_rank("server", node, self._folder / f"server-{node.rank}.jsonl"))
            else:
                options = ["--job", self._config.job, "--rank", str(node.rank), "--socket", node.socket, "--json"]
                argv = [find_program("gradlane"), "serve", *options]
                servers.append(self._start(f"server {node.rank}", node.host, argv))
        if self._arm.kind == "ps":  # Gradlane's are ready when the workers have joined the job too
            for server in servers:
                server.wait_ready(READY_SECONDS)

    def _start_sinks(self) -> None:
        sinks: list[Child] = []
        for host in self._plan.of_role("sink"):
            options = ["--address", host.address, "--port", f"{DISCARD_PORT}"]
            sinks.append(self._start(f"sink of {host.name}", host.name, [sys.executable, *_TRAIN, "sink", *options]))
        for sink in sinks:
            sink.wait_ready(READY_SECONDS)

    def _fail_switch(self) -> None:
        """Lets the scenario's switch die, once its share of the steps is done."""
        failure = self._scenario.failure
        step = self._files[0].last("step")
        if failure is None or self._failed is not None or step is None or self._files[0].last("final"):
            return
        if step["step"] + 1 >= failure.share * self._config.steps:
            self._failed = time.monotonic()
            self.failed_switch = failure.switch
            self._network.fail_switch(failure.switch)

    def _start_bursts(self, start: float) -> None:
        """Starts the cross traffic, if the scenario has any, so that its first burst comes with step 0."""
        bursts = self._scenario.bursts
        if bursts is None:
            return
        plan = self._plan
        options = [word for host in plan.of_role(bursts.receivers) for word in ("--to", host.address)]
        options += ["--rate", format_rate(round(bursts.rate_share * plan.rate)), "--period", f"{bursts.period:g}"]
        options += ["--duty", f"{bursts.duty:g}", "--seconds", "86400", "--start", f"{start:.6f}"]
        options += ["--port", f"{DISCARD_PORT}", "--dscp", f"{bursts.dscp}"]
        options += ["--stagger"] if bursts.stagger else []
        (host,) = plan.of_role("traffic")
        self._start("bursts", host.name, [sys.executable, *_TRAIN, "bursts", *options])

    def _watch(self, workers: Sequence[Child], report: Report, before: Reading) -> None:
        """Waits until every worker has ended well. Raises ArmError."""
        moved = time.monotonic()
        # Before step 0 every worker imports PyTorch, and they share the machine's cores.
        patience = STALL_SECONDS + 4 * len(workers)
        reported = asks = 0.0
        started = False
        while not all(child.ended() for child in workers):
            wait_for_exit([child for child in self._supervisor.children if not child.ended()], _POLL_SECONDS)
            self._raise_if_dead()
            now = time.monotonic()
            if self._read_records():
                moved = now
            if not started and (announced := self._files[0].last("start")):
                started, patience = True, STALL_SECONDS
                self._start_bursts(announced["start"])
            self._fail_switch()
            if now - moved > patience:
                raise ArmError(f"arm {self._arm.name} made no progress for {patience:g} s, {self._positions()}")
            if started and now - reported >= PROGRESS_SECONDS:
                reported = now
                if now >= asks:
                    self._read_switches()
                    rest = (time.monotonic() - now) / DROPS_PART
                    # What a switch has counted that dies is known as it was read last.
                    asks = now + (DROPS_SECONDS if self._scenario.failure else max(DROPS_SECONDS, rest))
                dropped = self._last_reading.policy_drops - before.policy_drops
                slow = self._scenario.slow is not None
                report(progress(self._arm.name, self._config.steps, self._files, dropped, by_worker=slow))
        self._raise_if_dead()
        self._read_records()
        if (failure := self._scenario.failure) is not None and self._failed is None:
            raise ArmError(
                f"the training was over before {failure.switch} could be made to fail: on a machine that is so busy it "
                f"takes more steps than {self._config.steps} (--steps)"
            )

    def _read_switches(self) -> None:
        """What they have counted so far, where an arm has policies. Raises ArmError."""
        if self._arm.kind != "gradlane":
            return
        try:
            self._last_reading = read_switches(self._network.controller, self._network.admins())
        except ControlError as problem:
            self._raise_if_dead()
            raise ArmError(f"{problem}; during arm {self._arm.name}, {self._positions()}") from None

    def _read_records(self) -> bool:
        """Whether there are new ones."""
        return bool([record for file in self._files for record in file.read_new()])

    def _raise_if_dead(self) -> None:
        dead = self._supervisor.dead(may_end=self._temporary)
        if dead:
            self._read_records()
            raise ArmError(f"{dead[0].obituary()}; during arm {self._arm.name}, {self._positions()}")

    def _positions(self) -> str:
        """The last step of each worker, for error messages."""
        steps = [record["step"] + 1 if (record := file.last("step")) else 0 for file in self._files]
        if len(set(steps)) == 1:
            return f"step {steps[0]}"
        return "steps " + ", ".join(f"{step} (worker {rank})" for rank, step in enumerate(steps))

    def _read_statistics(self) -> list[Record]:
        """The transport's figures of every rank: a worker's are in its records, a server says them when it ends."""
        statistics: list[Record] = [file.need("final")["statistics"] for file in self._files]
        for server in self._temporary:
            if server.name.startswith("server "):
                wait_for_exit([server], READY_SECONDS)
                self._raise_if_dead()
                statistics.append(json.loads(server.last_line()))
        return statistics
