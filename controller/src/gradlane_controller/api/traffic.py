# SPDX-License-Identifier: Apache-2.0
"""What HTTP clients ask for, how long it takes, and what is refused to them, for Prometheus.

No label is what a client has sent: paths are those of routes, and all others are "none".
"""

from collections.abc import Sequence

from prometheus_client import Counter, Histogram
from prometheus_client.registry import Collector
from starlette.types import Scope

METHODS = ("GET", "HEAD", "OPTIONS", "POST", "PUT", "DELETE")
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0)
REASONS = (
    *("crowded", "slow", "handshake", "malformed", "head", "body"),  # of connections
    *("site", "no_token", "token", "rate", "scope", "busy"),  # of requests
)
"""Why connections and requests are refused: too many (the longest waiting makes room), too slow, no TLS, no HTTP, too
long; for another site's page, without a token, with a wrong one, too often, of too small a scope, too much at work."""


class Traffic:
    """Of one controller."""

    def __init__(self) -> None:
        name = "gradlane_controller_http_{}".format
        labels = ("method", "route", "status")
        self._requests = Counter(name("requests"), "Requests answered, by class of status", labels, registry=None)
        self._seconds = Histogram(
            *(name("request_seconds"), "From a whole request until its answer begins", ("route",)),
            buckets=SECONDS,
            registry=None,
        )
        text = "Requests and connections refused"
        self._refused = Counter(name("refused"), text, ("reason",), registry=None)
        for reason in REASONS:
            self._refused.labels(reason)

    @property
    def collectors(self) -> Sequence[Collector]:
        """For a registry of Prometheus."""
        return self._requests, self._seconds, self._refused

    def answered(self, scope: Scope, status: int, seconds: float) -> None:
        """A request's answer has begun, with that status."""
        route: str = getattr(scope.get("route"), "path", "none")
        method = scope["method"] if scope["method"] in METHODS else "other"
        self._requests.labels(method, route, f"{status // 100}xx").inc()
        self._seconds.labels(route).observe(seconds)

    def refused(self, reason: str) -> None:
        """One of `REASONS`."""
        self._refused.labels(reason).inc()
