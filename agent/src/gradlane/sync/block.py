# SPDX-License-Identifier: Apache-2.0
"""Parameters that travel together, in shared memory."""

from typing import Any, ClassVar

import numpy.typing as npt

from gradlane.client.connection import Connection, Group
from gradlane.client.handle import Handle

Array = npt.NDArray[Any]
State = dict[str, Array]

OWED = "owed"  # in a saved state: what the network owes to later changes of one host


class Block:
    """Made by `Worker.block`. `values` is flat: fill it, start an exchange of it, wait for the handle, `finish`, and
    take it out.

    It belongs to the agent from the start until the handle is done. This one is averaged exactly, and keeps nothing;
    schemes that do more have blocks of their own.
    """

    needs: ClassVar[frozenset[str]] = frozenset()  # what a saved state must have beside `state`

    def __init__(self, connection: Connection, values: Array, plain: bool = False) -> None:
        """`values`: in shared memory. `plain`: they are no parameters, but something beside them."""
        self.dtype = values.dtype.name
        self.plain = plain
        self.values = values
        self.state: State = {}  # what the scheme keeps beside the values
        self._connection = connection

    def begin(self) -> None:
        """The values are those that the training begins with."""

    def average(self, group: Group) -> Handle:
        """Makes the values the group's exact mean, whatever the scheme. Raises AgentError."""
        return self._connection.collective("all_reduce", self.values, self.values, "mean", group=group)

    def averaged(self, group: Group) -> None:
        """After the handle of `average` is done: the worker goes on with the values. Raises AgentError."""

    def finish(self, since: Array | None = None) -> None:
        """After the exchange's handle is done: makes the values those that the worker goes on with. `since`: by how
        much its own have changed since it was started."""
        if since is not None:
            self.values += since

    def taken(self) -> None:
        """The worker's parameters are the values, which were rounded to what their types can hold."""

    def meanwhile(self) -> Array | None:
        """What the worker goes on with while the exchange is in flight; None: with what it has."""
        return None

    def saved(self) -> State:
        """Copies of all that a checkpoint needs beside the values."""
        return {name: array.copy() for name, array in self.state.items()}

    def check(self, state: State) -> None:
        """Raises ValueError if `restore` can't put that back."""
        if missing := sorted((self.needs | set(self.state)) - set(state)):
            raise ValueError(f"this state has {sorted(state)} of {self.dtype}: {', '.join(missing)} must be in it, too")

    def restore(self, state: State) -> None:
        """Puts back what `saved` gave, here or at another worker, whose may lack what that one does not keep. The
        values are those of the parameters."""
        self.state = {name: array.copy() for name, array in state.items() if name in self.state}

    def close(self) -> None:
        """Gives back what it has at the agent beside the values; nothing may be in flight."""
