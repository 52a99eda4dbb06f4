# SPDX-License-Identifier: Apache-2.0
"""Alarms: what is wrong, who is to blame, and how to mend it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

from gradlane_controller.live import stamp, switch_state

RECENT = timedelta(minutes=5)  # gradients that were refused count for so long,
DRIFT = timedelta(minutes=10)  # what other clients have changed for so long, from
OFTEN = 2  # times on


@dataclass(frozen=True)
class Alarm:
    """`id` stays the same while it lasts; `since` None: since it was first seen."""

    id: str
    severity: str
    subject: str
    text: str
    remedy: str
    since: datetime | None = None


class Alarms:
    """Which there are now; remembers since when."""

    def __init__(self) -> None:
        self._since: dict[str, datetime] = {}
        self._mended: dict[str, list[tuple[datetime, int]]] = {}

    def look(
        self, status: Mapping[str, Any], links: Mapping[str, Any], violations: list[dict[str, Any]]
    ) -> list[dict[str, Any]]:
        """The worst first; what the controller says of itself in, as JSON out."""
        now = datetime.now(timezone.utc)
        found = [
            *_links(links),
            *_switches(status),
            *self._drift(status, now),
            *_violations(violations, now),
            *_jobs(status),
        ]
        self._since = {it.id: it.since or self._since.get(it.id, now) for it in found}
        found.sort(key=lambda it: (("critical", "warning", "info").index(it.severity), self._since[it.id]))
        return [
            {
                "id": it.id,
                "since": stamp(self._since[it.id]),
                "severity": it.severity,
                "subject": it.subject,
                "text": it.text,
                "remedy": it.remedy,
            }
            for it in found
        ]

    def _drift(self, status: Mapping[str, Any], now: datetime) -> Iterator[Alarm]:
        for it in status["switches"]:
            name, times = it["name"], it["mended"]["times"]
            seen = [(at, count) for at, count in self._mended.get(name, []) if at > now - DRIFT and count <= times]
            if not seen or seen[-1][1] != times:
                seen.append((now, times))
            self._mended[name] = seen
            again = times - seen[0][1]
            if again >= OFTEN:
                yield Alarm(
                    f"drift:{name}",
                    "warning",
                    name,
                    f"another client has changed what {name} holds {again} times, and the controller put it right",
                    f"find who else writes to {it['address']}, and stop it; with TLS and client certificates at the "
                    "switch nobody else can",
                )


def _links(links: Mapping[str, Any]) -> Iterator[Alarm]:
    for it in links["links"]:
        if not it["up"]:
            first, second = it["ends"]
            deaf = " and ".join(it["deaf"])
            yield Alarm(
                f"link:{first}-{second}",
                "critical",
                f"{first} - {second}",
                f"nothing arrives at {deaf}; traffic goes around this link",
                f"look at the cable and at both ports, {first} and {second}: whether they are up, and count errors",
                datetime.fromisoformat(it["since"]),
            )


def _switches(status: Mapping[str, Any]) -> Iterator[Alarm]:
    for it in status["switches"]:
        name, state = it["name"], switch_state(it)
        if state == "away":
            yield Alarm(
                f"switch:{name}",
                "critical",
                name,
                f"the controller has no session with {name}: {it['problem'] or 'it is not connected'}",
                f"look whether its process runs and {it['address']} can be reached; it forwards as it did until then",
            )
        elif state == "converging" and it["problem"]:
            yield Alarm(
                f"switch:{name}",
                "warning",
                name,
                f"{name} {it['problem']}",
                "wait a few seconds; if it stays so, the controller's log says what the switch refuses",
            )


def _violations(violations: list[dict[str, Any]], now: datetime) -> Iterator[Alarm]:
    ports: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for it in violations:
        if datetime.fromisoformat(it["last"]) > now - RECENT:
            ports.setdefault((it["switch"], it["port"]), []).append(it)
    for (switch, port), found in ports.items():
        host = found[-1]["host"]
        where = f"{switch}:{port}"
        who = f"host {host}" if host else "no known host"
        jobs = ", ".join(sorted({str(it["job"] or it["job_id"]) for it in found}))
        sources = sorted({it["source"] for it in found})
        from_whom = ", ".join(sources[:3]) + (f" and {len(sources) - 3} more" if len(sources) > 3 else "")
        yield Alarm(
            f"guard:{where}",
            "warning",
            where,
            f"gradients of job {jobs} came from {where} ({who}), which may not send them; sources: {from_whom}",
            f"look at {who}: it forges gradients, or its job file has another host or address than the controller's",
        )


def _jobs(status: Mapping[str, Any]) -> Iterator[Alarm]:
    for it in status["jobs"]:
        if it["sums"] is not None and it["sums"]["reason"]:
            yield Alarm(
                f"sums:{it['name']}",
                "info",
                it["name"],
                f"hosts sum job {it['name']}, not switches: {it['sums']['reason']}",
                "mend what is named; until then the job is slower, and its results are as exact",
            )
