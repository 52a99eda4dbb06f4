# SPDX-License-Identifier: Apache-2.0
"""The job file: who takes part in a training job, and what the network may do to its gradients.

The agent and the controller read the same file, so what they must agree on is defined here once.
"""

import functools
import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gradlane import toml_file, toml_lines, wire
from gradlane.job import loss, policy, sync, transport
from gradlane.job.loss import Loss
from gradlane.job.policy import Policy
from gradlane.job.racks import Racks
from gradlane.job.sync import Sync
from gradlane.job.transport import LANES, Transport
from gradlane.toml_file import Address, FileError, Table

BUDGET_SLOTS = 65536  # BUDGET_SLOTS of p4src/shared/types.p4
MAX_PROCESSES = 64  # GL_MAX_PROCESSES of core/exchange/exchange.h
MAX_RACK = 65535
DEATHS = ("end", "survive")
DEFAULT_PATIENCE = 60  # s
MIN_PATIENCE, MAX_PATIENCE = 10, 86_400

_KEY = re.compile(r"(?:[0-9A-Fa-f]{2}){16,64}\Z")
_ID = re.compile(r"^([ \t]*id[ \t]*=[ \t]*)([0-9]{1,9})(?![\w.])", re.MULTILINE)


class JobError(FileError):
    """A job file that can't be used."""


@dataclass(frozen=True)
class Member:
    """One rank of the job: a worker, or a server that aggregates for the workers.

    `processes`: the training processes of the job on that host, 1 for a server. `rack`: of a worker's, hosts of one
    number are near one another; None: that is not known.
    """

    rank: int
    host: str
    address: Address
    processes: int = 1
    rack: int | None = None


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
    """A training job. Ranks count from 0: the workers first, then the servers.

    `key` is the secret that the agents' control connections are authenticated with; b"": by certificates alone.
    `patience`: seconds that the job waits for a worker that is late, to join it or in an operation.
    `survives`: whether the job goes on without a rank that dies. `sync`: the scheme of `gradlane.sync`, if it has one.
    `text` is what the job was parsed from.
    """

    file: str
    name: str
    id: int
    key: bytes = field(repr=False)
    patience: int
    workers: tuple[Member, ...]
    servers: tuple[Member, ...]
    transport: Transport
    loss: Loss
    policy: Policy
    slots: Slots
    sync: Sync | None
    survives: bool
    text: str = field(repr=False, compare=False)

    @property
    def family(self) -> int:
        """The IP version of all members' addresses, 4 or 6."""
        return self.workers[0].address.version

    @property
    def processes(self) -> int:
        """Training processes on each worker's host."""
        return self.workers[0].processes

    @property
    def racks(self) -> Racks | None:
        """Where the workers are, if the file says so."""
        of = tuple(member.rack for member in self.workers if member.rack is not None)
        return Racks(of, self.transport.oversubscription) if of else None

    @property
    def members(self) -> tuple[Member, ...]:
        """Every rank, in rank order."""
        return self.workers + self.servers

    @property
    def aggregators(self) -> tuple[Member, ...]:
        """Who reduces: the servers, or without servers each worker its shard."""
        return self.servers or self.workers

    @property
    def changes_algorithm(self) -> bool:
        """Whether the plan of a step says by which algorithm exact tensors are reduced."""
        transport = self.transport
        plans = transport.collective == "auto" and transport.ownership == "adaptive"
        return plans and not self.servers and transport.multicast is None

    @property
    def can_be_cut(self) -> bool:
        """Whether its tensors may be spread over several engines of a host: where each can go its own way."""
        how, whole = self.transport, self.loss.late or self.loss.adaptive or self.servers or self.survives
        return how.ownership == "even" and how.multicast is None and not whole

    @functools.cached_property
    def digest(self) -> str:
        """Of what the agents of a job must agree on, whatever their files look like."""
        shared: list[object] = [self.name, self.id, self.patience, self.members]
        shared += [self.transport, self.loss, self.slots, self.sync, self.survives]
        if self.transport.tagging == "host":
            shared.append(self.policy)  # otherwise it is the controller's alone, and may change
        return hashlib.sha256(repr(shared).encode()).hexdigest()

    def error(self, key: str, reason: str, at: str = "") -> JobError:
        """The error for one key, to be raised by the caller. `at`: the key whose line it names, if it is another."""
        return JobError(self.file, key, reason, toml_lines.find(self.text, at or key))

    def member_error(self, rank: int, reason: str) -> JobError:
        """As `error`, for one rank."""
        server = rank - len(self.workers)
        return self.error(f"rank {rank}", reason, f"worker[{rank}]" if server < 0 else f"server[{server}]")

    def member(self, rank: int) -> Member:
        """The member of that rank. Raises JobError that names the job's ranks."""
        if not 0 <= rank < len(self.members):
            raise self.error("", f"job {self.name!r} has no rank {rank}: ranks are 0 to {len(self.members) - 1}")
        return self.members[rank]

    def name_of(self, rank: int) -> str:
        """A rank as errors name it, with its host and address. Raises as `member`."""
        member = self.member(rank)
        return f"rank {rank} ({member.host}, {member.address})"

    def multicast_address(self, aggregator: int) -> Address | None:
        """Where the aggregator of that index (in `aggregators`) sends its results; None: to each worker."""
        base = self.transport.multicast
        return base + aggregator if base is not None and self.sums_name_workers else None

    @property
    def multicast_addresses(self) -> int:
        """How many the job has, one after the other: of each aggregator's results, and of a switch's."""
        return 0 if self.transport.multicast is None else self._result_addresses + (self.sum_lanes is not None)

    @property
    def _result_addresses(self) -> int:
        return len(self.aggregators) if self.sums_name_workers else 0

    @property
    def sums_name_workers(self) -> bool:
        """Whether a switch's sums name the workers that are in them; of a larger job all are. True if none sums."""
        return self.sum_lanes is None or len(self.workers) <= transport.SUM_MEMBERS

    @property
    def sum_lanes(self) -> wire.Lanes | None:
        """What a switch adds up for the job; None: only hosts do."""
        return LANES.get(self.transport.wire)

    @property
    def sum_address(self) -> Address | None:
        """Where workers send what a switch shall sum, and it sends the sums: behind the aggregators' addresses."""
        base = self.transport.multicast
        return None if self.sum_lanes is None or base is None else base + self._result_addresses


def load(path: str | Path) -> Job:
    """Reads and validates a job file. Raises JobError."""
    return parse(toml_file.read(JobError, path), str(path))


def parse(text: str, file_name: str) -> Job:
    """Validates the text of a job file; errors name `file_name`. Raises JobError."""
    root = toml_file.parse(JobError, text, file_name)
    head = root.table("job")
    workers = _members(root.tables("worker"), "worker", 0)
    root.done()
    if not workers:
        raise root.error(
            "worker",
            "is missing: a job has at least one [[worker]] (only where torchrun starts it, they come from there)",
        )
    servers = _members(root.tables("server"), "server", len(workers))
    root.done()
    _check_together(root, workers + servers, len(workers))
    family = workers[0].address.version
    has_racks = _check_racks(root, workers)
    how = transport.parse(root.table("transport"), family, len(workers), len(servers), has_racks)
    job = Job(
        file=file_name,
        name=head.name("name"),
        id=head.integer("id", 1, 65535),
        key=_key(head) if head.has("key") else b"",
        patience=head.integer("patience", MIN_PATIENCE, MAX_PATIENCE, DEFAULT_PATIENCE),
        workers=workers,
        servers=servers,
        transport=how,
        loss=_loss(root, how, workers),
        policy=policy.parse(root.table("policy")),
        slots=_slots(root.table("slots")),
        sync=sync.parse(root.table("sync")) if root.has("sync") else None,
        survives=head.choice("deaths", DEATHS, "end") == "survive",
        text=text,
    )
    _check_survival(head, job)
    head.finish()
    root.finish()
    return job


def is_template(text: str, file_name: str) -> bool:
    """Whether a job file has no members yet: `fill` makes a whole one of it. Raises JobError."""
    root = toml_file.parse(JobError, text, file_name)
    return not root.tables("worker") and not root.tables("server")


def fill(template: str, workers: Sequence[tuple[str, str, int]]) -> str:
    """The text of a job file: the template's with a [[worker]] for each (host, address, processes), in rank order.

    Whatever these are, they become values of these keys; `parse` refuses wrong ones.
    """
    tables = [f"[[worker]]\nrank = {rank}\n" + _values(worker) for rank, worker in enumerate(workers)]
    return "\n".join([template, *tables])


def renumbered(template: str, path: str, number: int) -> str:
    """The template for another job of several that run at once: its id is that many greater. Raises JobError."""
    text, found = _ID.subn(lambda it: f"{it[1]}{int(it[2]) + number}", template)
    if found != 1:
        reason = "several jobs are made of this file, so `id = NUMBER` must be a line of its own, and the only one"
        raise JobError(path, "job.id", reason)
    return text


def _values(worker: Sequence[object]) -> str:
    """In JSON, of which strings and numbers are TOML."""
    keys = ("host", "address", "processes")
    return "".join(
        f"{key} = {json.dumps(value, ensure_ascii=False)}\n" for key, value in zip(keys, worker, strict=True)
    )


def _key(table: Table) -> bytes:
    text = table.text("key")
    if not _KEY.match(text) or int(text, 16) == 0:
        raise table.error(
            "key",
            "must be 32 to 128 hexadecimal digits, an even number, not all zero; make one with `openssl rand -hex 16`",
        )
    return bytes.fromhex(text)


def _members(tables: Sequence[Table], kind: str, first_rank: int) -> tuple[Member, ...]:
    members: list[Member] = []
    for rank, table in enumerate(tables, first_rank):
        with table.going_on():
            members.append(_member(table, kind, rank, first_rank))
    return tuple(members)


def _member(table: Table, kind: str, rank: int, first_rank: int) -> Member:
    member = Member(
        rank=table.integer("rank", 0, 65535),
        host=table.name("host"),
        address=table.ip_address("address"),
        processes=table.integer("processes", 1, MAX_PROCESSES, 1) if kind == "worker" else 1,
        rack=table.integer("rack", 0, MAX_RACK) if kind == "worker" and table.has("rack") else None,
    )
    if member.rank != rank:
        start = f"{kind}s' ranks count from {first_rank}" + (", after the workers'" if first_rank else "")
        raise table.error("rank", f"is {member.rank}; it must be {rank}: the {start}, in the order of the file")
    table.finish()
    return member


def _check_together(root: Table, members: Sequence[Member], workers: int) -> None:
    if len(members) > wire.MAX_RANKS:
        raise root.error("", f"has {len(members)} ranks; at most {wire.MAX_RANKS} are possible")
    by_host: dict[str, int] = {}
    by_address: dict[Address, int] = {}
    first = members[0]
    for member in members:
        if member.address.version != first.address.version:
            raise root.error(
                "",
                f"rank {first.rank} has the IPv{first.address.version} address {first.address}, rank {member.rank} the "
                f"IPv{member.address.version} address {member.address}; all must be of one family",
            )
        if member.rank < workers and member.processes != first.processes:
            raise root.error(
                "",
                f"ranks {first.rank} and {member.rank} have {first.processes} and {member.processes} processes; "
                "all workers must have the same number",
            )
        other = by_host.setdefault(member.host, member.rank)
        if other != member.rank:
            raise root.error(
                "", f"ranks {other} and {member.rank} are both on host {member.host!r}; a host has one rank"
            )
        other = by_address.setdefault(member.address, member.rank)
        if other != member.rank:
            raise root.error("", f"ranks {other} and {member.rank} both have address {member.address}; one each")


def _check_racks(root: Table, workers: Sequence[Member]) -> bool:
    """Whether workers have racks: all or none."""
    known = [member.rank for member in workers if member.rack is not None]
    if known and len(known) < len(workers):
        other = next(member.rank for member in workers if member.rack is None)
        raise root.error(
            f"worker[{other}].rack", f"is missing: rank {known[0]} has one, so each worker must say in which it is"
        )
    return bool(known)


def _check_survival(head: Table, job: Job) -> None:
    """Only a scheme that forms its groups on the way can do without a rank."""
    needs = (
        (job.sync is None or job.sync.scheme not in sync.SURVIVING, f"sync.scheme = {' or '.join(sync.SURVIVING)}"),
        (bool(job.servers), "no servers"),
        (job.processes > 1, "one process on each host (worker.processes)"),
        (job.transport.ownership == "adaptive", 'no transport.ownership = "adaptive"'),
        (job.sum_lanes is not None, "no switch that sums (transport.wire)"),
    )
    if job.survives and (missing := [what for lacks, what in needs if lacks]):
        raise head.error("deaths", f'is "survive", which goes with {missing[0]}')


def _loss(root: Table, how: Transport, workers: Sequence[Member]) -> Loss:
    table = root.table("loss")
    parsed = loss.parse(table)
    if how.wire in LANES:
        _check_sums(table, parsed, f"transport.wire is {how.wire!r}, for a switch that sums", len(workers))
    if parsed.late is None:
        return parsed
    if len(workers) == 1:
        raise table.error("late", "needs others that go on: the job has one worker")
    if how.collective not in ("auto", "direct", "switch"):
        raise table.error(
            "late", f"can't be with collective = {how.collective!r}, whose partial sums need every worker"
        )
    if root.has("sync"):
        raise table.error("late", "can't be with [sync], whose schemes have rules of their own for late workers")
    return parsed


def _check_sums(table: Table, parsed: Loss, asked: str, workers: int) -> None:
    rows = [(f"classes[{n}].", row.push, row.pull) for n, row in enumerate(parsed.classes)]
    for place, push, pull in (("", parsed.push, parsed.pull), *rows):
        if pull:
            raise table.error(f"{place}pull", f"is {pull}, but {asked}, and keeps a sum till all have it; it must be 0")
        if push and workers > transport.SUM_MEMBERS:
            most = transport.SUM_MEMBERS
            raise table.error(
                f"{place}push", f"is {push}, but {asked} of {workers} workers: of more than {most} it must be 0"
            )
    if parsed.adaptive is not None:
        raise table.error("adaptive", f"can't be: {asked}, and a phase is each worker's own, but the budget is all's")


def _slots(table: Table) -> Slots:
    slots = Slots(table.integer("base", 0, BUDGET_SLOTS - 1, 0), table.integer("mask", 0, BUDGET_SLOTS - 1, 4095))
    if slots.mask & (slots.mask + 1):
        raise table.error("mask", f"is {slots.mask}; it must be 2^n - 1, e.g. 4095")
    if slots.last >= BUDGET_SLOTS:
        raise table.error("base", f"is {slots.base}; base + mask must be below {BUDGET_SLOTS}, and is {slots.last}")
    table.finish()
    return slots
