# SPDX-License-Identifier: Apache-2.0
"""The processes of bench.agent.all_reduce on a place's hosts, one for each host and side, and what they are asked."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

from bench.agent import mpi
from bench.harness.agent_hosts import AgentHosts
from bench.harness.worker import Worker, ask_all, wait_for_all

VARIANTS = {
    "gloo": "torch",
    "mpi": "mpi",
    "shared": "gradlane",
    "plain": "gradlane",
    "torch": "torch",
    "process": "process",
    "torch-process": "torch-process",
}
"""And whose processes do it."""
COLLECTIVES = ("auto", "direct", "ring", "grid")
# Sides that have a job, and at which address of a host their agents are: the daemon, or each process's own.
_JOBS = {"torch": 0, "gradlane": 0, "process": 1, "torch-process": 2}
_PORT = 29400  # of torch's stores
# What a job is told of the network: bytes of a port's buffer, and bit/s and bytes where nothing is limited.
_PORT_BUFFER = 200_000
_UNLIMITED = (100_000_000_000, 16_000_000)


class Team:
    """The processes that `variants` need on all hosts, ready and idle. Raises ExperimentError.

    `rate`: of the ports, in bit/s; 0: no limit. `runners`: of each agent. `collective`: of the jobs.
    """

    def __init__(
        self,
        hosts: AgentHosts,
        folder: Path,
        stack: ExitStack,
        variants: Sequence[str],
        rate: int,
        runners: int,
        collective: str,
    ) -> None:
        configuration = folder / "agent.toml"
        configuration.write_text(f"[scheduling]\nrunners = {runners}\n")
        wanted = {VARIANTS[variant] for variant in variants}
        port = (rate, _PORT_BUFFER) if rate else _UNLIMITED
        transport = {"collective": collective}
        jobs = {
            side: hosts.write_job(folder / f"{side}.toml", *port, number=number, at=at, transport=transport)
            for number, (side, at) in enumerate(_JOBS.items(), 1)
            if side in wanted
        }
        self._workers: dict[str, list[Worker]] = {side: [] for side in jobs}
        self._agents: list[Worker] = []
        for host in range(hosts.count if jobs else 0):
            agent, socket = hosts.start_agent(stack, host, folder, configuration)
            self._agents.append(agent)
            for side, job in jobs.items():
                first = (hosts.interface, f"{hosts.address(0)}:{_PORT + _JOBS[side]}") if "torch" in side else ()
                words = ("-m", "bench.agent.all_reduce_worker", side, f"{host}", f"{hosts.count}", *first)
                place = f"process:{configuration}" if _JOBS[side] else str(socket)
                self._workers[side].append(hosts.start(stack, host, side, *words, str(job), place))
        for workers in self._workers.values():
            wait_for_all(stack, workers)
        self._mpi = mpi.start(stack, hosts, folder, slow=rate > 0) if "mpi" in wanted else None

    def run(self, variant: str, size: int, count: int) -> tuple[float, float]:
        """Median seconds of an all-reduce, and CPU seconds of a host for a GB."""
        agents = self._agents if variant in ("shared", "plain", "torch") else []
        before = sum(agent.cpu_seconds() for agent in agents)
        answers = self._ask(variant, {"elements": size // 4, "count": count})
        # The agents' part has the two all-reduces before the measured ones in it.
        agents_cpu = (sum(agent.cpu_seconds() for agent in agents) - before) * count / (count + 2)
        cpu = (sum(answer["cpu"] for answer in answers) + agents_cpu) / len(answers)
        return median(median(answer["seconds"]) for answer in answers), cpu / (count * size / 1e9)

    def _ask(self, variant: str, request: Mapping[str, Any]) -> list[Any]:
        """The answers of all hosts."""
        if variant == "mpi":
            assert self._mpi is not None
            self._mpi.ask(request)
            return json.loads(self._mpi.hear())
        return ask_all(self._workers[VARIANTS[variant]], {"variant": variant, **request})
