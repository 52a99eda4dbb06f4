# SPDX-License-Identifier: Apache-2.0
"""Gradients that the guard refused: who sent what, from where, how often."""

import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from ipaddress import IPv4Address, IPv6Address
from typing import Any

from finsy import P4DigestList

from gradlane_controller.network.fabric import Fabric

QUIET_SECONDS = 10.0  # between two lines of the log about the same violation
MAX_LINES = 20  # of the log within that time: forged sources are many
MAX_VIOLATIONS = 1000  # that are remembered; the oldest go first

_LOG = logging.getLogger(__name__)

Key = tuple[str, int, IPv4Address | IPv6Address, int]


@dataclass
class _Record:
    times: int = 0
    last: datetime | None = None
    logged: int = 0  # how many of them the log has counted
    logged_at: float = 0.0


class Violations:
    """Keeps and logs violations. A switch reports the same one again only after some time, however many packets.

    `on_new` hears where there is one that was not logged before, and what it is.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        on_new: Callable[[str, str], None] = lambda _where, _what: None,
    ) -> None:
        self._clock, self._on_new = clock, on_new
        self._records: OrderedDict[Key, _Record] = OrderedDict()
        self._lines: list[float] = []

    def add(self, switch: str, digests: P4DigestList, fabric: Fabric) -> None:
        """Takes a list of `guard_violation_t`."""
        for values in digests:
            if not isinstance(values, dict):
                raise TypeError(f"a digest of switch {switch!r} is no struct: {values!r}")
            source = IPv6Address(int(values["source"]))
            self._add((switch, int(values["ingress_port"]), source.ipv4_mapped or source, int(values["job"])), fabric)

    def to_json(self, fabric: Fabric, jobs: Mapping[int, str]) -> list[dict[str, Any]]:
        """The latest last. `jobs` are names by id."""
        return [
            {
                "switch": switch,
                "port": port,
                "host": _host_at(fabric, switch, port),
                "source": str(source),
                "job": jobs.get(job),
                "job_id": job,
                "times": record.times,
                "last": record.last and record.last.isoformat(timespec="milliseconds"),
            }
            for (switch, port, source, job), record in self._records.items()
        ]

    def _add(self, key: Key, fabric: Fabric) -> None:
        record = self._records.setdefault(key, _Record())
        self._records.move_to_end(key)
        if len(self._records) > MAX_VIOLATIONS:
            self._records.popitem(last=False)
        record.times += 1
        record.last = datetime.now(timezone.utc)
        now = self._clock()
        if record.logged and now < record.logged_at + QUIET_SECONDS:
            return
        self._lines = [at for at in self._lines if now < at + QUIET_SECONDS]
        if len(self._lines) >= MAX_LINES:
            return
        self._lines.append(now)
        switch, port, source, job = key
        host = _host_at(fabric, switch, port)
        where = f"port {port} of {switch!r}" + (f" (host {host!r})" if host else "")
        again = f", {record.times - record.logged} times more" if record.logged else ""
        _LOG.warning("refused at %s: gradients of job %d from %s%s", where, job, source, again)
        if not record.logged:
            self._on_new(f"{switch}:{port}", f"refused at {where}: gradients of job {job} from {source}")
        record.logged, record.logged_at = record.times, now


def _host_at(fabric: Fabric, switch: str, number: int) -> str | None:
    return next((port.host for port in fabric.ports_at(switch) if port.number == number), None)
