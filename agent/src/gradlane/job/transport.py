# SPDX-License-Identifier: Apache-2.0
"""`[transport]` of a job file: how gradients travel."""

from dataclasses import dataclass

from gradlane import wire
from gradlane.job.costs import CONTENTION, Sums
from gradlane.job.elements import FLOATS
from gradlane.job.racks import MOST_OVERSUBSCRIPTION
from gradlane.toml_file import Address, Table
from gradlane.units import parse_rate, parse_size

MAX_PACKET = 9000  # jumbo frames
_IP_AND_UDP = {4: 20 + 8, 6: 40 + 8}  # bytes of headers, by IP version
SLICE_UNIT = 8  # the largest element: a slice is a whole number of elements of any type
DEFAULT_BUFFER = "64kB"
DEFAULT_TRACE_EVERY, MAX_TRACE_EVERY = 64, 1_000_000
MAX_STRAGGLAR = 64  # GL_STRAGGLAR_MOST of core/plan/schedule.h
MAX_SHARE = 10_000
SUM_MEMBERS = 32  # bits of `members` of wire.SUM_FIELDS: of more workers it says nothing but that all are in a sum
COLLECTIVES = ("auto", "direct", "ring", "grid", "stragglar", "switch")
SUM_SLOTS = 4096  # of a switch: SUM_SLOTS of p4src/shared/sums.p4
DEFAULT_SUM_WINDOW, DEFAULT_SUM_SLOTS = 64, 1024
# What float32 elements become where a switch sums them.
LANES = {"int16": wire.Lanes.INT16_LANES, "int32": wire.Lanes.INT32_LANES}
_LANE_BYTES = {"int16": 2, "int32": 4}


@dataclass(frozen=True)
class Transport:
    """How gradients travel. `rate` is the rate of each host's link in bit/s.

    `slice_bytes` is the payload of a datagram; None: the most that every path carries, found when the job is joined.
    `buffer` is what a port of the fabric can hold, in bytes: the rate control lets queues grow to half of it.

    `wire` is the type of elements on the wire, one of FLOATS, or of LANES where a switch sums. `collective` is the
    algorithm of all-reduces: "direct", "ring", "stragglar", "switch", or "auto", by the cost model: of the first two,
    and of a switch with LANES. `straggler`: the worker's rank that StragglAR does not wait for; None with any other.

    `multicast` is the address to which aggregator 0 sends its results; aggregator k sends to `multicast` + k. Of more
    than SUM_MEMBERS workers that a switch sums it is that of the sums alone. None: aggregators send to each worker.

    `tagging` says who writes DSCP and ECN: "switch", the first one by its tables, or "host", the agent, by `[policy]`,
    for a fabric of switches without P4. `trace_every`: messages of a path from one trace to the next, 0 for none.

    `ownership` says which shares of a tensor the aggregators reduce: "even", or their weights; "adaptive": what suits
    late workers and slow links best. `contention`: the part of a port that is lost where many senders meet.

    `oversubscription`: how many times what a rack's links to other racks carry its hosts can send; up to 1
    the core is no limit.

    `sum_window`: slices of a tensor that may be on their way to the switch that sums them; `sum_slots`: sums that it
    keeps for the job at a time, two windows for each tensor. Both are powers of two.
    """

    rate: int
    buffer: int
    slice_bytes: int | None
    wire: str
    collective: str
    straggler: int | None
    multicast: Address | None
    tagging: str
    trace_every: int
    ownership: str | tuple[int, ...] = "even"
    contention: float = CONTENTION
    oversubscription: float = 1.0
    sum_window: int = DEFAULT_SUM_WINDOW
    sum_slots: int = DEFAULT_SUM_SLOTS

    @property
    def floats(self) -> str:
        """What float32 elements travel as from host to host."""
        return "float32" if self.wire in LANES else self.wire

    @property
    def sum_tensors(self) -> int:
        """How many tensors, the first ones by their numbers, a switch has slots for."""
        return self.sum_slots // (2 * self.sum_window)

    def sums(self, elements: int, slice_bytes: int) -> Sums | None:
        """So many elements, as a switch sums them in datagrams with that payload; None: it can't."""
        words = min((slice_bytes - wire.SUM_BYTES) // wire.SUM_WORD, wire.MAX_SUM_WORDS)
        if self.wire not in LANES or words < 1:
            return None
        return Sums(elements * _LANE_BYTES[self.wire], words * wire.SUM_WORD, self.sum_window)


def headers(family: int) -> int:
    """Bytes of the IP, UDP and Gradlane headers of a datagram. `family`: 4 or 6."""
    return _IP_AND_UDP[family] + wire.HEADER_BYTES


def largest_slice(packet: int, family: int) -> int:
    """The most payload that an IP packet of that many bytes can carry, in whole elements of any type."""
    return (min(packet, MAX_PACKET) - headers(family)) // SLICE_UNIT * SLICE_UNIT


def parse(table: Table, family: int, workers: int, servers: int, has_racks: bool) -> Transport:
    """Takes the table apart, of a job of so many workers and servers, whose addresses are IPv4 or 6 (`family`).

    `has_racks`: whether it says in which racks workers are.

    Raises the table's error.
    """
    collective = table.choice("collective", COLLECTIVES, "auto")
    if collective not in ("auto", "direct") and servers:
        raise table.error("collective", f"is {collective!r}, but the job has servers; it must be 'direct' or 'auto'")
    wire_type = _wire(table, collective)
    asked = _check_sums(table, collective, wire_type, family, workers, servers) if wire_type in LANES else None
    # One for the results of each aggregator, and of the switch; of many workers that is too many.
    groups = 1 if asked and workers > SUM_MEMBERS else (servers or workers) + bool(asked)
    multicast = table.multicast_address("multicast", groups, family) if table.has("multicast") else None
    straggler = _straggler(table, collective, workers)
    ownership = table.choice_or_integers("ownership", ("even", "adaptive"), "even", servers or workers, MAX_SHARE)
    if collective not in ("auto", "direct") and ownership != "even":
        raise table.error("ownership", f"is not 'even', but collective is {collective!r}, which has shares of its own")
    if asked and ownership != "even":
        raise table.error("ownership", f"is not 'even', but {asked}; it must be 'even'")
    sum_window, sum_slots = _sums(table, bool(asked))
    if table.has("oversubscription") and not has_racks:
        raise table.error("oversubscription", "is that of racks, but the workers have none: give each a `rack`")
    transport = Transport(
        rate=table.quantity("rate", parse_rate),
        buffer=table.quantity("buffer", parse_size, DEFAULT_BUFFER),
        slice_bytes=_slice_bytes(table, family, asked),
        wire=wire_type,
        collective=collective,
        straggler=straggler,
        multicast=multicast,
        tagging=table.choice("tagging", ("switch", "host"), "switch"),
        trace_every=table.integer("trace_every", 0, MAX_TRACE_EVERY, DEFAULT_TRACE_EVERY),
        ownership=ownership,
        contention=table.fraction("contention", CONTENTION),
        oversubscription=table.number("oversubscription", 0.0, MOST_OVERSUBSCRIPTION, 1.0),
        sum_window=sum_window,
        sum_slots=sum_slots,
    )
    if asked and transport.tagging == "host":
        raise table.error("tagging", f"is 'host', for switches without P4, but {asked}; it must be 'switch'")
    table.finish()
    return transport


def _check_sums(table: Table, collective: str, wire_type: str, family: int, workers: int, servers: int) -> str:
    """That a switch may sum for such a job. Returns by which key it is asked to, for errors."""
    key, value = ("collective", collective) if collective == "switch" else ("wire", wire_type)
    if servers:
        raise table.error(key, f"is {value!r}, for a switch that sums, but the job has servers")
    if workers < 2:
        raise table.error(key, f"is {value!r} with {workers} worker(s); it takes 2 to {wire.MAX_RANKS}")
    if workers > SUM_MEMBERS and wire_type != "int32":
        raise table.error(
            "wire", f"is {wire_type!r} with {workers} workers; with more than {SUM_MEMBERS} it must be 'int32'"
        )
    if not table.has("multicast"):
        example = "239.1.0.1" if family == 4 else "ff18::1"
        raise table.error(
            "multicast", f"is missing: {key} is {value!r}, and a switch's sums are multicast; e.g. {example!r}"
        )
    return f"{key} is {value!r}"


def _straggler(table: Table, collective: str, workers: int) -> int | None:
    if collective != "stragglar":
        if table.has("straggler"):
            raise table.error("straggler", f"goes with collective = 'stragglar'; it is {collective!r}")
        return None
    if workers > MAX_STRAGGLAR:
        raise table.error("collective", f"is 'stragglar' with {workers} workers; it takes up to {MAX_STRAGGLAR}")
    return table.integer("straggler", 0, workers - 1)


def _sums(table: Table, by_switch: bool) -> tuple[int, int]:
    """The window, and the slots."""
    for key in ("sum_window", "sum_slots"):
        if table.has(key) and not by_switch:
            raise table.error(key, "goes with wire = 'int16' or 'int32' alone; leave it out")
    window = table.integer("sum_window", 4, SUM_SLOTS // 2, DEFAULT_SUM_WINDOW)
    slots = table.integer("sum_slots", 8, SUM_SLOTS, DEFAULT_SUM_SLOTS)
    for key, value in (("sum_window", window), ("sum_slots", slots)):
        if value & (value - 1):
            raise table.error(key, f"is {value}; it must be a power of two, e.g. {1 << value.bit_length() - 1}")
    if 2 * window > slots:
        raise table.error(
            "sum_slots", f"is {slots}; a tensor takes two windows of {window}, so it must be at least {2 * window}"
        )
    return window, slots


def _wire(table: Table, collective: str) -> str:
    wire_type = table.choice("wire", (*FLOATS, *LANES), "float32")
    if collective == "switch" and wire_type not in LANES:
        raise table.error(
            "wire", f"is {wire_type!r}, but collective is 'switch', which adds integers; it must be 'int16' or 'int32'"
        )
    if wire_type in LANES and collective not in ("switch", "auto"):
        raise table.error(
            "wire",
            f"is {wire_type!r}, for a switch that sums; with other collectives than 'switch' and 'auto' it must be one "
            f"of {', '.join(map(repr, FLOATS))}",
        )
    return wire_type


def _slice_bytes(table: Table, family: int, asked: str | None) -> int | None:
    slice_bytes = table.integer_or("auto", "slice_bytes", 64, largest_slice(MAX_PACKET, family))
    if slice_bytes is not None and slice_bytes % SLICE_UNIT:
        raise table.error(
            "slice_bytes", f"is {slice_bytes}; it must be a multiple of {SLICE_UNIT}, e.g. 1432, or 'auto'"
        )
    least = wire.SUM_BYTES + wire.SUM_WORD
    if asked and slice_bytes is not None and slice_bytes < least:
        raise table.error("slice_bytes", f"is {slice_bytes}; {asked}, which takes at least {least}, e.g. 1432")
    return slice_bytes
