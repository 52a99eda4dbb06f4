# SPDX-License-Identifier: Apache-2.0
"""Sums of workers' gradients in switches: in which ones, in which of their slots, and who contributes to what."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from ipaddress import IPv6Address, IPv6Network
from typing import Any

from finsy import Action, Match, P4TableAction, P4TableEntry

from gradlane.job import Job, JobError
from gradlane.job.transport import SUM_SLOTS
from gradlane.toml_file import Address
from gradlane_controller.data_plane import BUCKETS
from gradlane_controller.network.fabric import Fabric
from gradlane_controller.network.links import End, probe_address
from gradlane_controller.policy.entities import Entity, group_number, mapped
from gradlane_controller.policy.members import Children, Members, children_of, crowd, has_others
from gradlane_controller.policy.trees import Tree, Ways, find_trees

SUM_TABLES = ("sum_trees", "subtrees", "contributors")
BECAME_OTHERS = (
    "its trees have become others with the fabric file, and with more than 32 workers what is on its way could be "
    "taken for a sum of others; end it, take it out, and put it in again"
)
_NOBODY = IPv6Network("100::/64")  # of no host (RFC 6666)
_OF_PART = (
    "job", "bucket", "all", "here", "slot_base", "slot_mask", "ingress_port", "workers", "bits", "source", "member",
)  # fmt: skip
_Part = tuple[tuple[str, object], ...]


@dataclass(frozen=True)
class Sums:
    """Along which trees a job is summed, and its slots: from `base` on as many as its file wants, a multiple of which
    `base` is; the same at every switch of its trees. `children`: of each switch, if these have the bits."""

    base: int
    trees: tuple[Tree, ...] = ()
    children: Children = field(default_factory=dict[str, tuple[str, ...]])

    @property
    def switches(self) -> frozenset[str]:
        """Those at which it has slots."""
        return frozenset(name for tree in self.trees for name in tree.beneath)


def place(fabric: Fabric, job: Job) -> tuple[tuple[Tree, ...], str]:
    """The trees along which switches sum a job's gradients, or none, and why there is none."""
    if job.sum_lanes is None:
        return (), "its file does not ask for it"
    edges = sorted({port.switch for port in fabric.host_ports(member.host for member in job.workers)})
    for edge in edges:
        if not fabric.aggregates(edge):
            return (), f"switch {edge!r} has no `aggregation = true` in {fabric.file}"
        if _gateway(fabric, edge, job.family) is None:
            key = "gateway" if job.family == 4 else "gateway6"
            return (), f"no port of switch {edge!r} has a `{key}` in {fabric.file}, from which results could come"
    trees = find_trees(fabric, edges)
    if not trees:
        names = " and ".join(map(repr, edges))
        return (), f"no path leads from {names} to one switch over such with `aggregation = true` in {fabric.file}"
    children = children_of(fabric, job, trees)
    crowded = [crowd(job, tree, children) for tree in trees]
    fit = tuple(tree for tree, reason in zip(trees, crowded, strict=True) if not reason)
    return fit, "" if fit else crowded[0]


def _gateway(fabric: Fabric, switch: str, family: int) -> tuple[str, Address] | None:
    """Of a port of the switch that has one of that family: the switch's own addresses there."""
    gateways = ((port.mac, port.gateway if family == 4 else port.gateway6) for port in fabric.ports_at(switch))
    return next(((mac, address) for mac, address in gateways if address is not None), None)


def assign_slots(
    fabric: Fabric, jobs: Iterable[Job], known: Mapping[int, Sums], withheld: Collection[int]
) -> tuple[dict[int, Sums], frozenset[int]]:
    """By job id, trees and slots of all that are summed: the known slots if they suit, in that order, else the lowest
    that are free. And the ids of those that are not, as they BECAME_OTHERS, now or before (`withheld`).

    Raises JobError for a job that does not fit beside the others.
    """
    wanted: dict[int, tuple[Job, Sums]] = {}
    others: set[int] = set()
    for job in jobs:
        trees, _ = place(fabric, job)
        children = {} if job.sums_name_workers else children_of(fabric, job, trees)
        found = known.get(job.id)
        if job.id in withheld or (found is not None and has_others(job, found.children, children)):
            others.add(job.id)
        elif trees:
            wanted[job.id] = job, Sums(0, trees, children)
    kept: dict[int, tuple[Job, Sums]] = {}
    for number, found in known.items():
        if number in wanted:
            job, anywhere = wanted[number]
            sums = replace(anywhere, base=found.base)
            if _fits(sums, job, kept.values()):
                kept[number] = job, sums
    for number, (job, anywhere) in wanted.items():
        if number not in kept:
            free = (replace(anywhere, base=base) for base in range(0, SUM_SLOTS, job.transport.sum_slots))
            sums = next((sums for sums in free if _fits(sums, job, kept.values())), None)
            if sums is None:
                raise _too_many(job, anywhere.switches, kept.values())
            kept[number] = job, sums
    return {number: sums for number, (_, sums) in kept.items()}, frozenset(others)


def _fits(sums: Sums, job: Job, others: Iterable[tuple[Job, Sums]]) -> bool:
    size = job.transport.sum_slots
    return (
        sums.base % size == 0
        and 0 <= sums.base <= SUM_SLOTS - size
        and all(
            sums.switches.isdisjoint(taken.switches)
            or sums.base + size <= taken.base
            or taken.base + other.transport.sum_slots <= sums.base
            for other, taken in others
        )
    )


def _too_many(job: Job, switches: frozenset[str], others: Iterable[tuple[Job, Sums]]) -> JobError:
    taken = [f"{other.transport.sum_slots} of job {other.name!r}" for other, sums in others if sums.switches & switches]
    where = "switch " if len(switches) == 1 else "each of "
    return job.error(
        "transport.sum_slots",
        f"is {job.transport.sum_slots}, but so many in a row are not free of the {SUM_SLOTS} slots that "
        f"{where}{', '.join(map(repr, sorted(switches)))} has for sums, beside {', '.join(taken)}; take fewer, or "
        "another collective than 'switch'",
    )


@dataclass(frozen=True)
class HeldSums:
    """What a switch holds for sums: first slots by job id, its epoch if it has any, and its parts in jobs' trees, but
    for the ways, which change."""

    bases: Mapping[int, int]
    epoch: int | None
    parts: frozenset[_Part]

    def others(self, wanted: "HeldSums") -> set[int]:
        """Ids of jobs of which it holds bits that are not what is wanted of it."""
        return {int(str(dict(part)["job"])) for part in self._bits() - wanted._bits()}

    def _bits(self) -> frozenset[_Part]:
        """Without slots, which are a job's whatever the bits stand for."""
        return frozenset(tuple(it for it in part if not it[0].startswith("slot_")) for part in self.parts)

    @staticmethod
    def of(entities: Iterable[Entity]) -> "HeldSums":
        """Among all that it holds, or should."""
        bases: dict[int, int] = {}
        epoch: int | None = None
        parts: set[tuple[tuple[str, object], ...]] = set()
        for it in entities:
            if not isinstance(it, P4TableEntry) or it.table_id not in SUM_TABLES or not it.match:
                continue
            values: dict[str, Any] = {**it.match, **(it.action.args if isinstance(it.action, P4TableAction) else {})}
            if "source" in values:
                values["source"] = int(IPv6Address(values["source"]))
                values.pop("ingress_port", None)  # a host has the same bit at whatever port of the switch
            if "epoch" in values:
                bases[values["job"]], epoch = values["slot_base"], values["epoch"]
            parts.add(tuple((name, values[name]) for name in _OF_PART if name in values))
        return HeldSums(bases, epoch, frozenset(parts))


class SummedJob:
    """What switches have to hold for a job that they sum; `down`, `lacking`, `loads` and `avoided` as Ways takes
    them."""

    def __init__(
        self,
        fabric: Fabric,
        job: Job,
        sums: Sums,
        down: Collection[End],
        lacking: Collection[str],
        loads: Mapping[End, float],
        avoided: Collection[str] = (),
    ) -> None:
        self.job, self.sums, self._fabric = job, sums, fabric
        self.ways = Ways(fabric, sums.trees, down, lacking, loads, avoided)
        self._workers = list(zip(job.workers, fabric.host_ports(it.host for it in job.workers), strict=True))
        self._members = Members(job, sums.children, self._workers)

    def entries(self, switch: str, epoch: int) -> list[Entity]:
        """Whose gradients and whose partial sums this switch adds up, and where sums go, for each bucket.

        `epoch`: 1 to 255, another one when the switch has lost what it had summed.
        """
        if switch not in self.sums.switches:
            return []
        own, address = self._source(switch)
        groups = self.groups(switch)
        found: list[Entity] = [
            P4TableEntry(
                "contributors",
                match=Match(ingress_port=port.number, source=mapped(worker.address), job=self.job.id),
                action=Action("contribute", member=self._members.of(switch, worker)),
            )
            for worker, port in self._workers
            if port.switch == switch
        ]
        children = {child: tree for tree in self.sums.trees for child in tree.children.get(switch, ())}
        found += [
            P4TableEntry(
                "subtrees",
                match=Match(ingress_port=link.peer_number, job=self.job.id),
                action=self._members.partial(tree, switch, child),
            )
            for child, tree in sorted(children.items())
            for link in self.ways.links(child, switch)
        ]
        for bucket in range(BUCKETS):
            tree = self.ways.tree(switch, bucket)
            parent = tree.parents.get(switch)
            action = Action(
                "sum_at",
                all=self._members.everybody,
                here=self._members.here(tree, switch),
                up=0 if parent is None else self.ways.link(switch, parent, bucket).number,
                group=groups[self._replicas(switch, bucket)],
                slot_base=self.sums.base,
                slot_mask=self.job.transport.sum_slots - 1,
                own=own,
                address=mapped(address),
                epoch=epoch,
            )
            found.append(P4TableEntry("sum_trees", match=Match(job=self.job.id, bucket=bucket), action=action))
        return found

    def groups(self, switch: str) -> dict[tuple[int, ...], int]:
        """The numbers of multicast groups by their ports: results go to workers here and to children, never up."""
        if switch not in self.sums.switches:
            return {}
        replicas = dict.fromkeys(self._replicas(switch, bucket) for bucket in range(BUCKETS))
        return {ports: group_number(self.job, self.job.multicast_addresses - 1 + n) for n, ports in enumerate(replicas)}

    def _replicas(self, switch: str, bucket: int) -> tuple[int, ...]:
        down = {
            self.ways.link(child, switch, bucket).peer_number
            for child in self.ways.tree(switch, bucket).children[switch]
        }
        return tuple(sorted({port.number for _, port in self._workers if port.switch == switch} | down))

    def _source(self, switch: str) -> tuple[str, Address]:
        """The addresses of what the switch makes. Where it goes to hosts, that is an address which none of them has:
        a Linux kernel takes nothing that comes from itself, as it would seem to whoever contributed last."""
        found = _gateway(self._fabric, switch, self.job.family)
        if found is not None:
            return found
        where = next(it for it in self._fabric.switches if it.name == switch)
        address = probe_address(where) if self.job.family == 4 else _NOBODY[where.index]
        return next(self._fabric.link_ports_at(switch)).mac, address
