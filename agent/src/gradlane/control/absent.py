# SPDX-License-Identifier: Apache-2.0
"""Ranks of a job that are not connected yet, and why, as far as that is known."""

from collections.abc import Callable, Collection, Container

from gradlane.job import Job, Member


class Absent:
    """At one rank. `wanted`: those that this rank has connections to; `connected`: those that are, at any time;
    `notice` tells of what may still end well. `others`: ranks that another one misses."""

    def __init__(
        self,
        job: Job,
        rank: int,
        wanted: Collection[int],
        connected: Container[int],
        notice: Callable[[str], None],
    ) -> None:
        self._job, self._rank, self._notice = job, rank, notice
        self._wanted, self._connected = wanted, connected
        self.others: frozenset[int] = frozenset()
        self._why: dict[int, str] = {}
        self._suspected: set[int] = set()  # ranks of which it has been told

    def note(self, rank: int, why: str) -> None:
        """Why a rank can't be reached at present."""
        self._why[rank] = why

    def refused(self, address: str, problem: str) -> None:
        """A caller was refused. If it has a missing rank's address, this may be why the job can't start.

        It has not proved to be that rank's agent, so the job goes on waiting.
        """
        for member in self._at(address):
            if member.rank not in self._suspected:
                self._suspected.add(member.rank)
                self._notice(f"{self._job.name_of(member.rank)} {problem}; the job waits for it (job.patience)")
            self._why[member.rank] = problem

    def broken(self, address: str, problem: str) -> None:
        """A call broke off. If the rank of that address never comes, this may be why."""
        for member in self._at(address):
            self._why[member.rank] = f"its call broke off ({problem})"

    def _at(self, address: str) -> list[Member]:
        callers = self._job.members[self._rank + 1 :]
        return [m for m in callers if str(m.address) == address and m.rank not in self._connected]

    def ranks(self) -> list[int]:
        """All that are known to be absent."""
        known = self.others.union(self._wanted)
        return sorted(rank for rank in known if rank != self._rank and rank not in self._connected)

    def names(self) -> list[str]:
        """All of them, as errors name them."""
        missing = self.ranks()
        return [self._job.name_of(rank) + (f": {why}" if (why := self._why.get(rank)) else "") for rank in missing]
