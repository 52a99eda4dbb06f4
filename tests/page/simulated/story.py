# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in the made-up fabric, when, and what is said about it. It repeats itself."""

from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from tests.page.simulated.topology import Topology

PERIOD = 300  # s


@dataclass(frozen=True)
class Fault:
    """From `begin` to `end` (seconds of each period) something is so with a `subject`."""

    kind: str
    subject: str
    begin: int
    end: int
    began: str
    ended: str
    severity: str
    alarm: str
    remedy: str

    def active(self, second: int) -> bool:
        """Whether it is so in that second."""
        return self.begin <= second % PERIOD < self.end


def faults(topology: Topology) -> tuple[Fault, ...]:
    """The story: a link, a straggler, a spine, a foreign sender, drift."""
    first, last = topology.links[0], topology.links[-1]
    spine = next(name for name in reversed(topology.switches) if name.startswith("spine"))
    host = list(topology.hosts)[2]
    switch, port = topology.hosts[host]
    job = topology.jobs[0].name
    return (
        Fault(
            *("link", f"{first[0]} - {first[1]}", 40, 100),
            *("is down: three probes in a row did not arrive", "carries frames again", "critical"),
            f"{first[1]} no longer hears {first[0]}; all traffic goes around this link",
            f"check cable and transceiver of {first[0]}, or drain {first[1].split(':')[0]} and replace it",
        ),
        Fault(
            *("straggler", host, 90, 170),
            *(f"comes late to the steps of {job}", f"keeps up with {job} again", "warning"),
            f"{host} was last in 29 of 32 steps of {job}, by 84 ms in the median; the others wait for it",
            f"look at the load of {host} (another process on its GPU?), or let the job leave it out: [loss.late]",
        ),
        Fault(
            *("switch", spine, 180, 225),
            *("is away: no answer to a heartbeat for 4 s", "is back and holds its entries", "critical"),
            f"{spine} has not answered since its session ended; its trees went to the other switches",
            f"see whether gradlane-switch runs on {spine} and reaches the controller",
        ),
        Fault(
            *("guard", f"{switch}:{port}", 120, 260),
            *("gradients of job 77 were refused", "no more gradients were refused", "warning"),
            f"port {port} of {switch} ({host}) sends gradients of job 77, which nobody has put: 1,204 were refused",
            f"stop what runs on {host}, or put the job that it belongs to",
        ),
        Fault(
            *("drift", last[0].split(":")[0], 30, 60),
            *("another client has changed 3 entries; they were put right", "holds what it should", "info"),
            "another client of the switch changes its entries; the controller has put 3 right",
            "find who else writes to it; one controller per fabric",
        ),
    )


def moment(base: float, second: int) -> str:
    """The time of that second as the API writes it."""
    text = datetime.fromtimestamp(base + second, timezone.utc).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def alarms(story: tuple[Fault, ...], base: float, second: int) -> list[dict[str, str]]:
    """Those that are active, the worst first."""
    order = ("critical", "warning", "info")
    found = [
        {
            "id": f"{it.kind}:{it.subject.replace(' ', '')}",
            "since": moment(base, second - second % PERIOD + it.begin),
            "severity": it.severity,
            "subject": it.subject,
            "text": it.alarm,
            "remedy": it.remedy,
        }
        for it in story
        if it.active(second)
    ]
    return sorted(found, key=lambda alarm: order.index(alarm["severity"]))


def events(story: tuple[Fault, ...], base: float, first: int, last: int) -> list[dict[str, Any]]:
    """The timeline from one second to another (inclusive), the oldest first; ids count from the story's beginning."""
    told = sorted(
        (at, it.kind, it.subject, text) for it in story for at, text in ((it.begin, it.began), (it.end, it.ended))
    )
    told += [(20, "trees", "sums", "buckets are 8 at spine1 and 8 at spine2")]
    told.sort()
    return [
        {
            "id": period * len(told) + number + 1,
            "at": moment(base, period * PERIOD + at),
            "kind": kind,
            "subject": subject,
            "text": text,
            "data": {},
        }
        for period in range(first // PERIOD, last // PERIOD + 1)
        for number, (at, kind, subject, text) in enumerate(told)
        if first <= period * PERIOD + at <= last
    ]
