# SPDX-License-Identifier: Apache-2.0
"""What convergences have written, and how long they took: a record of the log each, and metrics."""

import logging
from collections.abc import Collection, Sequence

from prometheus_client import Counter, Gauge, Histogram
from prometheus_client.registry import Collector

from gradlane_controller.session.convergence import Changes

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0)
"""Upper bounds of the histogram's buckets; no operation takes longer than the last."""
_CHANGES = ("inserted", "modified", "deleted")
_LOG = logging.getLogger(__name__)


class Convergences:
    """Of all switches, by name."""

    def __init__(self) -> None:
        self._known = set[str]()
        name = "gradlane_controller_switch_{}".format
        self._seconds = Histogram(
            *(name("convergence_seconds"), "How long it took until the switch held what it should", ("switch",)),
            buckets=SECONDS,
            registry=None,
        )
        text = "Convergences that have ended with the session"
        self._failed = Counter(name("convergence_failures"), text, ("switch",), registry=None)
        text = "Entries written, by what was done to them"
        self._written = Counter(name("entries_written"), text, ("switch", "change"), registry=None)
        text = "Entries that the switch does not take"
        self._refused = Gauge(name("refused_entries"), text, ("switch",), registry=None)

    @property
    def collectors(self) -> Sequence[Collector]:
        """For a registry of Prometheus."""
        return self._seconds, self._failed, self._written, self._refused

    def took(self, switch: str, changes: Changes, refused: int, seconds: float, *, quiet: bool) -> None:
        """One is over: the switch holds all but the entries that it has `refused`; `quiet`: for who wants to know every
        step."""
        counts = dict(zip(_CHANGES, (changes.inserted, changes.modified, changes.deleted), strict=True))
        if switch in self._known:  # it may just have left
            for change, count in counts.items():
                self._written.labels(switch, change).inc(count)
            self._seconds.labels(switch).observe(seconds)
            self._refused.labels(switch).set(refused)
        _LOG.log(
            logging.DEBUG if quiet else logging.INFO,
            "converged %s: %s%s, in %.3f s",
            *(switch, changes, f", {refused} refused" if refused else "", seconds),
            extra={"switch": switch, **counts, "refused": refused, "seconds": round(seconds, 6)},
        )

    def failed(self, switch: str) -> None:
        """One has ended before it was over."""
        if switch in self._known:
            self._failed.labels(switch).inc()

    def follow(self, switches: Collection[str]) -> None:
        """The fabric has these switches now; nothing is known of others any more."""
        for switch in self._known - set(switches):
            for metric in (self._seconds, self._failed, self._refused):
                metric.remove(switch)
            for change in _CHANGES:
                self._written.remove(switch, change)
        for switch in set(switches) - self._known:
            self._seconds.labels(switch)
            self._failed.labels(switch)
            self._refused.labels(switch)
            for change in _CHANGES:
                self._written.labels(switch, change)
        self._known = set(switches)
