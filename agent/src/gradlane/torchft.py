# SPDX-License-Identifier: Apache-2.0
"""torchft's collectives over the agents: training goes on when replica groups die, come back and come anew.

    from gradlane.torchft import ProcessGroupGradlane

    manager = torchft.Manager(pg=ProcessGroupGradlane(), ...)

Each quorum is a job of its own, of the processes with the same rank in their replica groups, and every collective is
exact. GRADLANE_JOB names a template (a job file without [[worker]]), as for `init_process_group("gradlane")`. The jobs
of several ranks run at once, so that of rank r has the template's id plus r.
"""

import importlib
import os
from contextlib import suppress
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist

from gradlane.client.connection import Connection
from gradlane.errors import AgentError
from gradlane.torch import rendezvous
from gradlane.torch.process_group import ProcessGroup
from gradlane.torch.work import NO_TIMEOUT

# torchft, which the environment of the types does not have: it counts as Any.
_Wrapper: Any = importlib.import_module("torchft.process_group").ProcessGroupWrapper


class ProcessGroupGradlane(_Wrapper):
    """In place of torchft's ProcessGroupGloo or ProcessGroupNCCL.

    `configure`, which torchft's Manager calls for every quorum, leaves the job of the last one and joins a new one. It
    raises gradlane.AgentError or gradlane.job.JobError. If a process dies, what is in flight fails with an AgentError
    that names it, and the Manager asks for the next quorum. It looks at an all-reduce's future for that: wait() returns
    False then, as torchft's DistributedDataParallel ends the program if it raises. All others raise.
    """

    def allreduce(self, tensors: list[torch.Tensor], opts: Any) -> dist.Work:
        """Reduces each tensor over the replica groups, in place."""
        return _AllReduce(super().allreduce(tensors, opts))

    def _create_pg(self, store: Any, rank: int, world_size: int) -> dist.ProcessGroup:
        options = SimpleNamespace(
            group_rank=rank, group_size=world_size, timeout=self._timeout, group_id=f"torchft {self._quorum_id}"
        )
        if (self._group_world_size or 1) > 1 and not os.environ.get("GRADLANE_JOB"):
            raise AgentError("replica groups of several processes need GRADLANE_JOB, the path of a template")
        return _Quorum(rendezvous.join(store, rank, world_size, self._group_rank or 0), options)

    def getBackendName(self) -> str:
        """What torchft calls it."""
        return "torchft-gradlane"

    def shutdown(self) -> None:
        """Leaves the job in order."""
        self.abort(errored=False)


class _AllReduce(dist.Work):
    """An all-reduce whose error only its future has."""

    def __init__(self, work: dist.Work) -> None:
        super().__init__()
        self._work = work

    def wait(self, timeout: timedelta = NO_TIMEOUT) -> bool:
        """Whether the results are there."""
        try:
            return self._work.wait(timeout)
        except (AgentError, TimeoutError):
            return False

    def get_future(self) -> torch.futures.Future[Any]:
        """It holds the tensors, or raises AgentError."""
        return self._work.get_future()


class _Quorum(ProcessGroup):
    """The processes of one quorum; it has a job to itself."""

    def __init__(self, connection: Connection, options: Any) -> None:
        super().__init__(connection, range(options.group_size), None, options)

    def shutdown(self) -> None:
        """Leaves the job: in order, or it has failed already, which whoever waited has been told."""
        with suppress(AgentError):
            self.connection.close()
