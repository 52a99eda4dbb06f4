# SPDX-License-Identifier: Apache-2.0
"""One job at one rank, inside the agent: its peers, its engine, and the training process that it serves."""

import asyncio
import json
import mmap
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gradlane import ipc, magnitude
from gradlane.agreement import Agreement
from gradlane.errors import AgentError
from gradlane.job import ELEMENT_BYTES, Job
from gradlane.peers import Peers
from gradlane.status import JobStatus, PeerStatus
from gradlane.toml_file import Address
from gradlane.transport import NUMPY_TYPES, Completed, Engine, Lost, Mismatch, Transport, Values

JOIN_SECONDS = 60.0
LEAVE_SECONDS = 5.0
# Training that does not move for this long is an error that names who is behind.
STALL_SECONDS = 60.0


@dataclass
class Tensor:
    """A gradient bucket in shared memory: what this worker contributes, and the result."""

    contribution: Values
    result: Values
    layers: npt.NDArray[np.uint16]
    # What the network dropped of the last step's gradient: it is added to the next one, so it is late, not lost.
    residual: dict[int, Values]


def _path(engine: Engine, rank: int) -> dict[str, Any]:
    """What is known of the way to a rank. `routes`: traces by their way; `hops`: what the latest trace met."""
    rate, srtt = engine.path(rank)
    routes = engine.routes(rank)
    return {
        "rate": rate,
        "srtt_us": srtt,
        "routes": {route.name: route.count for route in routes},
        "hops": [asdict(hop) for hop in routes[0].hops] if routes else [],
    }


class Session:
    """Joins the job, carries its all-reduces, and leaves. `tell` sends a message to the training process."""

    def __init__(
        self,
        job: Job,
        rank: int,
        transport: Transport,
        tell: Callable[[ipc.Message], None],
        ended: Callable[[], None],
    ) -> None:
        self.job = job
        self.rank = rank
        self.failure = ""
        self.peers = Peers(job, rank, self.fail)
        self._transport = transport
        self._tell = tell
        self._ended = ended
        self.agreement: Agreement | None = None
        self._engine: Engine | None = None
        self._tensors: dict[int, Tensor] = {}
        self._under_way: dict[tuple[int, int], float] = {}
        self._task = asyncio.get_running_loop().create_task(self._join())
        self._task.add_done_callback(self._joined)
        self._watch: asyncio.TimerHandle | None = None
        self._since = time.time()
        self._last: dict[str, Any] = {"paths": {}}  # the statistics, when it is over

    @property
    def is_server(self) -> bool:
        """Whether this rank only aggregates."""
        return self.rank >= len(self.job.workers)

    @property
    def per_slice(self) -> int:
        """Elements in a slice."""
        assert self.agreement is not None
        return self.agreement.slice_bytes // ELEMENT_BYTES[self.job.transport.wire]

    async def _join(self) -> None:
        try:
            self.peers.start()
            await self.peers.connected(JOIN_SECONDS)
            assert self.peers.agreement is not None
            self.agreement = self.peers.agreement
            self._engine = self._transport.add(self.job, self.rank, self.agreement, self._drain)
            await self.peers.all_ready(JOIN_SECONDS)
        except (AgentError, OSError) as error:
            self.fail(str(error))
            return
        self._tell({"op": "joined", "workers": len(self.job.workers), "per_slice": self.per_slice})
        self._check_progress()
        if self.is_server:
            await self.peers.all_left()
            await self.leave()

    def _joined(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fail(f"{self.peers.name(self.rank)}: {error!r}")

    def fail(self, reason: str) -> None:
        """Ends the job with an error that both sides are told; only the first reason counts."""
        if self.failure:
            return
        self.failure = reason
        self.peers.abort(reason)
        self._tell({"op": "error", "message": reason})
        self._finish()

    async def leave(self) -> None:
        """The orderly end: nobody is left waiting for a repair or an answer of ours."""
        deadline = time.monotonic() + LEAVE_SECONDS
        while self._engine is not None and not self._engine.idle() and time.monotonic() < deadline:
            await asyncio.sleep(0.005)
        if not self.failure:
            await self.peers.leave(max(deadline - time.monotonic(), 0.1))
        if not self.failure:
            # The training process is told when the ports are free again, so that the next job can start at once.
            self._finish()
            self._tell({"op": "closed", "statistics": self._last})

    def client_gone(self) -> None:
        """The training process ended without saying goodbye."""
        self.fail(f"{self.peers.name(self.rank)}: its training process ended without closing its session")

    def _finish(self) -> None:
        if self._task is not asyncio.current_task():
            self._task.cancel()
        if self._watch is not None:
            self._watch.cancel()
        if self._engine is not None:
            self._last = self.statistics()
            self._engine.close()
            self._engine = None
        self.peers.close()
        self._tensors.clear()
        self._ended()

    def statistics(self) -> dict[str, Any]:
        """Cumulative counts of the transport, with the state of the path to every rank."""
        if self._engine is None:
            return dict(self._last)
        others = [rank for rank in range(len(self.job.members)) if rank != self.rank]
        return {**self._engine.statistics(), "paths": {str(rank): _path(self._engine, rank) for rank in others}}

    def status(self) -> JobStatus:
        """What operators see of the job."""
        counts = self.statistics()
        paths = counts.pop("paths")
        peers: dict[str, PeerStatus] = paths
        for rank, peer in peers.items():
            member = self.job.member(int(rank))
            peer["host"], peer["address"] = member.host, str(member.address)
        return {
            "id": self.job.id,
            "rank": self.rank,
            "state": "running" if self._engine is not None else "joining",
            "since": self._since,
            "step": max(self.peers.step, 0),
            "under_way": len(self._under_way),
            "counts": counts,
            "peers": peers,
        }

    @property
    def address(self) -> Address:
        """This rank's."""
        return self.job.member(self.rank).address

    def add_tensor(self, number: int, elements: int, spans: list[tuple[int, int]], descriptor: int) -> None:
        """Maps a tensor that the training process shares. Raises ValueError if it does not fit its description."""
        dtype = NUMPY_TYPES[self.job.transport.wire]
        if not 0 <= number <= 65535 or elements < 1:
            raise ValueError(f"tensor {number} of {elements} elements: numbers are 0 to 65535, elements above 0")
        offset = ipc.result_offset(elements * dtype.itemsize)
        size = offset + elements * dtype.itemsize
        if os.fstat(descriptor).st_size < size:
            raise ValueError(f"tensor {number} needs {size} bytes of shared memory, it has fewer")
        memory = mmap.mmap(descriptor, size)
        self._tensors[number] = Tensor(
            np.frombuffer(memory, dtype, elements),
            np.frombuffer(memory, dtype, elements, offset),
            magnitude.layers(spans, elements, self.per_slice),
            {},
        )

    def reduce(self, step: int, number: int) -> None:
        """Starts the all-reduce of a tensor whose contribution is in shared memory. Raises ValueError, AgentError."""
        tensor = self._tensors.get(number)
        if tensor is None or self._engine is None:
            raise ValueError(f"tensor {number} is not known, or the job has not been joined")
        for slice_number, values in tensor.residual.items():
            begin = slice_number * self.per_slice
            tensor.contribution[begin : begin + values.size] += values
        tensor.residual.clear()
        magnitudes = magnitude.magnitudes(tensor.contribution, self.per_slice, len(self.job.aggregators))
        self._under_way[step, number] = time.monotonic()
        self.peers.step = max(self.peers.step, step)
        self._engine.submit(step, number, tensor.contribution, tensor.result, tensor.layers, magnitudes)

    def _drain(self) -> None:
        if self._engine is None:
            return
        for event in self._engine.events():
            if isinstance(event, Completed):
                del self._under_way[event.step, event.tensor]
                self._tell({"op": "done", "step": event.step, "tensor": event.tensor})
            elif isinstance(event, Lost):
                self._keep_residual(event)
            else:
                self._mismatch(event)
                return

    def _keep_residual(self, event: Lost) -> None:
        tensor = self._tensors[event.tensor]
        for slice_number in event.slices.tolist():
            begin = slice_number * self.per_slice
            tensor.residual[slice_number] = tensor.contribution[begin : begin + self.per_slice].copy()

    def _mismatch(self, event: Mismatch) -> None:
        self.fail(
            f"{self.peers.name(event.source)} and {self.peers.name(self.rank)} disagree about the size of tensor "
            f"{event.tensor} in step {event.step}: do they train the same model with the same bucket size?"
        )

    def _check_progress(self) -> None:
        self._watch = asyncio.get_running_loop().call_later(1.0, self._check_progress)
        if not self._under_way:
            return
        (step, tensor), since = min(self._under_way.items(), key=lambda item: item[1])
        if time.monotonic() - since < STALL_SECONDS:
            return
        behind = ", ".join(self.peers.name(rank) for rank in self.peers.behind())
        why = (
            f"these have not contributed: {behind}"
            if behind
            else "all workers have contributed, so datagrams do not get through: check the switch's guard and the "
            f"job's addresses (this agent's counts: {json.dumps(self._engine.statistics() if self._engine else {})})"
        )
        self.fail(f"the all-reduce of step {step}, tensor {tensor} has not moved for {STALL_SECONDS:g} s: {why}")
