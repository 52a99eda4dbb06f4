# SPDX-License-Identifier: Apache-2.0
"""The hosts of bench.sync: each has a port of limited rate, an agent, and a training process for all runs."""

from __future__ import annotations

import itertools
import json
import tempfile
import time
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

from bench.harness.agent_hosts import Hosts
from bench.harness.worker import Worker, wait_for_all
from bench.sync import finish
from bench.sync.cases import ARMS, CASES, Order, Settings
from bench.sync.emulated import parameters
from bench.sync.evaluation import Run, evaluate

_BUFFER = 200_000  # bytes of a port, half of what it holds
_UNLIMITED = 10**10  # bit/s
_WORKER = ("-m", "bench.sync.worker")
_PATIENCE = 120.0  # s that a run may take beyond its time: a worker whose peer is lost says so before


def rate_of(settings: Settings) -> int:
    """Of the links, in bit/s: a ring sends and receives 2 (n - 1) / n of the gradients in float32."""
    if settings.ratio is None:
        return _UNLIMITED
    n, bits = settings.workers, 32 * parameters(settings.width)
    return round(2 * (n - 1) / n * bits / (settings.ratio * settings.computation))


class Team:
    """Use as a context manager. Raises ExperimentError."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._rate = rate_of(settings)
        self._stack = ExitStack()
        self._numbers = itertools.count(1)

    def __enter__(self) -> Team:
        with ExitStack() as stack:
            self._folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            self._hosts = stack.enter_context(Hosts(self._settings.workers, rate=self._rate))
            self._workers = [self._start(stack, host) for host in range(self._hosts.count)]
            wait_for_all(stack, self._workers)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def run(self, order: Order) -> Run:
        """One run. After an error the team is of no more use. Raises ProcessError, FabricError."""
        arm, case = ARMS[order.arm], CASES[order.case]
        last = self._hosts.count - 1
        self._hosts.limit(last, round(self._rate * case.link))
        with tempfile.TemporaryDirectory(dir=self._folder) as place:
            folder = Path(place)
            number = next(self._numbers)
            job = self._hosts.write_job(
                folder / "job.toml", self._rate, _BUFFER, number=number, transport=arm.transport, sync=arm.sync
            )
            finish.prepare(folder / "finish", self._hosts.count)
            for worker in self._workers:
                worker.ask({"order": asdict(order), "job": str(job), "folder": place})
            deadline = time.monotonic() + order.seconds + _PATIENCE
            traces = [json.loads(worker.hear(max(0.0, deadline - time.monotonic()))) for worker in self._workers]
            return evaluate(order, folder, traces)

    def _start(self, stack: ExitStack, host: int) -> Worker:
        _, socket = self._hosts.start_agent(stack, host, self._folder)
        words = (*_WORKER, str(host), str(self._hosts.count), self._hosts.address(0), str(socket))
        return self._hosts.start(stack, host, "training", *words)
