# SPDX-License-Identifier: Apache-2.0
"""The agent: one host's listeners, sockets and jobs."""

import asyncio
import contextlib
import logging
import os
import socket
import time
from collections.abc import AsyncGenerator, Mapping
from dataclasses import replace
from importlib.metadata import version

from gradlane import job, logs
from gradlane.control.listener import Listener
from gradlane.control.probing import Prober
from gradlane.control.security import Credentials
from gradlane.daemon import clients
from gradlane.daemon.clients import Client, Clients
from gradlane.daemon.config import RELOADED, AgentConfig
from gradlane.daemon.local_job import LocalJob
from gradlane.daemon.reporting import Reporter
from gradlane.daemon.shared import Services
from gradlane.datapath.transport import Transport
from gradlane.errors import AgentError
from gradlane.ipc.messages import Message
from gradlane.ipc.status import AgentStatus
from gradlane.job import Job
from gradlane.toml_file import Address

log = logging.getLogger("gradlane")

# When a job is restarted, its new processes may come before the end of the old ones has been seen.
REPLACE_SECONDS = 2.0


class Agent:
    """Listens on the Unix socket for training processes and on TCP for the agents of other hosts."""

    def __init__(self, config: AgentConfig, within: socket.socket | None = None) -> None:
        """`within`: the connection of the training process that it is in, in place of the Unix socket."""
        self.config = config
        self._within = within
        self._clients: Clients | None = None
        self._started = time.time()
        self._ended = self._failed = 0
        self._jobs: dict[int, LocalJob] = {}  # by the job's id
        self._listeners: dict[Address, Listener] = {}
        self._probers: dict[Address, Prober] = {}
        self._transport: Transport | None = None
        self._reporter = Reporter(lambda: self.config.controller, self.status, self._grant)

    def reload(self, config: AgentConfig) -> None:
        """Adopts the keys that a running agent can change (`config.RELOADED`), for jobs and connections from now on.

        Raises AgentError, and changes nothing, if the certificates can't be used.
        """
        credentials = Credentials(config.tls)
        self.config = replace(self.config, **{name: getattr(config, name) for name in RELOADED})
        for listener in self._listeners.values():
            listener.credentials = credentials

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncGenerator[None]:
        """Listens; at the end all jobs fail with the reason. Raises AgentError if a port or the socket can't be had."""
        loop = asyncio.get_running_loop()
        credentials = Credentials(self.config.tls)
        with contextlib.ExitStack() as stack:
            for address in self.config.addresses:
                self._listeners[address] = Listener(address, credentials)
                stack.callback(self._listeners[address].close)
                self._probers[address] = Prober(address)
                stack.callback(self._probers[address].close)
            found = self.config
            self._transport = transport = Transport(
                found.addresses, self._fail_all, found.realtime, found.threads, found.runners
            )
            stack.callback(transport.close)
            loop.add_reader(transport.notify, transport.dispatch)
            stack.callback(loop.remove_reader, transport.notify)
            if self._within is None:
                config = self.config
                listener = stack.enter_context(clients.listening(config.socket, config.group, config.mode))
                self._clients = Clients(self, listener)
            else:
                self._clients = Clients(self, None)
                self._clients.admit(self._within)
            stack.callback(self._stop)
            stack.callback(loop.create_task(self._reporter.run()).cancel)
            yield

    async def deserted(self) -> None:
        """Returns when no process is left, nor a job: where others still have not left a job, it goes on without this
        rank."""
        assert self._clients is not None
        await self._clients.deserted.wait()
        for local in list(self._jobs.values()):
            local.finish()

    def _grant(self, tolerated: Mapping[str, float]) -> None:
        """What a controller leaves of jobs' tolerances, by name; of others all."""
        for local in self._jobs.values():
            local.grant(tolerated.get(local.job.name, 1.0))

    def _stop(self) -> None:
        for local in list(self._jobs.values()):
            local.fail(f"the agent at {local.address} was stopped")
        if self._clients is not None:
            self._clients.close()

    def _fail_all(self, reason: str) -> None:
        for local in list(self._jobs.values()):
            local.fail(f"{local.peers.name(local.rank)}: {reason}")

    async def join(self, client: Client, message: Message) -> tuple[LocalJob, int]:
        """The job that a training process asks for, and its number there. Raises AgentError or JobError."""
        parsed = job.parse(message["job"], message["file"])
        rank, process = message["rank"], message.get("process") or 0
        address, processes = parsed.member(rank).address, parsed.member(rank).processes
        if not 0 <= process < processes:
            raise AgentError(
                f"{parsed.file}: rank {rank} has {processes} process(es), so there is no process {process}"
            )
        if address not in self.config.addresses:
            mine = " and ".join(map(str, self.config.addresses))
            raise AgentError(f"{parsed.file}: rank {rank} has address {address}, but this is the agent of {mine}")
        if not parsed.key and self.config.tls is None:
            raise AgentError(
                f"{parsed.file}: job.key: is missing, and this agent has no certificates ([tls] of its file); make "
                "a key with `openssl rand -hex 16`"
            )
        local = self._jobs.get(parsed.id)
        if local is not None and not local.takes(parsed, rank, process):
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(local.over.wait(), REPLACE_SECONDS)
            local = self._jobs.get(parsed.id)
        if local is None:
            local = self._start(parsed, rank)
        local.admit(parsed, rank, process, client, message.get("request"))
        return local, process

    def _start(self, parsed: Job, rank: int) -> LocalJob:
        if len(self._jobs) >= self.config.jobs:
            names = ", ".join(repr(local.job.name) for local in self._jobs.values())
            raise AgentError(
                f"this agent runs at most {self.config.jobs} job(s) at once (limits.jobs of its file), now {names}"
            )
        log.info("job %s: rank %d joins", parsed.name, rank, extra={"job": parsed.name, "rank": rank})
        assert self._transport is not None
        address = parsed.member(rank).address
        services = Services(
            *(self._listeners[address], self._probers[address], self._transport),
            *(self.config.memory, self.config.shared, self._within is not None),
        )
        self._jobs[parsed.id] = local = LocalJob(parsed, rank, services, self._job_ended)
        return local

    def _job_ended(self, local: LocalJob) -> None:
        del self._jobs[local.job.id]
        context = {"job": local.job.name, "rank": local.rank}
        if local.failure:
            self._failed += 1
            log.error("job %s: rank %d failed: %s", local.job.name, local.rank, local.failure, extra=context)
        else:
            self._ended += 1
            log.info("job %s: rank %d ended", local.job.name, local.rank, extra=context)

    def status(self) -> AgentStatus:
        """What `gradlane status` shows."""
        control: dict[str, int] = {}
        for listener in self._listeners.values():
            counts = {**listener.statistics, "calls_pending": listener.pending()}
            control = {name: control.get(name, 0) + count for name, count in counts.items()}
        return {
            "version": version("gradlane"),
            "addresses": [str(address) for address in self.config.addresses],
            "pid": os.getpid(),
            "started": self._started,
            "clients": 0 if self._clients is None else self._clients.joined(),
            "ended": self._ended,
            "failed": self._failed,
            "log_lines_lost": logs.lines_lost(),
            "limits": {"jobs": self.config.jobs, "memory": self.config.memory, "shared": self.config.shared},
            "control": control,
            "transport": {} if self._transport is None else self._transport.statistics(),
            "controller": self._reporter.to_json(),
            "jobs": {self._shown(local.job): local.status() for local in self._jobs.values()},
        }

    def _shown(self, job: Job) -> str:
        """A job's name; with its id where jobs of different ids have the same name."""
        names = [local.job.name for local in self._jobs.values()]
        return job.name if names.count(job.name) == 1 else f"{job.name} ({job.id})"
