# SPDX-License-Identifier: Apache-2.0
"""What a scheme of synchronisation is, and one worker's part in it."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar

from gradlane.client.connection import Connection, Group
from gradlane.client.gradient import Layers
from gradlane.client.handle import Operation
from gradlane.sync.block import Block
from gradlane.sync.schedule import Places

Exchange = tuple[Block, Callable[[], Operation]]  # what starts once the block's values are filled


class Scheme(ABC):
    """Which workers exchange what, when, and how it is mixed in. All workers of a job have an equal one.

    A worker is a host, by its place among the job's hosts: the processes of one host are always in the same group. A
    scheme is a frozen dataclass of one kind: `Averaging`, `Outer`, `Asynchronous` (files have these names), or its own.
    What changes during the training is in its plan, and in the blocks that this makes.
    """

    lockstep: ClassVar[bool] = True  # all workers take equally many steps
    survives: ClassVar[bool] = False  # it can go on without a worker that is dead
    whole: ClassVar[bool] = False  # all parameters that travel as one type are one block

    @property
    def behind(self) -> int:
        """How many more local steps a worker takes before the result of an exchange is mixed in; 0: none."""
        return 0

    @property
    def pieces(self) -> int:
        """Into how many blocks of about the same size the parameters are cut, at least."""
        return 1

    @abstractmethod
    def plan(self, connection: Connection, name: str) -> "Plan":
        """A worker's part in it. `name`: another one for each model. Raises ValueError for a job that it can't be
        followed in; AgentError."""


class Plan(ABC):
    """One worker's part in a scheme, as long as a training runs. Not thread-safe."""

    # Groups of it are no other part of the program's. Plans have the same one if each worker calls their groups in the
    # same order.
    label: ClassVar[str] = "gradlane.sync"

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._place = connection.rank
        self._size = len(connection.job.workers)
        self.ranks: tuple[int, ...] = ()  # that average with one another in the latest exchange, if there was one

    def block(self, name: str, count: int, dtype: str, layers: Layers, plain: bool) -> Block:
        """Memory for `count` values, see `Worker.block`. `name`: of this one alone in the job. Raises AgentError."""
        return Block(self._connection, self._connection.empty(count, dtype), plain)

    @abstractmethod
    def next(self, step: int, blocks: Sequence[Block]) -> list[Exchange]:
        """What is exchanged after the worker's local step number `step`, from 0. Raises AgentError."""

    def pause(self, blocks: Sequence[Block]) -> list[Exchange]:
        """What others expect of this worker before it takes no step for a while; empty: nothing more. Raises
        AgentError."""
        return []

    def close(self, blocks: Sequence[Block]) -> None:
        """The worker takes no step any more. Raises AgentError."""
        for block in blocks:
            block.close()

    def group(self, places: Places) -> Group:
        """All processes of the hosts at these places. Raises AgentError."""
        processes = self._connection.processes
        ranks = [place * processes + process for place in places for process in range(processes)]
        return self._connection.group(ranks, self.label)

    def everyone(self) -> Group:
        """All processes of the job. Raises AgentError."""
        return self.group(tuple(range(self._size)))
