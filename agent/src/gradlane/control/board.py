# SPDX-License-Identifier: Apache-2.0
"""What all ranks of a job must know of each other: who has left it, and what they wait for.

Each tells the *hub*, the lowest rank that lives, which tells all what is new, with each heartbeat. An operation that is
over within a second or two is told to nobody.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gradlane import json_object

Message = dict[str, Any]

# Characters of an operation's name: JSON may take 12 bytes for each, and a line has one, and ranks that wait for it.
MOST_NAME = 1000
_RANKS = 256  # of a message

_LEFT = {"left": [int]}
_WAITS = {"waits": (str, None), "ranks": [int]}


class Board:
    """At one rank of `size`."""

    def __init__(self, size: int) -> None:
        self._size = size
        self.left: set[int] = set()
        self.waiting: dict[int, str] = {}
        self._news_left: set[int] = set()
        self._news_waiting: set[int] = set()

    def leaves(self, rank: int) -> None:
        """It has left the job."""
        if rank not in self.left:
            self.left.add(rank)
            self._news_left.add(rank)

    def waits(self, rank: int, what: str | None) -> None:
        """It waits for that operation."""
        what = None if what is None else what[:MOST_NAME]
        if self.waiting.get(rank) == what:
            return
        self._news_waiting.add(rank)
        if what is None:
            del self.waiting[rank]
        else:
            self.waiting[rank] = what

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
                yield {"waits": name, "ranks": ranks[start : start + _RANKS]}

    def take(self, message: Mapping[str, Any]) -> None:
        """What the hub says. Raises ValueError if it makes no sense."""
        if "left" in message:
            json_object.check(message, _LEFT)
            self.left.update(self.ranks(message["left"]))
            return
        json_object.check(message, _WAITS)
        for rank in self.ranks(message["ranks"]):
            self.waits(rank, message["waits"])

    def ranks(self, named: Sequence[int]) -> Sequence[int]:
        """Of the job. Raises ValueError if there is one that is not."""
        if not all(0 <= rank < self._size for rank in named):
            raise ValueError(f"it names ranks {str(named)[:60]} of {self._size}")
        return named
