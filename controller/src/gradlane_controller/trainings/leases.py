# SPDX-License-Identifier: Apache-2.0
"""How long jobs without a job file stay: until all their hosts have left them, or none has reported them for long.

Time counts while this controller looks only: not while it was stopped, or did not lead.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

DEFAULT_GRACE = 60.0  # s
LOOK_SECONDS = 1.0  # between two looks
MOST_SECONDS = 2 * LOOK_SECONDS  # that count from one look to the next: the rest of a longer time it was away


@dataclass
class Lease:
    """Of a job on these hosts. `silent`: seconds since the look before which an agent has last reported it, `heard`:
    one has since the last look; `here`, `left`: the hosts whose agents do, and who have ceased to."""

    hosts: frozenset[str]
    silent: float = 0.0
    heard: bool = True
    here: set[str] = field(default_factory=set[str])
    left: set[str] = field(default_factory=set[str])


class Leases:
    """By the names of jobs; `grace`: seconds that a job stays without a report."""

    def __init__(self, grace: float) -> None:
        self.grace = grace
        self._by_name: dict[str, Lease] = {}

    def follow(self, jobs: Mapping[str, Collection[str]]) -> None:
        """Those are the jobs now, with their hosts; new ones begin their time."""
        kept = {name: it for name, it in self._by_name.items() if it.hosts == frozenset(jobs.get(name, ()))}
        self._by_name = {name: kept.get(name) or Lease(frozenset(hosts)) for name, hosts in jobs.items()}

    def clear(self) -> None:
        """All begin anew when they are followed again."""
        self._by_name.clear()

    def given(self, name: str, host: str) -> None:
        """A rank at that host got the job's file: it is about to join."""
        if (it := self._by_name.get(name)) is not None:
            it.heard = True
            it.here.discard(host)
            it.left.discard(host)

    def reported(self, host: str, jobs: Iterable[str]) -> None:
        """The agent of that host has these of its jobs."""
        names = set(jobs)
        for name, it in self._by_name.items():
            if host not in it.hosts:
                continue
            if name in names:
                it.heard = True
                it.here.add(host)
                it.left.discard(host)
            elif host in it.here:
                it.here.discard(host)
                it.left.add(host)

    def look(self, elapsed: float) -> list[str]:
        """The jobs whose time is over, `elapsed` seconds after the last look."""
        for it in self._by_name.values():
            it.silent = 0.0 if it.heard else it.silent + min(elapsed, MOST_SECONDS)
            it.heard = False
        return [name for name, it in self._by_name.items() if it.left >= it.hosts or it.silent > self.grace]
