# SPDX-License-Identifier: Apache-2.0
"""The answer to GET /metrics. Anybody may ask, so it is made in a thread, and so seldom that it costs little."""

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prometheus_client import CollectorRegistry, ProcessCollector, disable_created_metrics, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from gradlane.logs import lines_lost
from gradlane.metric_families import Families
from gradlane_controller.metrics.decided import Decided
from gradlane_controller.metrics.fabric import of_controller, of_links, of_ports, of_switches
from gradlane_controller.metrics.jobs import of_agents, of_jobs
from gradlane_controller.metrics.lag import LoopLag

FRESH_SECONDS = 0.5
REST = 10  # times what it took to make it, until it is made anew

disable_created_metrics()  # a series for each of all others, of no use


@dataclass(frozen=True)
class Seen:
    """What a controller says of its network now: what its methods of these names give, and what agents say of jobs.
    No counters: they are not known."""

    status: Mapping[str, Any]
    links: Mapping[str, Any]
    host_ports: Sequence[Mapping[str, Any]]
    octets: Mapping[tuple[str, int], Sequence[int]]
    counters: Mapping[str, Any] | None
    agents: Mapping[str, Mapping[str, Any]]
    slices: Mapping[str, Sequence[int]]


class Metrics:
    """Of one controller. `look` is called in the event loop; `parts` are what other parts count for themselves."""

    def __init__(self, look: Callable[[], Seen], parts: Sequence[Collector], lag: LoopLag) -> None:
        self._look, self._lag = look, lag
        self._parts = *parts, ProcessCollector(registry=None)
        self._decided = Decided()
        self._making = asyncio.Lock()
        self._text, self._fresh_until = b"", 0.0

    async def text(self) -> bytes:
        """All metrics, in Prometheus's text format 0.0.4, as they were half a second ago at most, or as much longer as
        takes a tenth of a CPU."""
        async with self._making:
            if time.monotonic() > self._fresh_until:
                self._text, seconds = await asyncio.to_thread(self._render, self._look())
                self._fresh_until = time.monotonic() + max(FRESH_SECONDS, REST * seconds)
            return self._text

    async def run(self) -> None:
        """Measures the event loop, until it is cancelled."""
        await self._lag.run()

    def _render(self, seen: Seen) -> tuple[bytes, float]:
        """And what it took of a CPU, in s."""
        begun = time.thread_time()
        switches, jobs = ([it["name"] for it in seen.status[kind]] for kind in ("switches", "jobs"))
        self._decided.take(seen.counters, switches, jobs)
        registry = CollectorRegistry()
        registry.register(_Network(seen, self._decided))
        for part in self._parts:
            registry.register(part)
        return generate_latest(registry), time.thread_time() - begun


class _Network(Collector):
    def __init__(self, seen: Seen, decided: Decided) -> None:
        self._seen, self._decided = seen, decided

    def collect(self) -> Iterator[Metric]:
        """What is known of it."""
        seen = self._seen
        yield from of_controller(seen.status["controller"])
        yield from of_switches(seen.status["switches"])
        yield from of_links(seen.links["links"])
        yield from of_ports(seen.links["links"], seen.host_ports, seen.octets)
        yield from of_jobs(seen.status["jobs"])
        yield from of_agents(seen.agents, seen.slices)
        yield from self._decided.families()
        lost = Families("gradlane_controller_").counter
        yield lost("log_lines_lost", "Log lines that could not be written", (), [((), lines_lost())])
