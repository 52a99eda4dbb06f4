# SPDX-License-Identifier: Apache-2.0
"""Synchronisation of parameters that are numpy arrays."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradlane.client.communicator import Communicator
from gradlane.client.connection import Group
from gradlane.client.handle import Operation
from gradlane.errors import AgentError, PeerLost
from gradlane.sync.block import Array, Block
from gradlane.sync.scheme import Exchange, Scheme
from gradlane.sync.schemes import scheme_of
from gradlane.sync.worker import Worker


@dataclass(frozen=True)
class _Due:
    """An exchange in flight. `sent`: the values, if the arrays change meanwhile; `step`: before which it is over."""

    block: Block
    handle: Operation
    sent: Array | None
    step: int


class Synchroniser:
    """Keeps the parameters of a job's processes together, by the scheme of its `[sync]`.

    with gradlane.Communicator("job.toml") as comm:
        synchroniser = gradlane.sync.Synchroniser(comm, weights)
        for batch in batches:
            update(weights, batch)  # a local step, in place
            synchroniser.step()
    """

    def __init__(
        self,
        communicator: Communicator,
        arrays: Sequence[Array],
        scheme: Scheme | str | None = None,
        name: str = "sync",
    ) -> None:
        """`arrays`: of floats, the same shapes at all processes, which begin with rank 0's values. `scheme`: in place
        of the job file's. `name`: another one for each model of the job. Raises ValueError, JobError, AgentError."""
        for array in arrays:
            if array.dtype.kind != "f" or not array.flags.writeable:
                raise ValueError(f"an array of {array.dtype} can't be averaged in place: writable floats can")
            communicator.broadcast(array)
        self._arrays = list(arrays)
        self._worker = Worker(communicator.connection, scheme_of(communicator.connection.job, scheme), name)
        self._parts: dict[Block, list[Array]] = {}
        self._due: list[_Due] = []
        self._closed = False
        for dtype in ("float32", "float64"):
            members = [array for array in arrays if array.size and _travels_as(array) == dtype]
            for pieces in _cut_evenly(members, self.scheme.pieces):
                block = self._worker.block(sum(piece.size for piece in pieces), dtype)
                self._parts[block] = pieces
        for block in self._parts:
            self._fill(block)
            block.begin()

    @property
    def scheme(self) -> Scheme:
        """What it follows."""
        return self._worker.scheme

    def step(self) -> None:
        """After a local step: exchanges what the scheme says, and leaves the result in the arrays; with a scheme that
        works behind the computation, in a later step, or when `settle` is called.

        Raises ValueError if the workers follow different schemes; AgentError.
        """
        self._check_open()
        self._exchange(self._worker.next())
        self._settle(self._worker.step)

    def _exchange(self, exchanges: Sequence[Exchange]) -> None:
        self._settle(self._worker.step)
        for block, start in exchanges:
            self._fill(block)
            handle = start()
            if (meanwhile := block.meanwhile()) is not None:
                block.values[:] = meanwhile
                self._take(block)
            sent = self._flat(block) if self.scheme.behind else None
            self._due.append(_Due(block, handle, sent, self._worker.step + self.scheme.behind))

    def settle(self) -> None:
        """Waits for the exchanges in flight, and brings their results to the arrays. Raises AgentError."""
        self._settle(self._worker.step + self.scheme.behind)

    def _settle(self, step: int) -> None:
        """Those whose results are mixed in before that step."""
        while self._due and self._due[0].step <= step:
            due = self._due[0]
            if self._came(due):
                due.block.finish(None if due.sent is None else self._flat(due.block) - due.sent)
                self._take(due.block)

    def _discard(self) -> None:
        """Waits for the exchanges in flight, and leaves the arrays as they are."""
        while self._due:
            self._came(self._due[0])

    def _came(self, due: _Due) -> bool:
        """Waits for the oldest exchange in flight, which then is not; whether its result is there. Without one the
        arrays keep what this worker has."""
        try:
            due.handle.wait()  # which other exceptions may end, as of Ctrl-C: it stays in flight
        except AgentError as error:
            del self._due[0]
            if isinstance(error, PeerLost):
                return False
            raise
        del self._due[0]
        return True

    def average(self) -> None:
        """Gives all processes the exact mean of their parameters (with Ringmaster the server's): for one checkpoint, an
        evaluation, or the end. All call it. Raises AgentError."""
        self._check_open()
        self._pause(self.settle)
        self._worker.together(self._average)
        for block in self._parts:
            self._take(block)

    def _average(self, group: Group) -> None:
        for block in self._parts:
            self._fill(block)
        for block, handle in [(block, block.average(group)) for block in self._parts]:
            handle.wait()
            block.averaged(group)

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint needs beside the arrays: the step, and arrays of the scheme's own. It settles, so save the
        arrays after it. Raises AgentError."""
        self._check_open()
        self.settle()
        return self._worker.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Puts back what `state_dict` gave, once the arrays have what was saved with it; what is in flight is given up.
        Raises ValueError, and changes nothing, if it is of another model or scheme; AgentError."""
        self._check_open()
        self._worker.check(state)
        self._pause(self._discard)
        for block in self._parts:
            self._fill(block)
        self._worker.load_state_dict(state)

    def close(self) -> None:
        """The last call. It may wait for that of others, whom this process serves until then. Raises AgentError."""
        self._pause(self.settle)
        self._worker.close()
        self._closed = True

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError("this synchroniser was closed: call it before close(), or make another one")

    def _pause(self, end: Callable[[], None]) -> None:
        """Does what others expect of this worker before it waits for all, or ends. `end`: of what is in flight."""
        end()
        while exchanges := self._worker.pause():
            self._exchange(exchanges)
            end()

    def _fill(self, block: Block) -> None:
        arrays = self._parts[block]
        for array, part in zip(arrays, _cut(block.values, arrays), strict=True):
            part[:] = array

    def _flat(self, block: Block) -> Array:
        return np.concatenate([array.ravel() for array in self._parts[block]], dtype=block.dtype)

    def _take(self, block: Block) -> None:
        arrays = self._parts[block]
        for array, part in zip(arrays, _cut(block.values, arrays), strict=True):
            array[...] = part
            if array.dtype != part.dtype:
                part[...] = array
        block.taken()


def _travels_as(array: Array) -> str:
    return "float64" if array.dtype == np.float64 else "float32"


def _cut_evenly(arrays: Sequence[Array], pieces: int) -> list[list[Array]]:
    """Views of the arrays in so many groups of the same size; an array whose memory is not in one piece stays whole."""
    most = max(1, -(-sum(array.size for array in arrays) // pieces))
    groups: list[list[Array]] = []
    room = 0
    for array in arrays:
        rest = array.reshape(-1) if array.flags.c_contiguous else array
        while rest.size:
            if room <= 0:
                groups.append([])
                room = most
            taken, rest = (rest[:room], rest[room:]) if rest.flags.c_contiguous else (rest, rest[:0])
            groups[-1].append(taken)
            room -= taken.size
    return groups


def _cut(values: Array, arrays: Sequence[Array]) -> list[Array]:
    ends = np.cumsum([array.size for array in arrays])
    return [values[end - array.size : end].reshape(array.shape) for array, end in zip(arrays, ends, strict=True)]
