# SPDX-License-Identifier: Apache-2.0
"""What a job at this host works with: the training processes that it serves, and what all jobs of an address share."""

from dataclasses import dataclass
from typing import Protocol

from gradlane.control.listener import Listener
from gradlane.control.probing import Prober
from gradlane.datapath.engines import Engines
from gradlane.datapath.transport import Transport
from gradlane.ipc.messages import Message
from gradlane.job import Job


class Client(Protocol):
    """A training process, as its job sees it. `pid` is 0 if it can't be seen from here."""

    pid: int

    def tell(self, message: Message, descriptors: tuple[int, ...] = ()) -> None:
        """Sends a message."""


@dataclass(frozen=True)
class Services:
    """What all jobs of one address share. `memory`: bytes that each of them has for contributions that wait; `shared`:
    that its processes may have in common with the agent. `within`: whether the agent is in the training process."""

    listener: Listener
    prober: Prober
    transport: Transport
    memory: int
    shared: int
    within: bool

    @property
    def runners(self) -> int:
        """Threads over which jobs are spread here."""
        return len(self.transport.loops)

    def keep_beating(self, engine: Engines, job: Job) -> None:
        """In a training process, which may keep Python's other threads from running for long, the engine's thread sends
        the signs of life."""
        if self.within:
            engine.beat(*self.prober.beats(job.id))
