# SPDX-License-Identifier: Apache-2.0
"""Parameters that travel together, in shared memory."""

import numpy as np

from gradlane.client.connection import Connection, Group
from gradlane.client.gradient import Gradient, Layers, convert
from gradlane.client.handle import Handle
from gradlane.job import elements
from gradlane.sync.scheme import Scheme, State

OWED = "owed"  # in a saved state: what was lost of earlier changes


class Block:
    """Made by `Worker.block`. `values` is flat: fill it, `start`, wait for the handle, `finish`, and take it out.

    It belongs to the agent from `start` until the handle is done.
    """

    def __init__(
        self, connection: Connection, scheme: Scheme | None, name: str | None, count: int, dtype: str, layers: Layers
    ) -> None:
        """`scheme` None: the average is what the worker goes on with. `name`: of the gradient as which changes travel;
        None: the values themselves travel. Raises AgentError."""
        self.dtype = dtype
        self.plain = scheme is None
        self.values = connection.empty(count, dtype)
        self.state: State = {}
        self._connection = connection
        self._scheme = scheme
        self._gradient = None
        if name is not None:
            self._gradient = Gradient(connection, name, (count,), np.dtype(dtype), "mean", layers)

    def begin(self) -> None:
        """The values are those that the training begins with."""
        if self._scheme is not None:
            self.state = self._scheme.state(self.values)

    def start(self, group: Group) -> Handle:
        """Starts what a step exchanges. Raises AgentError."""
        if self._gradient is None:
            return self.average(group)
        assert self._scheme is not None
        self._gradient.take_in(self._scheme.change(self.values, self.state))
        return self._gradient.tensor.submit()

    def finish(self) -> None:
        """After the handle of `start` is done: mixes the average in."""
        average = self.values
        if self._gradient is not None:
            average = self._gradient.give_out(np.empty_like(self.values))
        if self._scheme is not None:
            self._scheme.mix(self.values, average, self.state)

    def average(self, group: Group) -> Handle:
        """Makes the values the group's exact mean, whatever the scheme. Raises AgentError."""
        return self._connection.collective("all_reduce", self.values, self.values, "mean", group=group)

    def saved(self) -> State:
        """Copies of the scheme's state, and of what the network owes to later changes of this host."""
        state = {name: array.copy() for name, array in self.state.items()}
        if self._gradient is not None and self._connection.process == 0:
            state[OWED] = np.empty_like(self.values)
            own, wire = self._types(self._gradient)
            convert(state[OWED], own, self._gradient.tensor.residual(), wire)
        return state

    def restore(self, state: State) -> None:
        """Puts back what `saved` gave."""
        self.state = {name: array.copy() for name, array in state.items() if name != OWED}
        if self._gradient is not None and OWED in state:
            residual = np.empty_like(self._gradient.tensor.result)
            own, wire = self._types(self._gradient)
            convert(residual, wire, state[OWED], own)
            self._gradient.tensor.load_residual(residual)

    def close(self) -> None:
        """Gives the gradient's memory back; nothing may be in flight."""
        if self._gradient is not None:
            self._gradient.tensor.close()

    def _types(self, gradient: Gradient) -> tuple[int, int]:
        return elements.CODES[self.dtype], elements.CODES[gradient.tensor.dtype]
