# SPDX-License-Identifier: Apache-2.0
"""What the parts of a job's data path at one host share."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from gradlane._core import lib
from gradlane.datapath.shard import Shard
from gradlane.errors import AgentError
from gradlane.ipc import memory
from gradlane.job import Job, costs
from gradlane.job.agreement import Agreement

# By their names in the job file. "switch": of what hosts do while it does not sum; "plan": that of the step's plan.
ALGORITHMS = {
    "direct": int(lib.GL_DIRECT),
    "ring": int(lib.GL_RING),
    "grid": int(lib.GL_GRID),
    "stragglar": int(lib.GL_STRAGGLAR),
    "switch": int(lib.GL_DIRECT),
    "plan": 0,
}

# Bounded for all jobs together; more than one, as making what one asks for may take seconds.
_makers = ThreadPoolExecutor(2, "gradlane-memory")


@dataclass
class Site:
    """A job at one of its hosts.

    `failed` ends the job; `ask` brings a question to the rank that leads. `shared`: bytes that `create` may make, of
    which `taken` are in use. `numbers`: what numbers on the wire stand for, in errors; `hosts`: who takes part in those
    that not all do. `tasks` are cancelled when the job ends.
    """

    job: Job
    rank: int
    shards: list[Shard]
    agreement: Agreement
    failed: Callable[[str], None]
    ask: Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]
    shared: int
    taken: int = 0
    numbers: dict[int, str] = field(default_factory=dict[int, str])
    hosts: dict[int, list[int]] = field(default_factory=dict[int, list[int]])
    tasks: set["asyncio.Task[Any]"] = field(default_factory=set["asyncio.Task[Any]"])

    def spawn(self, coroutine: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        """Starts a task of the job."""
        task = asyncio.get_running_loop().create_task(coroutine)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    async def share(self, known: dict[str, "asyncio.Task[Any]"], name: str, making: Coroutine[Any, Any, Any]) -> Any:
        """What `making` makes, or what the task of that name in `known` has; one that fails may be tried again."""
        if name in known:
            making.close()
        else:
            known[name] = self.spawn(making)
        try:
            return await asyncio.shield(known[name])
        except (AgentError, ValueError):
            known.pop(name, None)
            raise

    def name(self, rank: int) -> str:
        """A rank as errors name it."""
        return self.job.name_of(rank)

    def what(self, number: int, step: int) -> str:
        """An operation, by its tensor on the wire."""
        key = number if number >= lib.GL_FIRST_GROUP else number // lib.GL_MAX_PARTITIONS
        return f"{self.numbers.get(key, f'operation {number}')}, step {step}"

    async def create(self, what: str, nbytes: int) -> tuple[int, memory.Memory]:
        """A descriptor of shared memory, and the memory, until they are given back. Raises AgentError.

        It may take seconds, in which this host must still send heartbeats: a thread makes it.
        """
        if self.taken + nbytes > self.shared:
            raise AgentError(
                f"{nbytes} bytes of shared memory: the job has {self.taken} of the {self.shared} that it may have here "
                "(limits.shared of the agent's file)"
            )
        self.taken += nbytes
        making = asyncio.get_running_loop().run_in_executor(_makers, _make, what, nbytes)
        try:
            return await asyncio.shield(making)
        except OSError as error:
            self.give_back(nbytes)
            raise AgentError(f"{nbytes} bytes of shared memory: {error.strerror}") from error
        except asyncio.CancelledError:
            making.add_done_callback(_close)
            raise

    def give_back(self, nbytes: int) -> None:
        """So much of what was created is in use no longer."""
        self.taken -= nbytes

    async def agree(self, kind: str, name: str, shape: Any) -> int:
        """The number of a name, see Names.assign. Raises AgentError, which is the end of the job, if ranks disagree."""
        answer = await self.ask({"kind": kind, "name": name, "shape": shape})
        if "error" in answer:
            self.failed(str(answer["error"]))
            raise AgentError(str(answer["error"]))
        return int(answer["id"])

    def algorithm(
        self,
        nbytes: int,
        hosts: Sequence[int],
        tolerance: float,
        planned: bool = False,
        late: bool = False,
        sums: costs.Sums | None = None,
    ) -> str:
        """The name in ALGORITHMS for an all-reduce among these workers' ranks, alike at all of them.

        `tolerance`: the fraction that may be lost; `planned`: plans are for it, so "plan" is an answer; `late`: it may
        leave out workers; `sums`: what the switch can do of it.
        """
        name, ownership = self.job.transport.collective, self.job.transport.ownership
        if planned and self.job.changes_algorithm and not tolerance and not late:
            return "plan"
        if name == "switch" and planned:
            return "switch" if sums else "direct"
        if name in ("auto", "switch") or (name == "stragglar" and self.job.transport.straggler not in hosts):
            return costs.choose(
                nbytes,
                len(hosts),
                self.agreement.conditions.among(hosts),
                processes=self.job.processes,
                servers=len(self.job.servers),
                tolerance=tolerance,
                uneven=planned and ownership != "even",
                late=late,
                sums=sums,
            ).algorithm
        return name


def _make(what: str, nbytes: int) -> tuple[int, memory.Memory]:
    descriptor = memory.create(what, nbytes)
    try:
        return descriptor, memory.Memory(descriptor, nbytes)
    except OSError:
        os.close(descriptor)
        raise


def _close(made: "asyncio.Future[tuple[int, memory.Memory]]") -> None:
    """Closes memory that nobody waits for any more."""
    if made.exception() is None:
        os.close(made.result()[0])
