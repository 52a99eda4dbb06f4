# SPDX-License-Identifier: Apache-2.0
"""R-FAST (arXiv 2307.11617): gradient tracking by running sums, so that messages may be lost and nobody waits."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gradlane.client.connection import Connection
from gradlane.client.handle import Operation
from gradlane.sync.asynchronous import Asynchronous, Over, OwnBlock
from gradlane.sync.block import Array, State
from gradlane.sync.edge import Inbox, Message, Outbox
from gradlane.sync.schedule import exponential


@dataclass(frozen=True)
class RFast(Asynchronous):
    """A worker tracks the mean of what all workers' latest steps have changed, and takes that off its neighbours' mean.

    With SGD this is the paper's algorithm on an exponential graph of degree d, with equal weights for pull and push,
    and d + 1 times its rate, so that a step is the mean of the workers' steps.

    Volume: in each step a worker sends its parameters and a running sum of changes to each of about log2(n) neighbours,
    as far as those before have been sent; none is sent again. It waits for nothing.
    """

    def block(self, connection: Connection, tag: int, count: int, dtype: str, plain: bool) -> OwnBlock:
        """See Asynchronous."""
        return Tracked(connection, tag, count, dtype, plain)


class Tracker:
    """What a worker does with its change, and with what it has heard. All arrays are of the same shape.

    A running sum only grows by what is given away, and its receiver knows how much of it was taken before. So whatever
    is lost is in the next message, and the workers' trackers and what is under way add up to their latest changes.
    """

    def __init__(self, mine: Array, sums: Sequence[Array], heard: Sequence[Array], given: Sequence[Array]) -> None:
        """`mine`: the parameters that others may hear; `sums`: what was given to each of them in all, since the
        beginning. `heard`, `given`: the latest of the same of others, by element; they may change at any time."""
        self._mine, self._sums, self._heard, self._given = mine, sums, heard, given
        self.start = np.zeros_like(mine)
        self.change = np.zeros_like(mine)
        self.tracker = np.zeros_like(mine)
        self._taken = [np.zeros_like(mine) for _ in given]

    def begin(self, values: Array) -> None:
        """All workers' parameters, before anything was heard."""
        self.start[:] = values
        for array in (self._mine, *self._heard):
            array[:] = values

    def step(self, values: Array) -> None:
        """After a local step, which began with what this has left in `values`."""
        change = self.start - values
        half = self.tracker + change - self.change
        self.change = change
        for given, taken in zip(self._given, self._taken, strict=True):
            now = given.copy()
            half += now - taken
            taken[:] = now
        np.subtract(self.start, half, out=self._mine)
        share = half / (len(self._sums) + 1)
        for total in self._sums:
            more = total + share
            half -= more - total  # what rounding has made of the share
            total[:] = more
        self.tracker = half
        self.mix(values)

    def mix(self, values: Array) -> None:
        """`values` become the mean of the own parameters and of those that were heard."""
        np.copyto(values, self._mine)
        for heard in self._heard:
            values += heard
        values /= len(self._heard) + 1
        self.start[:] = values


class Tracked(OwnBlock):
    """Messages of parameters and of sums are sent from where they are computed, and received to where they are read."""

    needs = frozenset({"start", "change"})

    def __init__(self, connection: Connection, tag: int, count: int, dtype: str, plain: bool) -> None:
        super().__init__(connection, connection.empty(count, dtype), plain)
        graph = exponential(len(connection.job.workers))
        to = graph[connection.rank]
        sources = [place for place, out in enumerate(graph) if connection.rank in out]

        def messages(number: int) -> list[Message]:
            return [Message(connection, count, dtype) for _ in range(number)]

        mine, heard = Message(connection, count, dtype), messages(len(sources))
        sums, given = ([], []) if plain else (messages(len(to)), messages(len(sources)))
        self._sent = [mine, *sums]
        self._tracker = Tracker(
            mine.values, [m.values for m in sums], [m.values for m in heard], [m.values for m in given]
        )
        self._out = [Outbox(connection, mine, other, tag, 1.0) for other in to]
        self._out += [Outbox(connection, m, other, tag ^ 1, 1.0) for m, other in zip(sums, to, strict=False)]
        self._in = [Inbox(connection, m, other, tag, None, 1.0) for m, other in zip(heard, sources, strict=True)]
        self._in += [Inbox(connection, m, other, tag ^ 1, None, 1.0) for m, other in zip(given, sources, strict=False)]
        self._begun = False

    def begin(self) -> None:
        """See Block."""
        self._tracker.begin(self.values)

    def start(self) -> Operation:
        """See OwnBlock."""
        self._begun = True
        if not self._out:
            return Over()
        if self.plain:
            self._sent[0].values[:] = self.values
            self._tracker.mix(self.values)
        else:
            self._tracker.step(self.values)
        for out in self._out:
            out.offer()
        return Over()

    def saved(self) -> State:
        """See Block."""
        return {"start": self._tracker.start.copy(), "change": self._tracker.change.copy()}

    def check(self, state: State) -> None:
        """See Block."""
        if self._begun:
            raise ValueError("R-FAST takes a checkpoint before its first step only: what is under way is not in it")
        super().check(state)

    def restore(self, state: State) -> None:
        """See Block. Trackers begin with the latest changes, of which they are the sum."""
        self._tracker.begin(state["start"])
        self._tracker.change = state["change"].copy()
        self._tracker.tracker = state["change"].copy()

    def close(self) -> None:
        """See Block: when all who send to this worker have closed."""
        for out in self._out:
            out.drain()
        for message in self._sent:
            message.end()
        for out in self._out:
            out.close()
        for source in self._in:
            source.end.wait()
