# SPDX-License-Identifier: Apache-2.0
"""The job file: who takes part in a training job, and what the network may do to its gradients.

The agent and the controller read the same file, so what they must agree on is defined here once.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path

from gradlane import toml_file
from gradlane.toml_file import FileError, Table
from gradlane.units import parse_rate, parse_size

MAX_LAYER = 65535
MAX_MAGNITUDE = 255
BUDGET_SLOTS = 65536  # BUDGET_SLOTS of p4src/shared/types.p4
MAX_WEIGHT = 100
HIGHEST_GRADIENT_CLASS = 6  # 7 is the control class, so that no STOP waits behind the incast that it should end
MAX_SLICE_BYTES = 8936  # a 9000-byte IP packet less the IPv4, UDP and Gradlane headers (20 + 8 + 36 bytes)
DEFAULT_BUFFER = "64kB"
DEFAULT_TRACE_EVERY, MAX_TRACE_EVERY = 64, 1_000_000
ELEMENT_BYTES = {"float32": 4, "float16": 2}

_TOKEN = re.compile(r"[0-9A-Fa-f]{16}\Z")


class JobError(FileError):
    """A job file that can't be used."""


@dataclass(frozen=True)
class Member:
    """One rank of the job: a worker, or a server that aggregates for the workers."""

    rank: int
    host: str
    address: IPv4Address


@dataclass(frozen=True)
class Transport:
    """How gradients travel. `rate` is the rate of each host's link in bit/s; `slice_bytes` the payload of a datagram.

    `buffer` is what a port of the fabric can hold, in bytes: the rate control lets queues grow to half of it.

    `multicast` is the address to which aggregator 0 sends its results; aggregator k sends to `multicast` + k.
    None: aggregators send to each worker.

    `tagging` says who writes DSCP and ECN: "switch", the first one by its tables, or "host", the agent, by `[policy]`,
    for a fabric of switches without P4. `trace_every`: messages of a path from one trace to the next, 0 for none.
    """

    rate: int
    buffer: int
    slice_bytes: int
    wire: str
    multicast: IPv4Address | None
    tagging: str
    trace_every: int


@dataclass(frozen=True)
class Loss:
    """Tolerated loss of a message, as a fraction of its slices, in [0, 1)."""

    push: float
    pull: float


@dataclass(frozen=True)
class QueueClass:
    """Slices of these layers (inclusive range) go to this queue class."""

    layers: tuple[int, int]
    queue_class: int


@dataclass(frozen=True)
class DropPrecedence:
    """Slices of these layers and magnitudes (inclusive ranges) have this drop precedence."""

    layers: tuple[int, int]
    magnitudes: tuple[int, int]
    drop_precedence: int


@dataclass(frozen=True)
class Policy:
    """What the network does with the job's slices; what is not listed is best effort (class 0) and protected.

    `priority` false is the ablation without priorities: every gradient packet has class 0.
    `yellow` and `red` are the lowest drop precedence that is dropped at the first and at the second threshold.
    `weight` is the job's share of a port that several jobs use, relative to theirs. `on_congestion` is what becomes of
    droppable slices: "drop" them, or "trim" them to their headers. `spray` sends the slices of a message over every
    path in turn; without it a flow keeps to one.
    """

    priority: bool
    queue_classes: tuple[QueueClass, ...]
    drop_precedences: tuple[DropPrecedence, ...]
    yellow: int
    red: int
    weight: int
    on_congestion: str
    spray: bool


@dataclass(frozen=True)
class Slots:
    """The budget slots of the job in the switch: message m has slot `base` + (m & `mask`)."""

    base: int
    mask: int

    @property
    def last(self) -> int:
        """The highest slot of the job."""
        return self.base + self.mask


@dataclass(frozen=True)
class Job:
    """A training job. Ranks count from 0: the workers first, then the servers."""

    file: str
    name: str
    id: int
    token: int
    aggregation: str
    workers: tuple[Member, ...]
    servers: tuple[Member, ...]
    transport: Transport
    loss: Loss
    policy: Policy
    slots: Slots

    @property
    def members(self) -> tuple[Member, ...]:
        """Every rank, in rank order."""
        return self.workers + self.servers

    @property
    def aggregators(self) -> tuple[Member, ...]:
        """Who reduces: the servers, or without servers each worker its shard."""
        return self.servers or self.workers

    def member(self, rank: int) -> Member:
        """The member of that rank. Raises JobError that names the job's ranks."""
        if not 0 <= rank < len(self.members):
            raise JobError(
                self.file, "", f"job {self.name!r} has no rank {rank}: ranks are 0 to {len(self.members) - 1}"
            )
        return self.members[rank]

    def multicast_address(self, aggregator: int) -> IPv4Address | None:
        """Where the aggregator of that index (in `aggregators`) sends its results, if the job has multicast."""
        base = self.transport.multicast
        return None if base is None else base + aggregator


def load(path: str | Path) -> Job:
    """Reads and validates a job file. Raises JobError."""
    return parse(toml_file.read(JobError, path), str(path))


def parse(text: str, file_name: str) -> Job:
    """Validates the text of a job file; errors name `file_name`. Raises JobError."""
    root = toml_file.parse(JobError, text, file_name)
    head = root.table("job")
    workers = _members(root.tables("worker"), "worker", 0)
    if not workers:
        raise root.error("worker", "is missing: a job has at least one [[worker]]")
    servers = _members(root.tables("server"), "server", len(workers))
    _check_distinct(root, workers + servers)
    job = Job(
        file=file_name,
        name=head.name("name"),
        id=head.integer("id", 1, 65535),
        token=_token(head),
        aggregation=head.choice("aggregation", ("mean", "sum"), "mean"),
        workers=workers,
        servers=servers,
        transport=_transport(root.table("transport"), len(servers or workers)),
        loss=_loss(root.table("loss")),
        policy=_policy(root.table("policy")),
        slots=_slots(root.table("slots")),
    )
    head.finish()
    root.finish()
    return job


def _token(table: Table) -> int:
    text = table.text("token")
    if not _TOKEN.match(text) or int(text, 16) == 0:
        raise table.error("token", "must be 16 hexadecimal digits, not all zero; make one with `openssl rand -hex 8`")
    return int(text, 16)


def _members(tables: Sequence[Table], kind: str, first_rank: int) -> tuple[Member, ...]:
    members: list[Member] = []
    for rank, table in enumerate(tables, first_rank):
        member = Member(table.integer("rank", 0, 65535), table.name("host"), table.address("address"))
        if member.rank != rank:
            start = f"{kind}s' ranks count from {first_rank}" + (", after the workers'" if first_rank else "")
            raise table.error("rank", f"is {member.rank}; it must be {rank}: the {start}, in the order of the file")
        table.finish()
        members.append(member)
    return tuple(members)


def _check_distinct(root: Table, members: Sequence[Member]) -> None:
    by_host: dict[str, int] = {}
    by_address: dict[IPv4Address, int] = {}
    for member in members:
        other = by_host.setdefault(member.host, member.rank)
        if other != member.rank:
            raise root.error(
                "", f"ranks {other} and {member.rank} are both on host {member.host!r}; a host has one rank"
            )
        other = by_address.setdefault(member.address, member.rank)
        if other != member.rank:
            raise root.error("", f"ranks {other} and {member.rank} both have address {member.address}; one each")


def _transport(table: Table, aggregators: int) -> Transport:
    wire = table.choice("wire", tuple(ELEMENT_BYTES), "float32")
    slice_bytes = table.integer("slice_bytes", 64, MAX_SLICE_BYTES, 1432)
    if slice_bytes % 4:
        raise table.error("slice_bytes", f"is {slice_bytes}; it must be a multiple of 4, e.g. 1432")
    multicast = table.multicast_address("multicast", aggregators) if table.has("multicast") else None
    buffer = table.quantity("buffer", parse_size, DEFAULT_BUFFER)
    transport = Transport(
        rate=table.quantity("rate", parse_rate),
        buffer=buffer,
        slice_bytes=slice_bytes,
        wire=wire,
        multicast=multicast,
        tagging=table.choice("tagging", ("switch", "host"), "switch"),
        trace_every=table.integer("trace_every", 0, MAX_TRACE_EVERY, DEFAULT_TRACE_EVERY),
    )
    table.finish()
    return transport


def _loss(table: Table) -> Loss:
    loss = Loss(table.fraction("push", 0.0), table.fraction("pull", 0.0))
    table.finish()
    return loss


def _policy(table: Table) -> Policy:
    policy = Policy(
        priority=table.boolean("priority", True),
        queue_classes=_queue_classes(table.tables("queue_classes")),
        drop_precedences=_drop_precedences(table.tables("drop_precedences")),
        yellow=table.integer("yellow", 1, 7, 2),
        red=table.integer("red", 1, 7, 1),
        weight=table.integer("weight", 1, MAX_WEIGHT, 1),
        on_congestion=table.choice("on_congestion", ("drop", "trim"), "drop"),
        spray=table.boolean("spray", True),
    )
    if policy.yellow < policy.red:
        raise table.error(
            "yellow",
            f"is {policy.yellow}, below red = {policy.red}; the second threshold (red) must drop at least what the "
            "first (yellow) drops, so yellow >= red",
        )
    table.finish()
    return policy


def _queue_classes(tables: Sequence[Table]) -> tuple[QueueClass, ...]:
    rows: list[QueueClass] = []
    for table in tables:
        row = QueueClass(table.span("layers", 0, MAX_LAYER), table.integer("class", 0, HIGHEST_GRADIENT_CLASS))
        table.finish()
        for other in rows:
            if _overlap(row.layers, other.layers):
                raise table.error(
                    "layers", f"{list(row.layers)} overlaps {list(other.layers)}; ranges must be disjoint"
                )
        rows.append(row)
    return tuple(rows)


def _drop_precedences(tables: Sequence[Table]) -> tuple[DropPrecedence, ...]:
    rows: list[DropPrecedence] = []
    for table in tables:
        row = DropPrecedence(
            layers=table.span("layers", 0, MAX_LAYER, (0, MAX_LAYER)),
            magnitudes=table.span("magnitudes", 0, MAX_MAGNITUDE),
            drop_precedence=table.integer("drop_precedence", 1, 7),
        )
        table.finish()
        for other in rows:
            if _overlap(row.layers, other.layers) and _overlap(row.magnitudes, other.magnitudes):
                raise table.error(
                    "magnitudes",
                    f"{list(row.magnitudes)} of layers {list(row.layers)} overlaps {list(other.magnitudes)} of layers "
                    f"{list(other.layers)}; ranges must be disjoint",
                )
        rows.append(row)
    return tuple(rows)


def _overlap(a: tuple[int, int], b: tuple[int, int]) -> bool:
    return a[0] <= b[1] and b[0] <= a[1]


def _slots(table: Table) -> Slots:
    slots = Slots(table.integer("base", 0, BUDGET_SLOTS - 1, 0), table.integer("mask", 0, BUDGET_SLOTS - 1, 4095))
    if slots.mask & (slots.mask + 1):
        raise table.error("mask", f"is {slots.mask}; it must be 2^n - 1, e.g. 4095")
    if slots.last >= BUDGET_SLOTS:
        raise table.error("base", f"is {slots.base}; base + mask must be below {BUDGET_SLOTS}, and is {slots.last}")
    table.finish()
    return slots
