# SPDX-License-Identifier: Apache-2.0
"""In a job that outlives deaths nobody waits for ever for a rank that lives and does not do its part."""

from gradlane.control.peers import Peers
from gradlane.daemon.arbiter import Arbiter
from gradlane.daemon.liveness import SILENT_SECONDS, Progress
from gradlane.errors import listed
from gradlane.job import Job

# Of a rank that is heard. Its report comes as soon as it knows that the leader is dead, on a link that may lose much.
REPORT_SECONDS = 20.0


class Meetings:
    """At one rank, which decides on it where it leads. `look` is called now and then."""

    def __init__(self, job: Job, rank: int, peers: Peers, arbiter: Arbiter) -> None:
        self._job, self._rank, self._peers, self._arbiter = job, rank, peers, arbiter
        self._progress, self._taking_over = Progress(), Progress()

    def look(self, now: float) -> None:
        """The job goes on without who has not averaged, while all others have, for longer than its patience, or has
        left without it; and without who does not report to a new leader. `now`: s, monotonic."""
        awaited = sorted(self._peers.leading.awaited)
        if self._taking_over.idle(awaited, now) >= REPORT_SECONDS and awaited:
            names = listed([self._peers.name(rank) for rank in awaited])
            self._peers.expel(awaited, f"{names} did not report to the new leader within {REPORT_SECONDS:g} s")
        missing = self._arbiter.missing()
        waited = self._progress.idle(missing, now)
        for name, absent in missing.items():
            ranks = [rank for rank in absent if rank not in self._peers.dead]  # since it was asked
            left = [rank for rank in ranks if rank != self._rank and rank in self._peers.board.left]
            who = ranks if waited >= self._job.patience else left if waited >= SILENT_SECONDS else []
            if who:
                names = listed([self._peers.name(rank) for rank in who])
                self._peers.expel(who, f"all have averaged {name!r} for {waited:.0f} s but {names}")
