# SPDX-License-Identifier: Apache-2.0
"""Who of a job's ranks lives, where the job outlives deaths: all that go on come to the same view.

The *head*, the lowest rank that lives, decides. Whoever has lost a rank tells the head; if it is the head that is lost,
the next one takes its place. A rank that is told that it is dead ends, as the others have gone on without it. A rank
whose connection was closed is dead. One that has fallen silent may live behind a broken link, and go on there with
others: so a rank goes on without the silent ones only with more than half of those who lived before, or with just half
of them and the lowest rank among these (dynamic linear voting, Jajodia and Mutchler, 1990).
"""

from collections.abc import Callable, Collection
from typing import Any

Message = dict[str, Any]

# Characters of why a rank is dead or a job has failed. JSON may take 12 bytes for each, and a line has one reason.
MAX_REASON = 1300


class Membership:
    """At one rank, and without I/O. `hear` gets what others say; the messages of a pair of ranks come in order."""

    def __init__(
        self,
        rank: int,
        ranks: Collection[int],
        send: Callable[[int, Message], None],
        dropped: Callable[[int, str], None],
        out: Callable[[str], None],
    ) -> None:
        """`send` brings a message to a rank. `dropped` is called once for each rank that is dead from now on, with why;
        `out`, with why, when this rank has to end itself."""
        self.living = set(ranks)
        self.dead: dict[int, str] = {}
        self._rank = rank
        self._send, self._dropped, self._out = send, dropped, out
        self._lost: dict[int, str] = {}  # by this rank itself
        self._gone: set[int] = set()  # those of them of which it is sure
        self._claims: dict[int, dict[int, str]] = {}  # by who says so: whom it has lost
        self._told: dict[int, dict[int, str]] = {}  # by who has decided: who is dead, not taken over yet
        self._reported: tuple[int, set[int]] = -1, set()  # to which head, and whom
        self._announced: set[int] = set()  # of whom this rank has told all others, as the head
        self._over = False

    def lost(self, rank: int, why: str) -> None:
        """A rank is gone for sure: its connection was closed, or it says itself that it gives up."""
        if rank in self.living:
            self._gone.add(rank)
            self._lost.setdefault(rank, why[:MAX_REASON])
            self._act()

    def silent(
        self,
        ranks: Collection[int],
        quiet: Collection[int],
        doubtful: Collection[int],
        why: Callable[[Collection[int]], str],
    ) -> None:
        """`ranks` have been silent for too long. `quiet`: all of whom nothing has come for long; `doubtful`: also those
        of whom it can't be said yet; `why` says of some ranks that they are silent."""
        lost = [rank for rank in ranks if rank in self.living]
        if not lost or self._over:
            return
        voters = self.living - self._gone
        if not _many(reached := voters.difference(quiet), voters):
            self._end(
                f"{why(lost)}; the others may have gone on without this rank, which is in touch with "
                f"{len(reached) - 1} of {len(voters) - 1}"
            )
        elif _many(voters.difference(doubtful), voters):
            self._lost.update((rank, why([rank])) for rank in lost if rank not in self._lost)
            self._act()

    def hear(self, rank: int, message: Message) -> None:
        """{"lost": {rank: why}} from one who takes this rank for the head, or {"dead": {rank: why}} from the head.

        Raises ValueError, TypeError or AttributeError if it makes no sense.
        """
        if rank not in self.living or self._over:
            return
        kind = "dead" if "dead" in message else "lost"
        named = {int(who): str(why)[:MAX_REASON] for who, why in message[kind].items()}
        if any(who not in self.living and who not in self.dead for who in named) or rank in named:
            raise ValueError(f"it says who is {kind}, and means {sorted(named)[:8]}")
        if kind == "lost":
            self._claims.setdefault(rank, {}).update(named)
        elif self._rank in named:
            self._end(f"the others have gone on without this rank: {named[self._rank]}")
            return
        else:
            self._told.setdefault(rank, {}).update(named)
        self._act()

    def _head(self) -> int:
        return min(self.living - self._lost.keys())

    def _end(self, why: str) -> None:
        self._over = True
        self._out(why)

    def _act(self) -> None:
        while not self._over:
            named = self._decided() or self._own()
            if not named:
                return
            self._drop(named)

    def _decided(self) -> dict[int, str]:
        """Who is dead by a decision that holds here: of one before whom, of those who live, there is nobody whom this
        rank still hears."""
        for rank, told in sorted(self._told.items()):
            before = {who for who in self.living if who < rank}
            if before <= (told.keys() & self._lost.keys()):
                del self._told[rank]
                if named := {who: why for who, why in told.items() if who in self.living}:
                    return named
        return {}

    def _own(self) -> dict[int, str]:
        """Who is dead by this rank's own decision, which it tells; if it is not the head, the head is told."""
        head = self._head()
        if head != self._rank:
            if head != self._reported[0]:
                self._reported = head, set()
            self._tell([head], "lost", self._lost, self._reported[1])
            return {}
        named, others = dict(self._lost), self.living - {self._rank}
        for by, claims in self._claims.items():
            if by not in named:  # two that have lost one another both say so: who is heard first stays
                named |= {who: why for who, why in claims.items() if who in others}
        if named:
            self._tell(others - named.keys(), "dead", self.dead | named, self._announced)
        return named

    def _tell(self, to: Collection[int], kind: str, ranks: dict[int, str], known: set[int]) -> None:
        """Each a message of its own, whatever their number; not those who are `known` there, as all are then."""
        new = {rank: why for rank, why in ranks.items() if rank not in known}
        for who in to:
            for rank, why in new.items():
                self._send(who, {kind: {str(rank): why}})
        known.update(new)

    def _drop(self, named: dict[int, str]) -> None:
        for rank, why in named.items():
            self._send(rank, {"dead": {str(rank): why}})  # it may live, and then it ends
            self.living.discard(rank)
            self.dead[rank] = why
            for known in (self._lost, self._claims, self._told):
                known.pop(rank, None)
        for rank, why in named.items():
            self._dropped(rank, why)


def _many(reached: set[int], voters: set[int]) -> bool:
    """Whether no others of these may go on without those that are reached."""
    twice = 2 * len(reached)
    return twice > len(voters) or (twice == len(voters) and min(voters) in reached)
