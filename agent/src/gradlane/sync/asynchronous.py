# SPDX-License-Identifier: Apache-2.0
"""Schemes in which no worker waits for what another one computes: each step, each block does its own exchange."""

import zlib
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from gradlane.client.connection import Connection, Group
from gradlane.client.gradient import Layers
from gradlane.client.handle import Handle, Operation
from gradlane.sync.block import Block
from gradlane.sync.scheme import Exchange, Plan, Scheme


class Asynchronous(Scheme):
    """Workers take as many steps as they can. All parameters that travel as one type are one block, and one message."""

    lockstep = False
    whole = True

    @abstractmethod
    def block(self, connection: Connection, tag: int, count: int, dtype: str, plain: bool) -> "OwnBlock":
        """Memory for `count` values. `tag`: of its edges alone. `plain`: see Block. Raises AgentError."""

    def plan(self, connection: Connection, name: str) -> "Each":
        """See Scheme."""
        if connection.processes > 1:
            raise ValueError(f"{type(self).__name__} needs jobs with one process on each host (worker.processes)")
        return Each(self, connection)


class Each(Plan):
    """What an `Asynchronous` does at one worker."""

    def __init__(self, scheme: Asynchronous, connection: Connection) -> None:
        super().__init__(connection)
        self._scheme = scheme
        self._own: list[OwnBlock] = []

    def block(self, name: str, count: int, dtype: str, layers: Layers, plain: bool) -> "OwnBlock":
        """See Plan."""
        made = self._scheme.block(self._connection, zlib.crc32(name.encode()), count, dtype, plain)
        self._own.append(made)
        return made

    def next(self, step: int, blocks: Sequence[Block]) -> list[Exchange]:
        """See Plan."""
        return [(block, block.start) for block in self._own]


class OwnBlock(Block):
    """Of which a worker starts exchanges by itself. It serves others until they have closed theirs."""

    @abstractmethod
    def start(self) -> Operation:
        """Takes in what a local step has made of the values. What they are when that is done, `finish` says. Raises
        AgentError."""

    def average(self, group: Group) -> Handle:
        """See Block: of what all have when none takes steps any more."""
        self._connection.collective("barrier", None, None, group=group).wait()
        self.catch_up()
        return super().average(group)

    def averaged(self, group: Group) -> None:
        """See Block."""
        self.begin()
        self._connection.collective("barrier", None, None, group=group).wait()  # then others may ask again

    def catch_up(self) -> None:
        """Brings to the values what others have made of them since the last step; nothing is in flight."""


class Over:
    """An operation that is over as soon as it begins."""

    def wait(self, timeout: float | None = None) -> None:
        """See Operation."""

    def done(self) -> bool:
        """See Operation."""
        return True

    def add_done_callback(self, callback: Any) -> None:
        """See Operation."""
        callback(None)
