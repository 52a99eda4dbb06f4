# SPDX-License-Identifier: Apache-2.0
"""A job at this host's rank, inside the agent: its peers, its engine, and the training processes that it serves."""

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

from gradlane.control import joining
from gradlane.control.peer import Stage
from gradlane.control.peers import Peers
from gradlane.daemon import job_status, liveness
from gradlane.daemon.arbiter import Arbiter
from gradlane.daemon.left_out import LeftOut
from gradlane.daemon.meetings import Meetings
from gradlane.daemon.ownership import Ownership
from gradlane.daemon.shared import Client, Services
from gradlane.daemon.sums import Sums
from gradlane.datapath.engines import Engines
from gradlane.datapath.exchange import Exchange
from gradlane.errors import AgentError, listed
from gradlane.ipc.messages import Message
from gradlane.ipc.status import JobStatus, WaitStatus
from gradlane.job import Job
from gradlane.job.agreement import Agreement
from gradlane.toml_file import Address
from gradlane.units import format_rate

log = logging.getLogger("gradlane")

LEAVE_SECONDS = 5.0


class LocalJob:
    """Joins the job, serves its local processes, and leaves. `ended` is called once, when the job is over here."""

    def __init__(self, job: Job, rank: int, services: Services, ended: Callable[["LocalJob"], None]) -> None:
        self.job = job
        self.rank = rank
        self.failure = ""
        self.over = asyncio.Event()
        arbiter = Arbiter(job)
        self.peers = Peers(job, rank, services.listener.credentials, self.fail, arbiter, self._notice, self._dropped)
        self._meetings = Meetings(job, rank, self.peers, arbiter)
        self._services = services
        self._ended = ended
        self._clients: dict[int, Client] = {}  # by process
        self._requests: dict[int, Any] = {}
        self._left: set[int] = set()
        self._farewells: list[asyncio.Task[None]] = []
        self._all_here, self._all_left = asyncio.Event(), asyncio.Event()
        self._agreement: Agreement | None = None
        self._engine: Engines | None = None
        self._exchange: Exchange | None = None
        self._ownership: Ownership | None = None
        self._sums: Sums | None = None
        self._left_out: LeftOut | None = None
        self._granted = 1.0
        self._stopped, self._progress, self._misclosed = liveness.Stopped(), liveness.Progress(), liveness.Progress()
        self._oldest: str | None = None  # operation in flight
        self._late = ""  # who is, as it has been reported
        self._waits: dict[str, WaitStatus] = {}  # for whom, by rank
        self._since = time.time()
        self._last: dict[str, Any] = {"flows": {}}  # the statistics, when it is over
        services.listener.add(job.id, self.peers)
        self._tasks: set[asyncio.Task[None]] = set()
        self._spawn(self._run())

    @property
    def address(self) -> Address:
        """This rank's."""
        return self.job.member(self.rank).address

    @property
    def name(self) -> str:
        """Job and rank, for the log."""
        return f"job {self.job.name}: rank {self.rank}"

    def takes(self, job: Job, rank: int, process: int) -> bool:
        """Whether a local process that comes with this job file belongs to this job."""
        return (
            replace(job, file=self.job.file) == self.job
            and rank == self.rank
            and process not in self._clients
            and not self._left
        )

    def admit(self, job: Job, rank: int, process: int, client: Client, request: Any) -> None:
        """A local process joins; its answer repeats `request`. Raises AgentError if it belongs to another job."""
        if not self.takes(job, rank, process):
            owners = ", ".join(str(client.pid) for client in self._clients.values())
            raise AgentError(
                f"job {self.job.name!r} (id {self.job.id}) runs on this host already, as rank {self.rank} of "
                f"{self.job.file} with process(es) {owners}: a job that runs beside it needs an id of its own"
            )
        self._clients[process], self._requests[process] = client, request
        if len(self._clients) == self.job.member(self.rank).processes:
            self._all_here.set()

    def grant(self, part: float) -> None:
        """The controller leaves that part of the job's tolerance here, from 0 to 1."""
        if part == self._granted:
            return
        log.info("%s: %g %% of the job's tolerance hold from now on, as the controller says", self.name, 100 * part)
        self._granted = part
        if self._exchange is not None and not self.over.is_set():
            self._exchange.grant(part)

    # Joining

    async def _run(self) -> None:
        await self._join()
        if self.rank >= len(self.job.workers):
            await self.peers.rendezvous.workers_left()
            self.leave(0)

    async def _join(self) -> None:
        begun, patience = time.monotonic(), self.job.patience
        self.peers.start()
        reminder = asyncio.get_running_loop().call_later(liveness.LATE_SECONDS, self._tell_who_is_missing)
        try:
            await self._local_processes(patience)
            await self.peers.rendezvous.connected(patience)
        finally:
            reminder.cancel()
            self._late = ""
        connected, services = time.monotonic(), self._services
        self._agreement = agreement = await joining.agree(
            self.job, self.rank, self.peers, services.prober, services.runners
        )
        self._engine = Engines(services.transport, self.job, self.rank, agreement, services.memory)
        self.peers.signs.silence = self._engine.silence
        services.keep_beating(self._engine, self.job)
        self._exchange = exchange = Exchange(
            *(self.job, self.rank, self._engine, agreement, self.fail),
            *(self.peers.leading.ask, services.shared, services.within),
        )
        exchange.grant(self._granted)
        self._ownership = Ownership(self.job, self.rank, self._engine, exchange, self.peers, agreement.conditions)
        self.peers.listeners["ownership"] = self._ownership.hear
        self._left_out = LeftOut(self.job, self.rank, self._engine, exchange, services.memory)
        if self.job.sum_lanes is not None:
            parts = self._engine, exchange, self.peers, self._ownership
            self._sums = Sums(self.job, self.rank, *parts, agreement.generation, self.fail)
            self.peers.listeners["sums"] = self._sums.hear
        await self.peers.rendezvous.reach(Stage.READY, patience)
        if self.job.survives:
            self.peers.outlive(exchange.close_group)
        for process, client in self._clients.items():
            if self.over.is_set():
                return  # the one before was gone already
            exchange.open(process, client.tell)
            content, descriptors = exchange.joined(process)
            client.tell({"op": "joined", "request": self._requests[process], **content}, descriptors)
        log.info(
            "%s joined: waited %.2f s for %d members, agreed in %.2f s: slices of %d bytes, %s, %.0f us one-way delay",
            *(self.name, connected - begun, len(self.job.members), time.monotonic() - connected),
            *(agreement.slice_bytes, format_rate(agreement.conditions.rate), agreement.conditions.latency * 1e6),
            extra=self._context(),
        )
        for line in job_status.algorithms(self.job, agreement):
            log.info("%s: %s", self.name, line, extra=self._context())
        if not self.over.is_set():
            self._spawn(self._watch())
            if self._sums is not None:
                self._spawn(self._sums.run(self.over))

    async def _local_processes(self, timeout: float) -> None:
        try:
            await asyncio.wait_for(self._all_here.wait(), timeout)
        except asyncio.TimeoutError:
            raise AgentError(
                f"after {timeout:g} s these have not joined the job: {listed(self._missing_processes())}"
            ) from None

    def _missing_processes(self) -> list[str]:
        missing = sorted(set(range(self.job.member(self.rank).processes)) - set(self._clients))
        return [f"process {process} of {self.peers.name(self.rank)}" for process in missing]

    def _tell_who_is_missing(self) -> None:
        missing = self._missing_processes() + self.peers.absent.names()
        self._notice(
            f"after {liveness.LATE_SECONDS:g} s these have not joined the job, which waits {self.job.patience} s "
            f"(job.patience): {listed(missing)}"
        )

    def _notice(self, text: str) -> None:
        """Reports to operators and local processes what is wrong, but may still end well."""
        self._late = text
        log.warning("%s: %s", self.name, text, extra=self._context())
        for client in self._clients.values():
            client.tell({"op": "notice", "message": text})

    def _context(self) -> dict[str, Any]:
        return {"job": self.job.name, "rank": self.rank}

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        self._tasks.add(task := asyncio.get_running_loop().create_task(coroutine))
        task.add_done_callback(self._done)
        return task

    def _done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if task.cancelled() or (error := task.exception()) is None:
            return
        if isinstance(error, (AgentError, OSError)):
            self.fail(str(error))
        else:  # a bug here must not leave the job hanging
            log.error("%s: %s", self.name, error, exc_info=error)
            self.fail(f"{self.peers.name(self.rank)}: {error!r}")

    # The data path

    def handle(self, process: int, message: Message) -> "asyncio.Task[None] | None":
        """A message of a local process about tensors: what answers it, if that takes time. Raises ValueError."""
        if self._exchange is None:
            raise ValueError(f"{message['op']!r} before the job has been joined")
        return self._exchange.handle(process, message)

    def _dropped(self, rank: int, why: str) -> None:
        """The job goes on without a rank. Processes hear of it before what they have in flight with it is lost."""
        log.warning("%s goes on without rank %d: %s", self.name, rank, why, extra=self._context())
        for client in self._clients.values():
            client.tell({"op": "dead", "rank": rank, "message": why})
        if self._exchange is not None and not self.over.is_set():
            for group in self._exchange.drop(rank).items():
                self.peers.close_group(*group)

    # The end

    def fail(self, reason: str) -> None:
        """Ends the job; all ranks and processes get `reason` as their error. Only the first reason counts."""
        if self.failure or self.over.is_set():
            return
        self.failure = reason
        self.peers.abort(reason)
        for client in self._clients.values():
            client.tell({"op": "error", "message": reason})
        self.finish()

    def client_gone(self, process: int) -> None:
        """A local process has ended. If it has not left before, this ends the job."""
        if process not in self._left:
            which = f" {process} of {len(self._clients)}" if len(self._clients) > 1 else ""
            self.fail(f"{self.peers.name(self.rank)}: its training process{which} ended without leaving the job")

    def leave(self, process: int) -> None:
        """A local process is done. It gets its answer when all ranks are, at the latest after LEAVE_SECONDS.

        The engine runs until all ranks have left, so that no rank waits for a repair or an answer in vain.
        """
        self._left.add(process)
        self._farewells.append(self._spawn(self._farewell(process)))
        if len(self._left) == len(self._clients):
            self._spawn(self._leave())

    async def _leave(self) -> None:
        await self.peers.rendezvous.reach(Stage.LEFT, None)
        with contextlib.suppress(AgentError):  # nobody needs a rank that is silent now
            await self.peers.rendezvous.reach(Stage.GONE, LEAVE_SECONDS)
        self._all_left.set()
        await asyncio.gather(*self._farewells)
        self.finish()

    async def _farewell(self, process: int) -> None:
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._all_left.wait(), LEAVE_SECONDS)
        self._clients[process].tell({"op": "closed", "statistics": self.statistics()})

    def finish(self) -> None:
        """Ends the job here, whatever the others do."""
        if self.over.is_set():
            return
        for task in self._tasks:
            if task is not asyncio.current_task():
                task.cancel()
        self._services.listener.remove(self.job.id)
        self._services.prober.remove(self.job.id)
        if self._engine is not None:
            self._last = self.statistics()
            if self._exchange is not None:
                self._exchange.stop()
            self._engine.close()
            self._engine = None
        if self._exchange is not None:
            self._exchange.close()  # the engine works on its memory to the last
        self.peers.close()
        self.over.set()
        self._ended(self)

    # While it runs

    async def _watch(self) -> None:
        while not self.over.is_set():
            await asyncio.sleep(liveness.WATCH_SECONDS)
            now = time.monotonic()
            pids = {process: client.pid for process, client in self._clients.items() if process not in self._left}
            if stopped := self._stopped.look(pids, now):
                process, pid = stopped
                self.fail(
                    f"{self.peers.name(self.rank)}: its training process {process} (pid {pid}) has been stopped for "
                    f"{liveness.STOPPED_SECONDS:g} s (SIGSTOP)"
                )
                return
            for check in (self._check_progress, self._meetings.look, self._look):
                if not self.over.is_set():
                    check(now)

    def _look(self, now: float) -> None:
        false = {} if self._exchange is None else self._exchange.misclosed(self.peers.dead)
        if self._misclosed.idle(false, now) >= liveness.LATE_SECONDS:  # who is dead is known everywhere by then
            for rank, what in false.items():
                self.peers.expel([rank], f"{self.peers.name(rank)} said of {what} that a rank of it is dead; none is")
        if self._ownership is not None:
            self._ownership.look(now)
        if self._left_out is not None:
            self._left_out.look()

    def _check_progress(self, now: float) -> None:
        if self._exchange is None or self._engine is None:
            return
        waiting = self._exchange.oldest()
        what, before = None if waiting is None else waiting.what, self._oldest
        self._oldest = what
        waited = 0.0 if waiting is None else waiting.seconds
        self.peers.waits(what if what == before else None, waited)  # not what is over until the next look
        counts = self._engine.statistics()
        anew = 0 if self._sums is None else self._sums.fallbacks
        idle = self._progress.idle((what, counts["datagrams_received"], anew), now)
        found, self._waits = None, {}
        if waiting is not None and self._exchange.held:  # it waits for no worker
            found = liveness.undecided(idle, self.job.patience)
        elif waiting is not None and not (self._sums is not None and self._sums.halted):  # which looks itself
            workers = [rank for rank in waiting.workers if rank != self.rank and rank not in self.peers.dead]
            waits_for = {rank: self.peers.board.waiting.get(rank) for rank in workers}
            left = [rank for rank in workers if rank in self.peers.board.left]
            if liveness.waits_elsewhere(waiting, waits_for):
                self._progress.excuse(min(map(self.peers.board.waited, liveness.late(waiting, waits_for))))
            found = liveness.stall(waiting, idle, waits_for, self.job.patience, left, self._progress.excused)
            if idle >= liveness.WATCH_SECONDS:
                ranks = liveness.late(waiting, waits_for) or waiting.ranks
                self._waits = {str(rank): {"seconds": idle, "what": waiting.what} for rank in ranks}
        if waiting is None or found is None:
            self._late = ""
            return
        who = [self.peers.name(rank) for rank in found.ranks]
        who += [f"process {process} of {self.peers.name(self.rank)}" for process in waiting.processes]
        text = f"{waiting.what} has made no progress for {idle:.0f} s: {listed(who)} {found.how}"
        if found.over and self.job.survives:
            self.peers.expel(found.ranks, text)
        elif found.over:
            self.fail(f"{text} (counts of {self.peers.name(self.rank)}: {json.dumps(counts)})")
        elif not self._late:
            self._notice(text)

    def statistics(self) -> dict[str, Any]:
        """Cumulative counts of the transport, with the state of the flow to every rank."""
        if self._engine is None:
            return dict(self._last)
        own = {} if self._exchange is None else self._exchange.statistics()
        return {**self._engine.statistics(), **own, "flows": job_status.flows(self._engine, self.rank)}

    def status(self) -> JobStatus:
        """What operators see of the job."""
        counts = self.statistics()
        status: JobStatus = {
            "id": self.job.id,
            "rank": self.rank,
            "state": "joining" if self._exchange is None else "leaving" if self._left else "running",
            "since": self._since,
            "step": 0 if self._exchange is None else max(self._exchange.step, 0),
            "in_flight": 0 if self._exchange is None else self._exchange.in_flight,
            "counts": counts,
            "peers": job_status.peers(self.job, self.rank, self.peers, counts.pop("flows"), self._engine),
        }
        if self._engine is not None:
            status["classes"] = job_status.classes(self.job.loss, self._engine)
            if self._left_out is not None:
                status["left_out"] = self._left_out.status()
            status["memory"] = {"used": counts["memory_used"], "limit": self._services.memory}
        if self.peers.dead:
            status["dead"] = {str(rank): why for rank, why in self.peers.dead.items()}
        if self._late:
            status["late"] = self._late
        if self._waits:
            status["waits"] = self._waits
        if self._ownership is not None:
            status["stragglers"] = self._ownership.stragglers()
            status["ownership"] = self._ownership.shares()
        if self._sums is not None:
            status["sums"] = self._sums.status(counts)
        if self._agreement is not None:
            status["shards"] = self._agreement.shards
            status["slice_bytes"] = self._agreement.slice_bytes
            status["conditions"] = self._agreement.conditions.to_json()
        return status
