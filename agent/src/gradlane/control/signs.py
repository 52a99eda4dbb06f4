# SPDX-License-Identifier: Apache-2.0
"""When each rank of a job has given its last sign of life, as far as this one knows.

Of its neighbours it hears that itself. Their heartbeats say how long ago each of the others was heard, so it is known
of all ranks within some heartbeats, and to about a heartbeat from when on nothing came any more: how long a sign of
life was under way counts as part of its age (gossip-style failure detection, van Renesse et al., 1998). What others
say of a neighbour counts for nothing.
"""

import base64
import binascii
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from gradlane.control.overlay import hops

HEARTBEAT_SECONDS = 0.5
# TCP sends again 0.2, 0.6, 1.4, 3 and 6.2 s after a loss, so a connection survives an outage of 5 s.
DEAD_SECONDS = 7.5
_UNIT = 1 / 16  # s, of what heartbeats say
_LONG_AGO = 255  # units, or more
# By how many units later it is: what becomes of ages (bytes.translate).
_LATER = [bytes(min(_LONG_AGO, age + passed) for age in range(256)) for passed in range(256)]


@dataclass(frozen=True)
class Silence:
    """Of some ranks, those that have been silent for too long; all of whom nothing has come for long; and also those of
    whom it can't be said yet."""

    silent: list[int]
    quiet: list[int]
    doubtful: list[int]


class Signs:
    """At one rank of `size`. `clock`: s, monotonic; `merge` is called before each heartbeat. `silence` gives the
    seconds since other signs of life came from a rank, as of the data path."""

    def __init__(self, rank: int, size: int, clock: Callable[[], float]) -> None:
        self.silence: Callable[[int], float] = never_heard
        self._rank, self._clock = rank, clock
        self._relayed = (4 + max(0, hops(size) - 1)) * HEARTBEAT_SECONDS
        self._heard = [clock()] * size
        self._said: dict[int, tuple[float, bytes]] = {}  # by neighbour: when, and the ages that it said
        self._direct: set[int] = set()  # whose own heartbeats come

    def hear(self, rank: int, heartbeat: bool = False) -> None:
        """A rank has given a sign of life. `heartbeat`: on its connection, from where others come now, too."""
        if self._heard[rank] != -math.inf:
            self._heard[rank] = self._clock()
        if heartbeat:
            self._direct.add(rank)

    def begin(self, ranks: Iterable[int]) -> None:
        """Those are to be heard from now on."""
        for rank in ranks:
            self.hear(rank)

    def lose(self, rank: int) -> None:
        """Its connection is broken: nothing counts as a sign of life any more."""
        self._heard[rank] = -math.inf
        self._direct.add(rank)

    def excuse(self, seconds: float) -> None:
        """This agent did not run for so long, and could not hear the others."""
        now = self._clock()
        self._heard = [min(now, heard + seconds) for heard in self._heard]
        self._said = {by: (min(now, at + seconds), ages) for by, (at, ages) in self._said.items()}

    def age(self, rank: int) -> float:
        """Seconds since the last sign of life; infinite if its connection is broken."""
        age = self._clock() - self._heard[rank]
        return age if age < DEAD_SECONDS / 2 or age == math.inf else min(age, self.silence(rank))

    def usual(self, rank: int) -> float:
        """Seconds for which nothing may be known of a rank that lives."""
        return 3 * HEARTBEAT_SECONDS if rank in self._direct else self._relayed

    def silence_of(self, ranks: Iterable[int]) -> Silence:
        """Who of them is silent."""
        ages = {rank: self.age(rank) for rank in ranks}
        return Silence(
            [rank for rank, age in ages.items() if age > DEAD_SECONDS],
            [rank for rank, age in ages.items() if age > DEAD_SECONDS / 2],
            [rank for rank, age in ages.items() if age > min(self.usual(rank), DEAD_SECONDS / 2)],
        )

    def merge(self) -> None:
        """Takes in what neighbours have said of the others since the last time."""
        now, heard = self._clock(), self._heard
        said = [ages.translate(_LATER[min(_LONG_AGO, int((now - at) / _UNIT + 1))]) for at, ages in self._said.values()]
        for rank, age in enumerate(map(min, *said) if len(said) > 1 else said[0] if said else b""):
            if age < _LONG_AGO and now - age * _UNIT > heard[rank] and rank not in self._direct:
                heard[rank] = now - age * _UNIT

    def packed(self) -> str:
        """What a heartbeat says of all ranks."""
        self._heard[self._rank] = self._clock()
        ages = map(self.age, range(len(self._heard)))
        return base64.b64encode(bytes(int(min(_LONG_AGO, age / _UNIT + 1)) for age in ages)).decode()

    def take(self, by: int, packed: object) -> None:
        """What a neighbour's heartbeat says; "": nothing. Raises ValueError if it makes no sense."""
        if packed == "":
            return
        try:
            ages = base64.b64decode(packed, validate=True) if isinstance(packed, str) else b""
        except binascii.Error:
            ages = b""
        if len(ages) != len(self._heard):
            raise ValueError(f"its heartbeat is of {len(ages)} ranks: {packed!r:.60}")
        self._said[by] = self._clock(), ages

    def drop(self, rank: int) -> None:
        """It is dead."""
        self._said.pop(rank, None)


def never_heard(_: int) -> float:
    """Where there is no data path."""
    return math.inf
