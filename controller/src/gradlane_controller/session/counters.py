# SPDX-License-Identifier: Apache-2.0
"""The data planes' counters, with names: what was decided for packets, what was dropped, who sent."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from ipaddress import IPv6Address
from typing import Any

from finsy import P4CounterData, P4CounterEntry, P4DirectCounterEntry, Switch
from finsy.proto import p4r

from gradlane_controller.data_plane import Reason, SumEvent
from gradlane_controller.desired.plan import Plan
from gradlane_controller.session.bounds import requests
from gradlane_controller.session.connection import read_all

_CELLS_OF_JOB = len(Reason) << 6  # of 2 ** JOB_SHIFT, as the other reasons do not exist
_CELLS_AT_ONCE = 1024  # whose answer takes the event loop less than a millisecond
LOOKED_AT = 16  # jobs of which a glance reads all cells
JOB_SHIFT = 11  # bits of an index of `decisions` behind the job's
SUM_SHIFT = 4  # ... of `sums`


@dataclass(frozen=True)
class Decision:
    """Packets (and their bytes at ingress) of a job, None: of none, with one decision and one pair of tags."""

    switch: str
    job: str | None
    reason: str
    queue_class: int
    drop_precedence: int
    packets: int
    bytes: int


@dataclass(frozen=True)
class Drops:
    """What the gradient policy took, whole or by trimming, of one layer (511: that and all above) and 16 magnitudes
    from `magnitude` on."""

    switch: str
    layer: int
    magnitude: int
    packets: int
    bytes: int


@dataclass(frozen=True)
class Summed:
    """Packets of a job, None: of none, that a switch should sum, by what became of them (SumEvent, in lower case)."""

    switch: str
    job: str | None
    events: dict[str, int]


@dataclass(frozen=True)
class Sender:
    """What one rank sent into the network; `host` and `job` are None for entries of another controller."""

    switch: str
    host: str | None
    job: str | None
    job_id: int
    port: int
    source: str
    packets: int
    bytes: int


@dataclass(frozen=True)
class SwitchCounters:
    """Everything above zero at one switch, and every sender there."""

    switch: str
    decisions: list[Decision]
    drop_map: list[Drops]
    senders: list[Sender]
    sums: list[Summed]


@dataclass(frozen=True)
class Counters:
    """Of every switch but those that are `away`. `reasons` are the sums of `decisions`, with every reason present."""

    reasons: dict[str, dict[str, int]]
    decisions: list[Decision]
    drop_map: list[Drops]
    senders: list[Sender]
    sums: list[Summed]
    away: list[str]

    def to_json(self) -> dict[str, Any]:
        """As dictionaries and lists."""
        return asdict(self)


def collect(counters: Sequence[SwitchCounters], away: list[str]) -> Counters:
    """The counters of several switches as one."""
    decisions = [row for it in counters for row in it.decisions]
    return Counters(
        reasons=_sums(decisions),
        decisions=decisions,
        drop_map=[row for it in counters for row in it.drop_map],
        senders=[row for it in counters for row in it.senders],
        sums=[row for it in counters for row in it.sums],
        away=away,
    )


class Glances:
    """What somebody knows who looks every few seconds: which cells of `decisions` have counted, of each switch. Those
    are read each time, and the others, which are many, a few jobs at a time."""

    def __init__(self) -> None:
        self._counted: dict[str, set[int]] = {}
        self._looked_at: dict[str, dict[int, None]] = {}  # jobs, the one longest ago first

    async def cells(self, switch: Switch, jobs: Collection[int]) -> list[tuple[int, int, int]]:
        """As `_decision_cells`: all those of some of the jobs, those that are known of the others."""
        looked_at = self._looked_at.setdefault(switch.name, {})
        for job in looked_at.keys() - jobs:
            del looked_at[job]
        some = [*(job for job in jobs if job not in looked_at), *looked_at][:LOOKED_AT]
        others = set(jobs).difference(some)
        known = sorted(cell for cell in self._counted.get(switch.name, ()) if cell >> JOB_SHIFT in others)
        found = await _decision_cells(switch, some, known)
        for job in some:
            looked_at[job] = looked_at.pop(job, None)
        self._counted[switch.name] = {index for index, *_ in found}
        return found


async def read_counters(switch: Switch, plan: Plan, glances: Glances | None = None) -> SwitchCounters:
    """Reads the counters of a switch; of `decisions` and `sums` the cells of the plan's jobs only. With `glances` what
    a job is the first to count of its kind may be in a later one.

    Raises finsy.P4ClientError.
    """
    jobs = {plan.numbers.indices[it.id]: name for name, it in plan.jobs.items()}
    indices = sorted({0, *jobs})
    cells = await (glances.cells(switch, indices) if glances else _decision_cells(switch, indices))
    decisions = [decode_decision(switch.name, jobs, *cell) for cell in cells]
    drop_map = [
        Drops(switch.name, index >> 4, (index & 15) << 4, *counts)
        for index, *counts in _above_zero(await read_all(switch, P4CounterEntry("drop_map")))
    ]
    hosts = {port.number: port.host for port in plan.fabric.ports_at(switch.name)}
    names = {it.id: name for name, it in plan.jobs.items()}
    senders: list[Sender] = []
    for entry in await read_all(switch, P4DirectCounterEntry("permitted")):
        if entry.table_entry is None or entry.table_entry.match is None:
            continue  # the default action: what the guard refused is among the decisions
        port, source, job = (entry.table_entry.match[key] for key in ("ingress_port", "source", "job"))
        address = IPv6Address(int(source))
        senders.append(
            Sender(
                switch=switch.name,
                host=hosts.get(port),
                job=names.get(job),
                job_id=job,
                port=port,
                source=str(address.ipv4_mapped or address),
                packets=entry.packet_count,
                bytes=entry.byte_count,
            )
        )
    senders.sort(key=lambda sender: (sender.job_id, sender.port))
    return SwitchCounters(switch.name, decisions, drop_map, senders, await _read_sums(switch, jobs))


async def reset_counts(switch: Switch, indices: Sequence[int]) -> None:
    """Sets what was counted of these job indices to zero, where it is not. Raises finsy.P4ClientError."""
    zero = P4CounterData(byte_count=0, packet_count=0)
    cells = [("decisions", index) for index, *_ in await _decision_cells(switch, indices)]
    cells += [("sums", index) for index, *_ in await _sum_cells(switch, indices)]
    entities = [P4CounterEntry(name, index=index, data=zero).encode(switch.p4info) for name, index in cells]
    await switch.write([p4r.Update(type=p4r.Update.MODIFY, entity=entity) for entity in entities])


async def _read_sums(switch: Switch, jobs: Mapping[int, str]) -> list[Summed]:
    """Of the jobs, by index, and of packets of none, where there are any."""
    found: dict[int, dict[str, int]] = {}
    for index, packets, _ in await _sum_cells(switch, sorted({0, *jobs})):
        events = found.setdefault(index >> SUM_SHIFT, {event.name.lower(): 0 for event in SumEvent})
        events[SumEvent(index & (1 << SUM_SHIFT) - 1).name.lower()] = packets
    return [Summed(switch.name, jobs.get(job), events) for job, events in found.items()]


def decode_decision(switch: str, jobs: Mapping[int, str], index: int, packets: int, octets: int) -> Decision:
    """The decision of a cell of the counter `decisions` (job index ++ reason ++ queue class ++ drop precedence)."""
    reason = Reason(index >> 6 & 31).name.lower()
    return Decision(switch, jobs.get(index >> JOB_SHIFT), reason, index >> 3 & 7, index & 7, packets, octets)


async def _decision_cells(switch: Switch, jobs: Iterable[int], more: Sequence[int] = ()) -> list[tuple[int, int, int]]:
    """(index, packets, bytes) of the cells of these jobs, and of `more` cells, above zero."""
    found: list[tuple[int, int, int]] = []
    # In parts: others have their turn in between, and no message has more than gRPC takes.
    for cells in (*(range(job << JOB_SHIFT, (job << JOB_SHIFT) + _CELLS_OF_JOB) for job in jobs), more):
        for first in range(0, len(cells), _CELLS_AT_ONCE):
            found += await _cells(switch, "decisions", cells[first : first + _CELLS_AT_ONCE])
    return found


async def _sum_cells(switch: Switch, indices: Iterable[int]) -> list[tuple[int, int, int]]:
    """(index, packets, bytes) of the cells of these jobs above zero; none where the program sums nothing."""
    if switch.p4info.counters.get("sums") is None:
        return []
    wanted = [(job << SUM_SHIFT) + event for job in indices for event in SumEvent]
    return await _cells(switch, "sums", wanted) if wanted else []


async def _cells(switch: Switch, counter: str, cells: Sequence[int]) -> list[tuple[int, int, int]]:
    """Those above zero, as (index, packets, bytes); they are many, so nothing but what is needed is decoded."""
    number = switch.p4info.counters[counter].id
    found: list[tuple[int, int, int]] = []
    request = p4r.ReadRequest.FromString(_wanted(number, tuple(cells)))
    request.device_id = switch.device_id
    async for reply in requests(switch, request):
        for entity in reply.entities:
            cell = entity.counter_entry
            if cell.counter_id != number:
                raise ValueError(f"{counter} was asked for, and it is {entity.WhichOneof('entity')} {cell.counter_id}")
            if cell.data.packet_count:
                found.append((cell.index.index, cell.data.packet_count, cell.data.byte_count))
    return found


@lru_cache(maxsize=1024)
def _wanted(counter: int, cells: Sequence[int]) -> bytes:
    """What asks for them, but for the switch: to decode it takes a fifth of what it takes to make it."""
    cell = [p4r.CounterEntry(counter_id=counter, index=p4r.Index(index=index)) for index in cells]
    return p4r.ReadRequest(entities=[p4r.Entity(counter_entry=it) for it in cell]).SerializeToString()


def _above_zero(entries: Iterable[P4CounterEntry]) -> list[tuple[int, int, int]]:
    return [
        (entry.index, entry.packet_count, entry.byte_count)
        for entry in entries
        if entry.index is not None and entry.packet_count
    ]


def _sums(decisions: Iterable[Decision]) -> dict[str, dict[str, int]]:
    sums = {reason.name.lower(): {"packets": 0, "bytes": 0} for reason in Reason}
    for decision in decisions:
        cell = sums.setdefault(decision.reason, {"packets": 0, "bytes": 0})
        cell["packets"] += decision.packets
        cell["bytes"] += decision.bytes
    return sums
