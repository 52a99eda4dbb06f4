# SPDX-License-Identifier: Apache-2.0
"""Ringmaster ASGD (arXiv 2501.16168): an asynchronous server that takes no change of parameters that are too old."""

import threading
from dataclasses import dataclass

import numpy as np

from gradlane.client.connection import Connection, Group
from gradlane.client.handle import Handle, Operation
from gradlane.sync.asynchronous import Asynchronous, Over, OwnBlock
from gradlane.sync.block import Array, State
from gradlane.sync.edge import Answers, Message, Question


@dataclass(frozen=True)
class Ringmaster(Asynchronous):
    """A worker sends what its local step has changed to the server, in the process of rank 0, and goes on with the
    server's parameters.

    The server applies a change if fewer than `staleness` others were applied since the parameters that it was computed
    from; else it leaves it out. With SGD this is the paper's algorithm, whose best R is the variance of a gradient over
    the squared norm at which the training may end.

    Volume: in each step a worker sends and receives its parameters once, and rank 0 sends and receives them for all. A
    worker waits for that, and for nobody's computation.
    """

    staleness: int = 16

    def __post_init__(self) -> None:
        if self.staleness < 1:
            raise ValueError(f"{self}: staleness is at least 1")

    def block(self, connection: Connection, tag: int, count: int, dtype: str, plain: bool) -> OwnBlock:
        """See Asynchronous."""
        return Served(connection, self.staleness, tag, count, dtype, plain)


class Server:
    """The parameters, and how many changes have been applied to them. Thread-safe."""

    def __init__(self, values: Array, staleness: int, workers: int = 0) -> None:
        """`workers`: with so many, what they send are values of their own, and the parameters become a running mean
        of these."""
        self.values = values.copy()
        self.version = 0
        self.left_out = 0
        self._staleness, self._workers = staleness, workers
        self._lock = threading.Lock()

    def set(self, values: Array) -> None:
        """The parameters are others, to which nothing has been applied."""
        with self._lock:
            self.values[:] = values
            self.version = 0

    def read(self, values: Array) -> int:
        """`values` become the parameters. Returns their version."""
        with self._lock:
            values[:] = self.values
            return self.version

    def take(self, change: Array, version: int) -> int:
        """Applies a change of parameters of that version, if it is not too old; `change` becomes the parameters.
        Returns their version."""
        with self._lock:
            if self._workers:
                self.values += (change - self.values) / self._workers
            elif 0 <= self.version - version < self._staleness:
                self.values -= change
                self.version += 1
            else:
                self.left_out += 1
            change[:] = self.values
            return self.version


class Served(OwnBlock):
    """Of a worker, and of the server in its process."""

    needs = frozenset({"start"})

    def __init__(self, connection: Connection, staleness: int, tag: int, count: int, dtype: str, plain: bool) -> None:
        self._message = Message(connection, count, dtype)
        super().__init__(connection, self._message.values, plain)
        workers = len(connection.job.workers)
        self._start = np.zeros_like(self.values)  # what the worker's step began from
        self._server: Server | None = None
        self._question: Question | None = None
        self._answers: list[Answers] = []
        if connection.rank:
            self._question = Question(connection, self._message, 0, tag)
            return
        server = self._server = Server(self.values, staleness, workers if plain else 0)

        def answer(message: Message) -> None:
            message.number = server.take(message.values, message.number)

        self._answers = [
            Answers(connection, Message(connection, count, dtype), worker, tag, answer) for worker in range(1, workers)
        ]

    def begin(self) -> None:
        """See Block."""
        self._start[:] = self.values
        if self._server is not None:
            self._server.set(self.values)

    def start(self) -> Operation:
        """See OwnBlock."""
        if not self.plain:
            np.subtract(self._start, self.values, out=self.values)
        if self._question is not None:
            return self._question.ask()
        assert self._server is not None
        self._message.number = self._server.take(self.values, self._message.number)
        return Over()

    def taken(self) -> None:
        """See Block: what the parameters' types can't hold is the server's alone, and in no change."""
        self._start[:] = self.values

    def average(self, group: Group) -> Handle:
        """See Block: all get the server's parameters, and the version of them."""
        self._connection.collective("barrier", None, None, group=group).wait()
        array = self._message.array
        if self._server is not None:
            self._message.number = self._server.read(self.values)
        return self._connection.collective("broadcast", array, array, group=group)

    def averaged(self, group: Group) -> None:
        """See Block: the server has them already, and goes on with them."""

    def saved(self) -> State:
        """See Block."""
        state = {"start": self._start.copy()}
        if self._server is not None:
            state["server"] = np.empty_like(self.values)
            self._server.read(state["server"])
        return state

    def restore(self, state: State) -> None:
        """See Block. Versions count from 0 again."""
        self._start[:] = state["start"]
        self._message.number = 0
        if self._server is not None:
            self._server.set(state.get("server", self.values))

    def close(self) -> None:
        """See Block: of the server when all have closed."""
        if self._question is not None:
            self._message.end()
            self._question.close()
        for answers in self._answers:
            answers.end.wait()
