# SPDX-License-Identifier: Apache-2.0
"""A worker's part in a scheme: at which step it is, and with whom it exchanges."""

import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from gradlane.client.connection import Connection, Group
from gradlane.client.gradient import Layers
from gradlane.errors import PeerLost
from gradlane.sync.block import OWED, Block, State
from gradlane.sync.scheme import Exchange, Scheme


class Worker:
    """Not thread-safe. All processes of a job make the same ones with the same blocks, in the same order."""

    def __init__(self, connection: Connection, scheme: Scheme, name: str = "sync") -> None:
        """`name`: another one for each model of a job. Raises ValueError if the scheme can't be followed in this job;
        AgentError."""
        if connection.job.survives and not scheme.survives:
            raise ValueError(f'{scheme} can\'t go on without a worker that is dead, as job.deaths = "survive" wants it')
        self.scheme = scheme
        self.step = 0
        self._connection = connection
        self._name = name
        self._blocks: list[Block] = []
        self._agreed = False
        self._host = [connection.rank, len(connection.job.workers)]
        self._living = tuple(range(len(connection.job.workers)))  # as all that live know since the last meeting
        self._meetings = 0
        self._plan = scheme.plan(connection, name)

    def block(self, count: int, dtype: str, layers: Layers = 0, plain: bool = False) -> Block:
        """For `count` values of type `dtype`, "float32" or "float64".

        `layers`: as in Communicator.all_reduce. `plain`: they are no parameters, but go along with them. Raises
        AgentError.
        """
        name = f"{self._name}.{len(self._blocks)}.{count}.{dtype}"
        block = self._plan.block(name, count, dtype, layers, plain)
        self._blocks.append(block)
        return block

    @property
    def group(self) -> tuple[int, ...]:
        """The ranks that average with one another in the latest exchange, this one among them; empty: there was none
        after the latest step."""
        return self._plan.ranks

    def next(self) -> list[Exchange]:
        """Counts a local step. Returns which blocks are exchanged then, in the order in which they were made: fill each
        and start it, wait for the handle, and `finish` it.

        Raises ValueError if the workers follow different schemes, or are at different steps; AgentError.
        """
        if not self._agreed:
            self._agree()
        exchanges = self._plan.next(self.step, self._blocks)
        self.step += 1
        return exchanges

    def pause(self) -> list[Exchange]:
        """Between steps: exchanges that have been decided already, again and again until there is none. Then others
        may wait for this worker in vain until it goes on with `next`. Raises AgentError."""
        return self._plan.pause(self._blocks)

    def together(self, attempt: Callable[[Group], None]) -> None:
        """What all processes of the job do with one another. Where ranks may die, it has been done once it went well at
        all that live; they try again without who is dead. Raises AgentError."""
        if not self._connection.job.survives:
            attempt(self._plan.everyone())
            return
        agreed = False
        while not agreed:
            try:
                attempt(self._plan.group(self._living))
                well = True
            except PeerLost:
                well = False
            self._meetings += 1
            agreed, self._living = self._connection.meet(self._name, self._meetings, well)

    def state_dict(self) -> dict[str, Any]:
        """The step, and for each type of values what the scheme keeps beside all blocks of it, one after the other.

        For a checkpoint; of each process its own. Raises AgentError.
        """
        arrays: dict[str, State] = {}
        for dtype in self._dtypes():
            saved = [block.saved() for block in self._of(dtype)]
            arrays[dtype] = {name: np.concatenate([state[name] for state in saved]) for name in saved[0]}
        return {"scheme": repr(self.scheme), "step": self.step, "host": self._host, "arrays": arrays}

    def check(self, state: dict[str, Any]) -> None:
        """Raises ValueError if `load_state_dict` can't put that back."""
        if state["scheme"] != repr(self.scheme):
            raise ValueError(f"this state is of {state['scheme']}, and the scheme is {self.scheme}")
        for dtype in self._dtypes():
            saved = state["arrays"].get(dtype, {})
            count = sum(block.values.size for block in self._of(dtype))
            for name, array in saved.items():
                if array.shape != (count,) or array.dtype != dtype:
                    raise ValueError(
                        f"{name!r} of this state is {array.shape} {array.dtype}: here are {count} values of {dtype}"
                    )
            for block in self._of(dtype):
                block.check(saved)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Puts back what `state_dict` gave, also with other blocks, and at another worker. The blocks' values are those
        of the parameters, and nothing is in flight. Raises ValueError, before anything is changed, if it is of another
        model or scheme."""
        self.check(state)
        for dtype in self._dtypes():
            saved = state["arrays"].get(dtype, {})
            kept = saved if self.is_own(state) else {name: array for name, array in saved.items() if name != OWED}
            start = 0
            for block in self._of(dtype):
                end = start + block.values.size
                block.restore({name: array[start:end] for name, array in kept.items()})
                start = end
        for block in self._blocks:
            if block.plain:
                block.begin()
        self.step = int(state["step"])
        self._agreed = False

    def is_own(self, state: dict[str, Any]) -> bool:
        """Whether this host, of as many, has saved it. What the network owes is a host's own: if all that load one
        state took it over, it would count several times."""
        return list(state.get("host", ())) == self._host

    def close(self) -> None:
        """Gives the memory back; nothing may be in flight, and all that was decided is done. Raises AgentError."""
        self._plan.close(self._blocks)
        self._blocks = []

    def _dtypes(self) -> list[str]:
        return sorted({block.dtype for block in self._blocks if not block.plain})

    def _of(self, dtype: str) -> list[Block]:
        return [block for block in self._blocks if block.dtype == dtype and not block.plain]

    def _agree(self) -> None:
        """Once, and after a state was loaded: workers that differ would wait for one another in vain."""
        sizes = [(block.values.size, block.dtype) for block in self._blocks]
        step = self.step if self.scheme.lockstep else 0
        mine = [zlib.crc32(repr(self.scheme).encode()), zlib.crc32(repr(sizes).encode()), step]
        found: list[tuple[Group, npt.NDArray[np.int64]]] = []

        def gather(group: Group) -> None:
            source = self._connection.empty(len(mine), "int64")
            target = self._connection.empty((len(group.ranks), len(mine)), "int64")
            source[:] = mine
            self._connection.collective("all_gather", source, target, group=group).wait()
            found[:] = [(group, target)]

        self.together(gather)
        ((group, all_of_them),) = found
        for kind, column in zip(("schemes", "models", "steps"), all_of_them.T, strict=True):
            others = [group.ranks[place] for place in np.flatnonzero(column != column[0])]
            if others:
                raise ValueError(
                    f"the workers are not alike: rank {group.ranks[0]} and ranks {others} have different {kind}; rank "
                    f"{self._connection.world_rank} has {self.scheme} at step {self.step}"
                )
        self._agreed = True
