# SPDX-License-Identifier: Apache-2.0
"""The laboratory of the accuracy study: hosts behind a gradlane-switch, with an agent and a worker for all runs."""

import dataclasses
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from multiprocessing.connection import Connection, Listener
from pathlib import Path
from statistics import fmean
from typing import Any, TypeAlias

import tomli_w

from bench.study.cases import SCENARIO, WORKERS, Case, Drops, Order, Outcome
from lab.experiment.arm_run import TASKS, agent_socket
from lab.experiment.experiment import Experiment
from lab.model.errors import ArmError
from lab.model.plan import HostPlan
from lab.net.control import ask_switch
from lab.net.network import READY_SECONDS
from lab.net.processes import Child, wait_for_exit

_START_SECONDS = 300.0  # every worker imports PyTorch, and they share the machine's cores
_SILENCE_SECONDS = 900.0  # longer than agents or Gloo take to report any error, and than a slow run
_POLL_SECONDS = 1.0
_WORKER = ("-m", "bench.study.worker")
_COUNTS = ("slices_expected", "slices_lost", "slices_repaired", "budget_total", "budget_violations")
Link: TypeAlias = "Connection[Any, Any]"


class Laboratory:
    """Use as a context manager; leaving it ends every process and removes every interface. Raises ExperimentError."""

    def __init__(self, drops: Drops, out: Path) -> None:
        self._out = out
        self._experiment = Experiment(SCENARIO[drops], TASKS["cnn"], "gradlane", 1, out)
        self._network = self._experiment.network
        self._hosts = self._network.plan.of_role("worker")
        self._links: list[Link] = []
        self._stack = ExitStack()

    def __enter__(self) -> "Laboratory":
        with ExitStack() as stack:
            stack.enter_context(self._experiment)
            self._start_workers(stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *details: object) -> None:
        self._stack.close()

    def run(self, case: Case) -> dict[str, Any]:
        """One run; returns its figures. After an error the laboratory is of no more use. Raises ExperimentError."""
        links = self._links[: case.workers]
        controller = self._network.controller
        document = case.job(self._network.plan)
        job = self._out / "job.toml"
        if case.sync == "gradlane":
            job.write_text(tomli_w.dumps(document), encoding="utf-8")
            controller.put_job(document)
        before = self._policy_drops(case)
        for link in links:
            link.send(Order(case, str(job)))
        self._hear(case.arm, links)  # joined
        self._set_loss(case.link_loss)
        began = time.monotonic()
        _go_on(links)
        self._hear(case.arm, links)  # trained
        seconds = time.monotonic() - began
        self._set_loss(0.0)
        _go_on(links)
        outcomes: list[Outcome] = self._hear(case.arm, links)
        dropped = self._policy_drops(case) - before
        if case.sync == "gradlane":
            controller.delete_job(document["job"]["name"])
        figures = {"arm": case.arm, "seconds": seconds, "policy_drops": sorted(dropped.items()), **_figures(outcomes)}
        return {**dataclasses.asdict(case), **figures}

    def _start_workers(self, stack: ExitStack) -> None:
        orders, rendezvous = self._out / "orders.sock", self._out / "rendezvous"
        rendezvous.unlink(missing_ok=True)
        listener = stack.enter_context(Listener(str(orders), "AF_UNIX", backlog=WORKERS))
        options = ["--orders", str(orders), "--rendezvous", str(rendezvous)]
        workers = [self._start_worker(rank, host, options) for rank, host in enumerate(self._hosts)]
        for worker in workers:
            worker.wait_ready(_START_SECONDS)  # it calls the listener at once then
        links = [stack.enter_context(listener.accept()) for _ in workers]
        by_rank = dict(zip(self._hear("the start", links), links, strict=True))
        self._links = [by_rank[rank] for rank in range(WORKERS)]

    def _start_worker(self, rank: int, host: HostPlan, options: list[str]) -> Child:
        argv = [sys.executable, *_WORKER, "--rank", str(rank), "--agent", agent_socket(host), *options]
        # The hosts share this machine's cores, so one thread each.
        environment = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": host.interface}
        command = self._network.fabric.inside(host.name, argv)
        return self._network.supervisor.start(f"worker {rank}", command, environment)

    def _hear(self, what: str, links: Sequence[Link]) -> list[Any]:
        """The next message of every worker, in their order. Raises ArmError if one gives up, dies or hangs."""
        deadline = time.monotonic() + _SILENCE_SECONDS
        heard: list[Any] = []
        supervisor = self._network.supervisor
        for link in links:
            try:
                while not link.poll(_POLL_SECONDS):
                    if dead := supervisor.dead():
                        raise ArmError(f"{dead[0].obituary()}; in {what}")
                    if time.monotonic() > deadline:
                        raise ArmError(f"nothing heard from worker {len(heard)} for {_SILENCE_SECONDS:g} s; in {what}")
                heard.append(link.recv())
            except (EOFError, OSError):
                wait_for_exit(supervisor.children, READY_SECONDS)
                why = "; ".join(child.obituary() for child in supervisor.dead()[:1]) or "a worker hung up"
                raise ArmError(f"{why}; in {what}") from None
        return heard

    def _policy_drops(self, case: Case) -> Counter[int]:
        """Datagrams that the policy has dropped so far, by the 16 magnitudes from that on."""
        dropped = Counter[int]()
        if case.drops == "policy":
            for cell in self._network.controller.counters()["drop_map"]:
                dropped[cell["magnitude"]] += cell["packets"]
        return dropped

    def _set_loss(self, loss: float) -> None:
        """Of all links, in the direction from the switch to the host: so a datagram meets it once."""
        for admin in self._network.admins().values():
            for host in self._hosts:
                ask_switch(admin, {"op": "set", "port": host.port, "loss": loss})


def _go_on(links: Sequence[Link]) -> None:
    for link in links:
        link.send(None)


def _figures(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Of all ranks together. The losses are the means over the ranks: that of the whole batch of a step."""
    first = outcomes[0]
    assert first.test is not None
    test_loss, test_accuracy = first.test
    return {
        "losses": [fmean(losses) for losses in zip(*(outcome.losses for outcome in outcomes), strict=True)],
        "test_loss": test_loss,
        "test_accuracy": test_accuracy,
        "parameters_sha256": first.parameters_sha256,
        "replicas_equal": len({outcome.parameters_sha256 for outcome in outcomes}) == 1,
        "transport": {
            name: sum(outcome.statistics[name] for outcome in outcomes) for name in _COUNTS if first.statistics
        },
    }
