# SPDX-License-Identifier: Apache-2.0
"""The groups that torch.distributed asks for: the first one joins the job, the others are parts of it."""

from typing import Any

from gradlane.client.connection import Connection
from gradlane.errors import AgentError
from gradlane.torch import rendezvous
from gradlane.torch.process_group import ProcessGroup
from gradlane.torch.session import Session


class WorldGroup(ProcessGroup):
    """The group that joined the job: all of its processes. Its end is that of this process' part in the job."""

    def __init__(self, connection: Connection, options: Any) -> None:
        super().__init__(connection, range(options.group_size), None, options)
        self._session: Session | None = None

    @property
    def session(self) -> Session:
        """For the communication hook and `overlap`, in the same job."""
        if self._session is None:
            self._session = Session(self.connection)
        return self._session

    def shutdown(self) -> None:
        """Leaves the job in order. Raises AgentError if it has failed."""
        _world.pop("group", None)
        if self._session is None:
            self.connection.close()
        else:
            self._session.close()


_world: dict[str, tuple[WorldGroup, list[int]]] = {}  # "group": the one that joined, and its members' ranks in torch


def create(options: Any, _: Any) -> ProcessGroup:
    """What torch calls for a new group, with its _DistributedBackendOptions. Raises AgentError, JobError."""
    members = list(options.global_ranks_in_group) or list(range(options.group_size))
    if "group" not in _world:
        group = WorldGroup(rendezvous.join(options.store, options.group_rank, options.group_size), options)
        _world["group"] = group, members
        return group
    world, known = _world["group"]
    strangers = [rank for rank in members if rank not in known]
    if strangers:
        raise AgentError(f"ranks {strangers} are not in the job: it has {known}, those of the first gradlane group")
    ranks = [known.index(rank) for rank in members]
    return ProcessGroup(world.connection, ranks, world.connection.group(ranks, options.group_id), options)


def default_session() -> Session:
    """The session of the job that `init_process_group("gradlane")` has joined. Raises AgentError without one."""
    if "group" not in _world:
        raise AgentError('there is no job yet: call torch.distributed.init_process_group("gradlane") before')
    return _world["group"][0].session
