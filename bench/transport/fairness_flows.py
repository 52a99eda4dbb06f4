# SPDX-License-Identifier: Apache-2.0
"""The flows of bench.transport.fairness and their processes: bulk TCP connections, and jobs of two hosts."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from bench.harness.dumbbell import Dumbbell
from bench.harness.worker import Worker
from lab.model.errors import ProcessError

_WORKER = ("-m", "bench.transport.fairness_worker")


@dataclass(frozen=True)
class Flow:
    """`pair` of hosts that it is between; `tolerance`: the loss that a job tolerates, None for TCP."""

    pair: int
    tolerance: float | None = None

    @property
    def name(self) -> str:
        """As tables show it."""
        return "tcp" if self.tolerance is None else f"job, p = {self.tolerance:g}"


class Running:
    """The processes of flows that share the network, until the stack ends; `tcp`: its congestion control.

    Raises ProcessError.
    """

    def __init__(self, network: Dumbbell, tcp: str, folder: Path, stack: ExitStack) -> None:
        self._network, self._tcp, self._folder, self._stack = network, tcp, folder, stack
        self._agents: dict[int, Path] = {}
        self._ends: list[Worker] = []

    def _start(self, host: int, *words: str) -> Worker:
        self._ends.append(self._network.start(self._stack, host, words[0], *_WORKER, *words, asked=False))
        return self._ends[-1]

    def flow(self, number: int, flow: Flow) -> Worker:
        """Starts both ends; the receiving one, which says when it is ready, and then what has arrived."""
        near, far = 2 * flow.pair, 2 * flow.pair + 1
        if flow.tolerance is None:
            address = self._network.address(far)
            arrivals = self._start(far, "tcp_receive", address)
            arrivals.wait_for("listening")
            self._start(near, "tcp_send", address, self._tcp)
            return arrivals
        path = self._network.write_job(
            self._folder / f"job{number}.toml",
            self._network.rate,
            self._network.buffer,
            number=number + 1,
            hosts=(near, far),
            tolerance=flow.tolerance,
        )
        for host in (near, far):
            if host not in self._agents:
                _, self._agents[host] = self._network.start_agent(self._stack, host, self._folder)
        self._start(near, "job", "0", str(path), str(self._agents[near]))
        return self._start(far, "job", "1", str(path), str(self._agents[far]))

    def check(self) -> None:
        """That all go on. Raises ProcessError."""
        if gone := [worker for worker in self._ends if worker.ended()]:
            raise ProcessError("; ".join(f"{worker.name} ended: {worker.last_words()}" for worker in gone))
