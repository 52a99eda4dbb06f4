# SPDX-License-Identifier: Apache-2.0
"""AD-PSGD (arXiv 1710.06952): a worker averages with a neighbour drawn by chance whenever it is ready."""

import threading
from dataclasses import dataclass

import numpy as np

from gradlane.client.connection import Connection
from gradlane.client.handle import Operation
from gradlane.sync.asynchronous import Asynchronous, Over, OwnBlock
from gradlane.sync.block import Array, State
from gradlane.sync.edge import Answers, Message, Question
from gradlane.sync.schedule import bipartite


@dataclass(frozen=True)
class AdPsgd(Asynchronous):
    """x becomes (x + y) / 2 - rate * gradient(x), where y is the partner's x: the gradient does not wait for y.

    Workers at even places ask, those at odd ones answer, so nobody ever waits for one that waits. `seed`: of whom a
    worker asks.

    Volume: who asks sends and receives its parameters once in each step, behind the computation of the next one; who
    answers sends and receives them as often as it is asked. Nobody waits for what another one computes.
    """

    seed: int = 0

    @property
    def behind(self) -> int:
        """The next gradient is computed meanwhile."""
        return 1

    def block(self, connection: Connection, tag: int, count: int, dtype: str, plain: bool) -> OwnBlock:
        """See Asynchronous."""
        neighbours = bipartite(len(connection.job.workers))[connection.rank]
        if connection.rank % 2:
            return Answering(connection, neighbours, tag, count, dtype, plain)
        return Asking(connection, neighbours, tag, count, dtype, plain, self.seed)


class Asking(OwnBlock):
    """Of a worker that asks. With one worker there is nobody to be asked."""

    def __init__(
        self, connection: Connection, others: tuple[int, ...], tag: int, count: int, dtype: str, plain: bool, seed: int
    ) -> None:
        self._message = Message(connection, count, dtype)
        super().__init__(connection, self._message.values, plain)
        self._questions = [Question(connection, self._message, other, tag) for other in others]
        self._random = np.random.default_rng([seed, connection.rank])

    def start(self) -> Operation:
        """See OwnBlock: the answer is the average."""
        if not self._questions:
            return Over()
        return self._questions[self._random.integers(len(self._questions))].ask()

    def close(self) -> None:
        """See Block."""
        self._message.end()
        for question in self._questions:
            question.close()


class Partner:
    """Parameters that others may average with at any time, while their worker makes steps of its own. Thread-safe."""

    def __init__(self, values: Array) -> None:
        self.own = values.copy()
        self.base = values.copy()  # what the worker has gone on with
        self._lock = threading.Lock()

    def set(self, own: Array, base: Array) -> None:
        """The parameters, and what the worker goes on with."""
        with self._lock:
            self.own[:], self.base[:] = own, base

    def step(self, values: Array) -> None:
        """Adds what the worker has changed; `values` become what it goes on with."""
        with self._lock:
            self.own += values - self.base
            self.base[:] = self.own
            values[:] = self.own

    def average(self, other: Array) -> None:
        """Both become their average."""
        with self._lock:
            self.own += other
            self.own *= 0.5
            other[:] = self.own

    def saved(self) -> State:
        """A copy."""
        with self._lock:
            return {"own": self.own.copy(), "base": self.base.copy()}


class Answering(OwnBlock):
    """Of a worker that is asked, in the connection's completion thread."""

    def __init__(
        self, connection: Connection, others: tuple[int, ...], tag: int, count: int, dtype: str, plain: bool
    ) -> None:
        super().__init__(connection, connection.empty(count, dtype), plain)
        self.values[:] = 0
        self._partner = Partner(self.values)

        def answer(message: Message) -> None:
            self._partner.average(message.values)

        self._answers = [Answers(connection, Message(connection, count, dtype), other, tag, answer) for other in others]

    def begin(self) -> None:
        """See Block."""
        self._partner.set(self.values, self.values)

    def start(self) -> Operation:
        """See OwnBlock."""
        self._partner.step(self.values)
        return Over()

    def catch_up(self) -> None:
        """See OwnBlock."""
        self._partner.step(self.values)

    def saved(self) -> State:
        """See Block."""
        return self._partner.saved()

    def restore(self, state: State) -> None:
        """See Block."""
        self._partner.set(state.get("own", self.values), state.get("base", self.values))

    def close(self) -> None:
        """See Block: when all who may ask have closed."""
        for answers in self._answers:
            answers.end.wait()
