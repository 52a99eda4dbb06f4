# SPDX-License-Identifier: Apache-2.0
"""What all ranks of a job must know of each other: who has left it, and what they wait for.

Each tells the *hub*, the lowest rank that lives, which tells all what is new, with each heartbeat. An operation that is
over within a second or two is told to nobody. With an operation goes for how long it has been waited for, as each hears
of it late.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from gradlane import json_object

Message = dict[str, Any]

# Characters of an operation's name: JSON may take 12 bytes for each, and a line has one, and ranks that wait for it.
MOST_NAME = 1000
_RANKS = 256  # of a message
_MOST_SECONDS = 1e6  # for which a rank can have waited

_LEFT = {"left": [int]}
_WAITS = {"waits": (str, None), "ranks": [int], "seconds": [(int, float)]}
_WAITING = {"waiting": (str, None), "seconds": (int, float)}


class Board:
    """At one rank of `size`. `clock`: in seconds."""

    def __init__(self, size: int, clock: Callable[[], float]) -> None:
        self._size, self._clock = size, clock
        self.left: set[int] = set()
        self.waiting: dict[int, str] = {}
        self._since: dict[int, float] = {}  # by the clock, each of these
        self._news_left: set[int] = set()
        self._news_waiting: set[int] = set()

    def leaves(self, rank: int) -> None:
        """It has left the job."""
        if rank not in self.left:
            self.left.add(rank)
            self._news_left.add(rank)

    def waits(self, rank: int, what: str | None, seconds: float = 0.0) -> bool:
        """It waits for that operation, and has done so for these seconds. Whether that is news."""
        what = None if what is None else what[:MOST_NAME]
        if self.waiting.get(rank) == what:
            return False
        self._news_waiting.add(rank)
        if what is None:
            del self.waiting[rank], self._since[rank]
        else:
            self.waiting[rank], self._since[rank] = what, self._clock() - seconds
        return True

    def waited(self, rank: int) -> float:
        """For how many seconds it has waited for what it waits for."""
        return min(max(0.0, self._clock() - self._since[rank]), _MOST_SECONDS) if rank in self._since else 0.0

    def own(self, rank: int) -> Message:
        """What that rank, which this is, tells the hub."""
        return {"waiting": self.waiting.get(rank), "seconds": round(self.waited(rank), 3)}

    def hear(self, rank: int, message: Mapping[str, Any]) -> None:
        """What a rank tells the hub. Raises ValueError if it makes no sense."""
        json_object.check(message, _WAITING)
        self.waits(rank, message["waiting"], _checked(message["seconds"]))

    def drop(self, rank: int) -> None:
        """It is dead."""
        self.waits(rank, None)

    def again(self) -> None:
        """All of it is news: another rank has become the hub."""
        self._news_left |= self.left
        self._news_waiting |= self.waiting.keys()

    def news(self) -> Iterator[Message]:
        """What a hub tells all others: what it has heard since it was last asked."""
        left, self._news_left = sorted(self._news_left), set()
        waiting, self._news_waiting = sorted(self._news_waiting), set()
        for start in range(0, len(left), _RANKS):
            yield {"left": left[start : start + _RANKS]}
        by_name: dict[str | None, list[int]] = {}
        for rank in waiting:
            by_name.setdefault(self.waiting.get(rank), []).append(rank)
        for name, ranks in by_name.items():
            for start in range(0, len(ranks), _RANKS):
                some = ranks[start : start + _RANKS]
                yield {"waits": name, "ranks": some, "seconds": [round(self.waited(rank), 3) for rank in some]}

    def take(self, message: Mapping[str, Any]) -> None:
        """What the hub says. Raises ValueError if it makes no sense."""
        if "left" in message:
            json_object.check(message, _LEFT)
            self.left.update(self.ranks(message["left"]))
            return
        json_object.check(message, _WAITS)
        ranks, seconds = self.ranks(message["ranks"]), message["seconds"]
        if len(ranks) != len(seconds):
            raise ValueError(f"it names {len(ranks)} ranks, and says of {len(seconds)} for how long they have waited")
        for rank, its in zip(ranks, seconds, strict=True):
            self.waits(rank, message["waits"], _checked(its))

    def ranks(self, named: Sequence[int]) -> Sequence[int]:
        """Of the job. Raises ValueError if there is one that is not."""
        if not all(0 <= rank < self._size for rank in named):
            raise ValueError(f"it names ranks {str(named)[:60]} of {self._size}")
        return named


def _checked(seconds: float) -> float:
    if not 0 <= seconds <= _MOST_SECONDS:
        raise ValueError(f"a rank has waited for {seconds!r:.40} s")
    return seconds
