# SPDX-License-Identifier: Apache-2.0
"""The engines of a job at a host, one for each of its shards, as one."""

from collections.abc import Sequence

from gradlane.datapath.engine import MEMORY_BYTES, Engine, Flow
from gradlane.datapath.transport import Transport
from gradlane.errors import AgentError
from gradlane.job import Job
from gradlane.job.agreement import Agreement
from gradlane.job.stragglers import Moment, Neighbour
from gradlane.toml_file import Address


class Engines:
    """As many as the job's ranks have agreed on. What is late, and by which paths, the first one alone tells: parts of
    all large tensors are there."""

    def __init__(
        self, transport: Transport, job: Job, rank: int, agreement: Agreement, memory: int = MEMORY_BYTES
    ) -> None:
        """Joins the job's multicast groups. `memory`: bytes of all of them. Raises AgentError."""
        self.all: list[Engine] = []
        try:
            for shard in range(agreement.shards):
                self.all.append(Engine(transport, job, rank, agreement, memory, shard))
        except AgentError:
            self.close()
            raise

    @property
    def _first(self) -> Engine:
        return self.all[0]

    def beat(self, descriptor: int, sign: bytes, others: Sequence[tuple[Address, int]], tos: int) -> None:
        """See Engine."""
        self._first.beat(descriptor, sign, others, tos)

    def idle(self) -> bool:
        """Whether no rank waits for a datagram of ours any more: every message sent has been stopped."""
        return all(engine.idle() for engine in self.all)

    def statistics(self) -> dict[str, int]:
        """Cumulative counts of this job on this host; docs/results.md explains them."""
        return _sum([engine.statistics() for engine in self.all], greatest=("send_errno",))

    def peer_counts(self, rank: int) -> dict[str, int]:
        """See Engine."""
        return _sum([engine.peer_counts(rank) for engine in self.all])

    def class_counts(self, index: int) -> dict[str, int]:
        """See Engine."""
        return _sum([engine.class_counts(index) for engine in self.all])

    def flows(self) -> list[Flow]:
        """Towards each rank: the rate of all together, and the longest smoothed round-trip time."""
        return [
            Flow(sum(flow.rate for flow in same), max(flow.srtt_us for flow in same), same[0].paths)
            for same in zip(*(engine.flows() for engine in self.all), strict=True)
        ]

    def silence(self, rank: int) -> float:
        """Seconds since a datagram with the job's token came from a rank; infinite if none has come."""
        return min(engine.silence(rank) for engine in self.all)

    def lateness(self) -> tuple[int, list[list[float]]]:
        """See Engine."""
        return self._first.lateness()

    def left_out(self, rank: int) -> tuple[int, int]:
        """See Engine."""
        return self._first.left_out(rank)

    def neighbour(self) -> Neighbour | None:
        """See Engine."""
        return self._first.neighbour()

    def sum_waits(self) -> dict[Moment, float]:
        """See Engine."""
        return self._first.sum_waits()

    def link(self) -> tuple[list[float], list[float]]:
        """What this host's link carried of the job, bit/s, in its latest windows: what came, what went. Of several
        engines, that share it, nothing is known."""
        return self._first.link() if len(self.all) == 1 else ([], [])

    def held(self) -> list[tuple[int, int]]:
        """See Engine."""
        counts = zip(*(engine.held() for engine in self.all), strict=True)
        return [(sum(delivered for delivered, _ in same), sum(held for _, held in same)) for same in counts]

    def close(self) -> None:
        """Ends the job on this host. What is called later raises TypeError."""
        for engine in self.all:
            engine.close()


def _sum(counts: Sequence[dict[str, int]], greatest: Sequence[str] = ()) -> dict[str, int]:
    return {name: (max if name in greatest else sum)(it[name] for it in counts) for name in counts[0]}
