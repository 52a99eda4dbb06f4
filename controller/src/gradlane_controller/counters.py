# SPDX-License-Identifier: Apache-2.0
"""The data plane's counters, with names: what was decided for packets, what was dropped, who sent."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from ipaddress import IPv4Address
from typing import Any

from finsy import P4CounterEntry, P4DirectCounterEntry, Switch

from gradlane.job import Job
from gradlane_controller.connection import read_all
from gradlane_controller.data_plane import Reason
from gradlane_controller.fabric import Fabric


@dataclass(frozen=True)
class Decision:
    """Packets (and their bytes at ingress) with one decision and one pair of tags."""

    reason: str
    queue_class: int
    drop_precedence: int
    packets: int
    bytes: int


@dataclass(frozen=True)
class Drops:
    """What the gradient policy dropped of one layer (63: that and all above) and 16 magnitudes from `magnitude` on."""

    layer: int
    magnitude: int
    packets: int
    bytes: int


@dataclass(frozen=True)
class Sender:
    """What one rank sent into the network; `host` and `job` are None for entries of another controller."""

    host: str | None
    job: str | None
    job_id: int
    port: int
    source: str
    packets: int
    bytes: int


@dataclass(frozen=True)
class Counters:
    """Everything above zero, and every sender. `reasons` are the sums of `decisions`, with every reason present."""

    reasons: dict[str, dict[str, int]]
    decisions: list[Decision]
    drop_map: list[Drops]
    senders: list[Sender]

    def to_json(self) -> dict[str, Any]:
        """As dictionaries and lists."""
        return asdict(self)


async def read_counters(switch: Switch, fabric: Fabric, jobs: Iterable[Job]) -> Counters:
    """Reads every counter of the switch. Raises finsy.P4ClientError."""
    decisions = [decode_decision(*cell) for cell in await _cells(switch, "decisions")]
    drop_map = [Drops(index >> 4, (index & 15) << 4, *counts) for index, *counts in await _cells(switch, "drop_map")]
    names = {job.id: job.name for job in jobs}
    senders: list[Sender] = []
    for entry in await read_all(switch, P4DirectCounterEntry("permitted")):
        if entry.table_entry is None or entry.table_entry.match is None:
            continue  # the default action: what the guard refused is among the decisions
        match = entry.table_entry.match
        host = next((port.host for port in fabric.ports if port.number == match["ingress_port"]), None)
        name = names.get(match["job"])
        source = str(IPv4Address(int(match["source"])))
        senders.append(
            Sender(host, name, match["job"], match["ingress_port"], source, entry.packet_count, entry.byte_count)
        )
    senders.sort(key=lambda sender: (sender.job_id, sender.port))
    return Counters(_sums(decisions), decisions, drop_map, senders)


def decode_decision(index: int, packets: int, octets: int) -> Decision:
    """The decision of one cell of the counter `decisions` (reason ++ queue class ++ drop precedence)."""
    number = index >> 6 & 31
    known = number in Reason.__members__.values()
    reason = Reason(number).name.lower() if known else f"reason_{number}"
    return Decision(reason, index >> 3 & 7, index & 7, packets, octets)


def format_counters(counters: Mapping[str, Any]) -> str:
    """A table for people, of what `Counters.to_json` gives."""
    decisions = [
        (row["reason"], row["queue_class"], row["drop_precedence"], row["packets"], row["bytes"])
        for row in counters["decisions"]
    ]
    drops = [
        (row["layer"], f"{row['magnitude']}-{row['magnitude'] + 15}", row["packets"], row["bytes"])
        for row in counters["drop_map"]
    ]
    senders = [
        (row["job"] or row["job_id"], row["host"] or "?", row["port"], row["source"], row["packets"], row["bytes"])
        for row in counters["senders"]
    ]
    return "\n\n".join(
        (
            format_table("decisions", ("reason", "queue class", "drop precedence", "packets", "bytes"), decisions),
            format_table("dropped by the gradient policy", ("layer", "magnitude", "packets", "bytes"), drops),
            format_table("senders", ("job", "host", "port", "source", "packets", "bytes"), senders),
        )
    )


def format_table(title: str, head: tuple[str, ...], rows: Iterable[tuple[object, ...]]) -> str:
    """A titled table with columns as wide as they need to be; numbers to the right."""
    rows = list(rows)
    if not rows:
        return f"{title}: none"
    columns = list(zip(head, *rows, strict=True))
    widths = [max(len(str(cell)) for cell in column) for column in columns]

    def line(cells: tuple[object, ...]) -> str:
        texts = (
            str(cell).rjust(width) if isinstance(cell, int) else str(cell).ljust(width)
            for cell, width in zip(cells, widths, strict=True)
        )
        return "  " + "  ".join(texts).rstrip()

    return "\n".join((f"{title}:", line(head), *(line(row) for row in rows)))


async def _cells(switch: Switch, name: str) -> list[tuple[int, int, int]]:
    """(index, packets, bytes) of the cells above zero."""
    return [
        (entry.index, entry.packet_count, entry.byte_count)
        for entry in await read_all(switch, P4CounterEntry(name))
        if entry.index is not None and entry.packet_count
    ]


def _sums(decisions: Iterable[Decision]) -> dict[str, dict[str, int]]:
    sums = {reason.name.lower(): {"packets": 0, "bytes": 0} for reason in Reason}
    for decision in decisions:
        cell = sums.setdefault(decision.reason, {"packets": 0, "bytes": 0})
        cell["packets"] += decision.packets
        cell["bytes"] += decision.bytes
    return sums
