# SPDX-License-Identifier: Apache-2.0
"""The data path of a job at this host, as the daemon sees it: memory, tensors and groups of the local processes.

Only control happens here. Once something is registered, commands, contributions and results go through shared memory
between the processes and the transport's thread (core/exchange/).
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Container, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from gradlane._core import ffi, lib
from gradlane.datapath.engines import Engines
from gradlane.datapath.groups import Groups
from gradlane.datapath.processes import Process, Tell
from gradlane.datapath.shard import Shard
from gradlane.datapath.site import ALGORITHMS, Site
from gradlane.datapath.tensors import Tensors
from gradlane.errors import AgentError
from gradlane.ipc.messages import Message
from gradlane.job import Job
from gradlane.job.agreement import Agreement
from gradlane.job.plans import Plan

STATISTICS = [name for name, _ in ffi.typeof("gl_exchange_statistics").fields]
MAX_REGION = 1 << 40
MOST_PLANS = int(lib.GL_MOST_PLANS)
MOST_STREAMS = 512  # each has two windows of at least 4 of a switch's 4096 slots (job/transport.py)


@dataclass(frozen=True)
class Waiting:
    """The oldest operation in flight, and what it waits for.

    `ranks`: those of which something is missing ([]: not known), `direct` if it is their own contribution, which waits
    for no other rank; `processes`: local processes that have not called it; `workers`: the ranks that take part in it.
    """

    seconds: float
    what: str
    ranks: list[int]
    direct: bool
    processes: list[int]
    workers: list[int]


class Exchange:
    """Made when the engines are there. Everything is called in the event loop.

    Plans, and what a switch sums, are of jobs with one shard.
    """

    def __init__(
        self,
        job: Job,
        rank: int,
        engines: Engines,
        agreement: Agreement,
        failed: Callable[[str], None],
        ask: Callable[[dict[str, Any]], Awaitable[dict[str, Any]]],
        shared: int,
        within: bool,
    ) -> None:
        """`failed` ends the job; `ask` brings a question to the rank that leads; `shared`: bytes that the processes may
        have in common with the agent. `within`: this is in the one process. Raises AgentError."""
        self._job = job
        self._rank = rank
        self._processes: dict[int, Process] = {}
        self._closed: dict[int, int] = {}  # by number on the wire, before they were registered: who said so
        adaptive = job.loss.adaptive
        config = ffi.new(
            "gl_exchange_config *",
            {
                "host": rank,
                "hosts": len(job.workers),
                "servers": len(job.servers),
                "processes": job.processes,
                "slice_bytes": agreement.slice_bytes,
                "within": within,
                "straggler": job.transport.straggler or 0,
                "critical": adaptive.critical if adaptive else 1.0,
                "threshold": adaptive.threshold if adaptive else 0.0,
                "window": adaptive.window if adaptive else 0,
                "late_steps": job.loss.late.steps if job.loss.late else 0,
                "generation": agreement.generation if job.sum_lanes is not None else 0,
            },
        )
        self._shards: list[Shard] = []
        try:
            for engine in engines.all:
                self._shards.append(Shard(job.name, engine, config))
        except AgentError:
            for shard in self._shards:
                shard.stop()
                shard.close()
            raise
        self._first = self._shards[0]
        self._site = Site(job, rank, self._shards, agreement, failed, ask, shared)
        self._tensors, self._groups = Tensors(self._site), Groups(self._site)
        for shard in self._shards:
            asyncio.get_running_loop().add_reader(shard.notify, self._news, shard)

    def open(self, process: int, tell: Tell) -> None:
        """Makes the channels of a local process; `tell` sends it a message and descriptors. Raises AgentError."""
        if process in self._processes or not 0 <= process < self._job.processes:
            raise AgentError(
                f"process {process} of {self._site.name(self._rank)} has joined already, or is none of the "
                f"{self._job.processes} that the job has there"
            )
        opened = self._processes[process] = Process(process, tell, self._shards)
        opened.open()

    def joined(self, process: int) -> tuple[Message, tuple[int, ...]]:
        """What a process gets when it has joined: content of a message, and descriptors that stay this object's."""
        return {}, self._processes[process].descriptors

    def handle(self, process: int, message: Message) -> "asyncio.Task[None] | None":
        """A process' message, one of messages.REQUESTS: what answers it, if that takes time. Raises ValueError."""
        operations: dict[str, Callable[[int, Message], Coroutine[Any, Any, None]]] = {
            "region": self._region,
            "tensor": self._tensor,
            "group": self._group,
            "residual": self._residual,
            "next": self._lead,
            "meet": self._lead,
        }
        op = message["op"]
        if process not in self._processes:
            raise ValueError(f"{op!r} before it has joined")
        if op in operations:
            return self._site.spawn(self._answer(process, message, operations[op]))
        if op == "release":
            self._release(process, message["region"])
        elif op == "forget":
            self._tensors.forget(process, message["name"])
        else:
            region = self._processes[process].regions.get(message["region"])
            self._tensors.load_residual(process, message["name"], region)
            self._reply(process, message, {})
        return None

    def drop(self, rank: int) -> dict[int, list[int]]:
        """A host is dead: what its groups have in flight is lost, and all that is called of them later.

        Returns these groups' numbers, with their hosts: these should be told, see `close_group`.
        """
        for shard in self._shards:
            with shard.locked() as pointer:
                lib.gl_exchange_drop(pointer, rank)
        first = int(lib.GL_FIRST_GROUP)
        return {number - first: hosts for number, hosts in self._site.hosts.items() if rank in hosts}

    def close_group(self, by: int, number: int) -> None:
        """A group of which a host is dead, as rank `by` says, has perhaps not been called here: nothing comes of it."""
        if not 0 <= number < lib.GL_MAX_GROUPS:
            raise ValueError(f"there is no group {number}")
        wire = int(lib.GL_FIRST_GROUP) + number
        if wire not in self._site.hosts:
            self._closed.setdefault(wire, by)
        for shard in self._shards:
            with shard.locked() as pointer:
                lib.gl_exchange_close(pointer, number)

    def misclosed(self, dead: Container[int]) -> dict[int, str]:
        """Groups that can't be used here because others said that a host of them is dead, and none is, as far as this
        host knows: by who said so first, one each."""
        found = {wire: by for wire, by in self._closed.items() if wire in self._site.hosts}
        return {
            by: self._site.numbers[wire]
            for wire, by in found.items()
            if not any(host in dead for host in self._site.hosts[wire])
        }

    def set_plan(self, first: int, plan: Plan) -> bool:
        """From that step on tensors are reduced so. False if such a step has begun, or there were MOST_PLANS plans."""
        weights = ffi.new("uint32_t[]", list(plan.weights))
        described = ffi.new(
            "gl_step_plan *",
            {
                "least": plan.least,
                "straggler": plan.straggler,
                "algorithm": ALGORITHMS[plan.algorithm],
                "weights": weights,
                "generation": plan.generation,
            },
        )
        with self._first.locked() as pointer:
            return not lib.gl_exchange_plan(pointer, first, described)

    def grant(self, part: float) -> None:
        """Of the job's tolerance for tensors no more than that part holds from the next step on; 1: all."""
        for shard in self._shards:
            with shard.locked() as pointer:
                lib.gl_exchange_grant(pointer, round(part * 1e6))

    def hold(self, ahead: int) -> int:
        """Until `release` only steps up to the one returned begin, so many ahead, and nobody is left out of others."""
        with self._first.locked() as pointer:
            return int(lib.gl_exchange_hold(pointer, ahead))

    def release(self) -> None:
        """All steps may begin."""
        with self._first.locked() as pointer:
            lib.gl_exchange_release(pointer)

    @property
    def held(self) -> bool:
        """Whether a step waits for `release`."""
        with self._first.locked() as pointer:
            return bool(lib.gl_exchange_is_held(pointer))

    def sums_overdue(self) -> float:
        """Seconds for which some tensor has waited for a sum, and got none; 0: none waits, or they are halted."""
        now = lib.gl_now()
        with self._first.locked() as pointer:
            return int(lib.gl_exchange_sums_overdue(pointer, now)) / 1e6

    def sums_halt(self) -> None:
        """Until `sums_resume` nothing is contributed to a switch's sums, none is taken, and no step by it begins."""
        with self._first.locked() as pointer:
            lib.gl_exchange_sums_halt(pointer)

    def sums_state(self) -> list[tuple[int, int, int]]:
        """Of each stream: its tensor, the last step that needs nothing of the switch any more, the last one begun."""
        return [(int(it.tensor), int(it.completed), int(it.begun)) for it in self._streams()]

    def sums_waiting(self, seconds: float) -> list[tuple[int, int]]:
        """Tensors with the steps of which this host has had no sum for so long, as not all have come to them."""
        latest = lib.gl_now() - seconds * 1e6
        return [(int(it.tensor), int(it.begun)) for it in self._streams() if 0 < it.since <= latest]

    def _streams(self) -> Any:
        states = ffi.new("gl_sum_state[]", MOST_STREAMS)
        with self._first.locked() as pointer:
            count = lib.gl_exchange_sums_state(pointer, states, MOST_STREAMS)
        return states[0 : min(count, MOST_STREAMS)]

    def go_on(self, tensor: int, step: int) -> None:
        """Others wait for that step: if the processes here are late with it, and may be, it goes on without them."""
        with self._first.locked() as pointer:
            lib.gl_exchange_go_on(pointer, tensor, step)

    def sums_resume(self, generation: int, by_switch: bool, reruns: Sequence[tuple[int, int]]) -> bool:
        """Goes on by the switch in the same generation, which is reminded of these tensors' steps; or by hosts, with
        these run again, and what else had begun by the switch begun anew. False if such a step can't be."""
        described = ffi.new("gl_sum_rerun[]", list(reruns))
        with self._first.locked() as pointer:
            return not lib.gl_exchange_sums_resume(pointer, generation, by_switch, described, len(reruns))

    def what(self, tensor: int, step: int) -> str:
        """A tensor's step, as errors name it."""
        return self._site.what(tensor * int(lib.GL_MAX_PARTITIONS), step)

    @property
    def step_bytes(self) -> tuple[int, int]:
        """Of all tensors, what a host contributes in a step: reduced as the job file says, and as the plan does."""
        return self._tensors.nbytes

    @property
    def step(self) -> int:
        """The highest step that a tensor has been submitted in."""
        return self.statistics()["step"]

    @property
    def in_flight(self) -> int:
        """How many operations are in flight; each part of a tensor that is cut counts."""
        count = 0
        for shard in self._shards:
            with shard.locked() as pointer:
                count += int(lib.gl_exchange_under_way(pointer))
        return count

    def statistics(self) -> dict[str, int]:
        """Cumulative counts of the data path, see docs/python.md."""
        every: list[dict[str, int]] = []
        for shard in self._shards:
            counts = ffi.new("gl_exchange_statistics *")
            with shard.locked() as pointer:
                lib.gl_exchange_counts(pointer, counts)
            every.append({name: int(getattr(counts, name)) for name in STATISTICS})
        return {name: (max if name == "step" else sum)(counts[name] for counts in every) for name in STATISTICS}

    def oldest(self) -> Waiting | None:
        """What has been waiting longest: for a local process, or for other hosts."""
        found = [waiting for shard in self._shards if (waiting := self._oldest(shard)) is not None]
        return max(found, key=lambda waiting: waiting.seconds, default=None)

    def _oldest(self, shard: Shard) -> Waiting | None:
        oldest = ffi.new("gl_oldest_operation *")
        remote = ffi.new("gl_waiting *")
        now = lib.gl_now()
        with shard.locked() as pointer:
            if not lib.gl_exchange_oldest(pointer, oldest, now):
                return None
            lib.gl_oldest(shard.engine.pointer, now, remote)
        processes = [k for k in range(self._job.processes) if oldest.missing >> k & 1]
        members = range(len(self._job.members))
        ranks = [] if processes else [rank for rank in members if remote.missing[rank // 64] >> (rank % 64) & 1]
        what = self._site.what(oldest.tensor, oldest.step)
        workers = self._site.hosts.get(oldest.tensor) or [member.rank for member in self._job.workers]
        return Waiting(oldest.age / 1e6, what, ranks, bool(remote.direct), processes, workers)

    def stop(self) -> None:
        """Takes no commands any more, and no events of the engines."""
        for shard in self._shards:
            asyncio.get_running_loop().remove_reader(shard.notify)
        for task in self._site.tasks:
            task.cancel()
        for shard in self._shards:
            shard.stop()

    def close(self) -> None:
        """Gives everything back; after `stop`, and when the engines, which work on this memory, are gone.

        What is called later raises TypeError."""
        for shard in self._shards:
            shard.close()
        self._tensors.close()
        for process in self._processes.values():
            process.close()
        self._processes.clear()  # unmaps their memory now, and not when this object is collected

    async def _answer(
        self,
        process: int,
        message: Message,
        operation: Callable[[int, Message], Coroutine[Any, Any, None]],
    ) -> None:
        """A process gets its own mistakes as errors, and the job continues; what ranks disagree about ends it."""
        try:
            await operation(process, message)
        except (ValueError, AgentError) as error:
            self._reply(process, message, {"error": str(error)})
        except OSError as error:
            self._reply(process, message, {"error": f"{message['op']}: {error.strerror}"})

    def _reply(self, process: int, message: Message, content: dict[str, Any], fds: tuple[int, ...] = ()) -> None:
        self._processes[process].tell({"op": "answer", "request": message.get("request"), **content}, fds)

    def _news(self, shard: Shard) -> None:
        os.eventfd_read(shard.notify)
        with shard.locked() as pointer:
            failure = lib.gl_exchange_failure(pointer)[0]
        what = self._site.what(failure.tensor, failure.step)
        text = ffi.string(failure.text).decode(errors="replace")
        own = self._site.name(self._rank)
        if failure.kind == lib.GL_FAILURE_MISMATCH:
            other = self._site.name(failure.process)
            reason = f"{other} and {own} disagree about {what} (size, tolerance): do they run the same program?"
        elif failure.kind == lib.GL_FAILURE_BUDGET:
            other = self._site.name(failure.process)
            reason = (
                f"{what}: the switch's sums lack more of {other} than its loss budget, or hosts have different ones"
            )
        elif failure.kind == lib.GL_FAILURE_PROCESS:
            reason = f"process {failure.process} of {own}: {text}"
        else:
            reason = f"{own}: {what}: {text}" if failure.step else f"{own}: {text}"
        self._site.failed(reason)

    async def _region(self, process: int, message: Message) -> None:
        nbytes = message["bytes"]
        if not 0 < nbytes <= MAX_REGION:
            raise ValueError(f"a region of {nbytes} bytes: 1 to {MAX_REGION}")
        descriptor, region = await self._site.create("region", nbytes)
        try:
            self._reply(process, message, {"region": self._processes[process].add(region)}, (descriptor,))
        except ValueError:
            self._site.give_back(nbytes)
            raise
        finally:
            os.close(descriptor)

    def _release(self, process: int, number: int) -> None:
        self._site.give_back(self._processes[process].release(number))

    async def _tensor(self, process: int, message: Message) -> None:
        content, descriptor = await self._tensors.register(process, message)
        self._reply(process, message, content, (descriptor,))

    async def _group(self, process: int, message: Message) -> None:
        self._reply(process, message, await self._groups.join(process, message))

    async def _lead(self, process: int, message: Message) -> None:
        """What the rank that leads the job knows."""
        question = {name: value for name, value in message.items() if name not in ("op", "request")}
        answer = await self._site.ask({"kind": message["op"], **question})
        self._reply(process, message, answer)

    async def _residual(self, process: int, message: Message) -> None:
        descriptor = await self._tensors.residual(process, message["name"])
        try:
            self._reply(process, message, {}, (descriptor,))
        finally:
            self._site.give_back(os.fstat(descriptor).st_size)
            os.close(descriptor)
