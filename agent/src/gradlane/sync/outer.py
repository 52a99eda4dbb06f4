# SPDX-License-Identifier: Apache-2.0
"""Schemes in which all workers average what they have changed, as the gradient of an outer optimizer's step."""

from abc import abstractmethod
from collections.abc import Sequence
from functools import partial

import numpy as np

from gradlane.client.connection import Connection, Group
from gradlane.client.gradient import Gradient, Layers, convert
from gradlane.client.handle import Operation
from gradlane.job import elements
from gradlane.sync.block import OWED, Array, Block, State
from gradlane.sync.scheme import Exchange, Plan, Scheme


class Outer(Scheme):
    """What is exchanged is a gradient of several steps: the job's tolerance of loss holds for it, and error feedback
    makes up for what was lost."""

    @abstractmethod
    def exchanged(self, step: int, sizes: Sequence[int]) -> list[int]:
        """The numbers of the blocks, of so many values each, of which an outer step begins after the local step number
        `step`, from 0."""

    @abstractmethod
    def state(self, values: Array) -> State:
        """What is kept beside an array of parameters, which begins with `values`; saved in checkpoints."""

    @abstractmethod
    def change(self, values: Array, state: State) -> Array:
        """What is averaged, in a new array."""

    @abstractmethod
    def mix(self, values: Array, average: Array, state: State, step: int) -> None:
        """The outer step: turns a worker's values into those that it goes on with, in place. `step`: that after which
        the changes were sent."""

    def meanwhile(self, state: State) -> Array | None:
        """What a worker goes on with while its change is in flight; None: with what it has."""
        return None

    def plan(self, connection: Connection, name: str) -> "Rounds":
        """See Scheme."""
        return Rounds(self, connection)


class Rounds(Plan):
    """Several local steps, then one of all."""

    def __init__(self, scheme: Outer, connection: Connection) -> None:
        super().__init__(connection)
        self._scheme = scheme

    def block(self, name: str, count: int, dtype: str, layers: Layers, plain: bool) -> Block:
        """See Plan."""
        if plain:
            return super().block(name, count, dtype, layers, plain)
        return Changes(self._connection, self._scheme, name, count, dtype, layers)

    def next(self, step: int, blocks: Sequence[Block]) -> list[Exchange]:
        """See Plan."""
        chosen = [blocks[k] for k in self._scheme.exchanged(step, [block.values.size for block in blocks])]
        everyone = self.everyone()
        self.ranks = everyone.ranks if chosen else ()
        return [(block, partial(_start, block, step, everyone)) for block in chosen]


def _start(block: Block, step: int, everyone: Group) -> Operation:
    return block.start(step) if isinstance(block, Changes) else block.average(everyone)


class Changes(Block):
    """Parameters of which the changes travel, under a gradient's name."""

    def __init__(
        self, connection: Connection, scheme: Outer, name: str, count: int, dtype: str, layers: Layers
    ) -> None:
        super().__init__(connection, connection.empty(count, dtype))
        self._scheme = scheme
        self._step = 0
        self._gradient = Gradient(connection, name, (count,), np.dtype(dtype), "mean", layers)

    def begin(self) -> None:
        """See Block."""
        self.state = self._scheme.state(self.values)

    def start(self, step: int) -> Operation:
        """Starts the average of all workers' changes after that step. Raises AgentError."""
        self._step = step
        self._gradient.take_in(self._scheme.change(self.values, self.state))
        return self._gradient.tensor.submit()

    def finish(self, since: Array | None = None) -> None:
        """See Block."""
        super().finish(since)
        average = self._gradient.give_out(np.empty_like(self.values))
        self._scheme.mix(self.values, average, self.state, self._step)

    def meanwhile(self) -> Array | None:
        """See Block."""
        return self._scheme.meanwhile(self.state)

    def saved(self) -> State:
        """With what the network owes to later changes of this host."""
        state = super().saved()
        if self._connection.process == 0:
            own, wire = self._types()
            state[OWED] = _converted(self._gradient.tensor.residual(), wire, own)
        return state

    def restore(self, state: State) -> None:
        """See Block."""
        super().restore(state)
        if self._connection.process == 0:
            own, wire = self._types()
            owed = state.get(OWED, np.zeros_like(self.values))
            self._gradient.tensor.load_residual(_converted(owed, own, wire))

    def close(self) -> None:
        """See Block."""
        self._gradient.tensor.close()

    def _types(self) -> tuple[str, str]:
        return self.dtype, self._gradient.tensor.dtype


def _converted(values: Array, source: str, target: str) -> Array:
    """The values as another of the wire's types, or as they are; float64 travels as nothing else."""
    if source == target:
        return values
    result = np.empty(values.shape, elements.NUMPY[target])
    convert(result, elements.CODES[target], np.ascontiguousarray(values), elements.CODES[source])
    return result
