# SPDX-License-Identifier: Apache-2.0
"""What the program simulates: the dataclasses here are its input, as JSON. Times are in ns, sizes in bytes, rates in
bit/s."""

import math
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from gradlane import wire
from gradlane_sim import groups as grouping
from gradlane_sim.carriers import Carrier, Gradlane, Rival
from gradlane_sim.errors import SpecificationError, need
from gradlane_sim.groups import Asked, Groups

Json: TypeAlias = dict[str, Any]
SECOND = 1_000_000_000
# A frame's bytes beside its IPv4 packet, as switches count them: Ethernet's header.
FRAMING = 14
MAX_HOSTS = 4096
MAX_RATE = 800_000_000_000
MAX_LIMIT = 3600 * SECOND


@dataclass(frozen=True)
class Link:
    """Between nodes `a` and `b`. `buffer`: of the port at either end. `loss`: of what goes over it, by chance.

    `stated`: the rate that the fabric file and the job files have of it; 0: what it carries."""

    a: int
    b: int
    rate: int
    delay: int
    buffer: int
    loss: float = 0.0
    stated: int = 0

    @property
    def name(self) -> str:
        return f"link {self.a}-{self.b}"

    @property
    def file_rate(self) -> int:
        """That of the files."""
        return self.stated or self.rate


@dataclass(frozen=True)
class Queue:
    """What the ports of switches do with packets, and the settings of that: fabric.queue of the program's input."""

    kind: str = "priority"
    settings: tuple[tuple[str, Any], ...] = ()

    def to_json(self) -> Json:
        return {
            "kind": self.kind,
            **{key: list(value) if isinstance(value, tuple) else value for key, value in self.settings},
        }


@dataclass(frozen=True)
class Fabric:
    """Hosts are the nodes from 0 on, then come the switches; `tiers` are the switches' numbers, by their distance from
    hosts."""

    name: str
    hosts: int
    tiers: tuple[range, ...]
    links: tuple[Link, ...]
    queue: Queue = Queue()

    def __post_init__(self) -> None:
        need(1 <= self.hosts <= MAX_HOSTS, f"fabric {self.name} has {self.hosts} hosts; 1 to {MAX_HOSTS} are possible")
        links = [0] * self.nodes
        for it in self.links:
            for end in (it.a, it.b):
                need(0 <= end < self.nodes, f"{it.name} ends at node {end}; nodes are 0 to {self.nodes - 1}")
                links[end] += 1
            need(0 < it.rate <= MAX_RATE, f"{it.name} has {it.rate} bit/s; it must be 1 to {MAX_RATE}")
            need(0 <= it.stated <= MAX_RATE, f"{it.name} is said to have {it.stated} bit/s; it must be 0 to {MAX_RATE}")
            need(it.delay >= 0, f"{it.name} has a delay of {it.delay} ns; it must be 0 or more")
            need(
                it.buffer >= 3000, f"{it.name} has a buffer of {it.buffer} bytes; it must hold two frames: 3000 or more"
            )
            need(0 <= it.loss < 1, f"{it.name} loses {it.loss}; it must be in [0, 1)")
        for host in range(self.hosts):
            need(links[host] == 1, f"host {host} has {links[host]} links; it must have one")

    @property
    def switches(self) -> int:
        return sum(len(tier) for tier in self.tiers)

    @property
    def nodes(self) -> int:
        return self.hosts + self.switches

    def link(self, a: int, b: int) -> Link:
        """Raises SpecificationError if there is none."""
        for it in self.links:
            if {it.a, it.b} == {a, b}:
                return it
        raise SpecificationError(f"nodes {a} and {b} have no link")

    def with_link(self, a: int, b: int, **changes: Any) -> "Fabric":
        """The same with one link changed: a slow one, or one that loses packets."""
        old = self.link(a, b)
        new = replace(old, **changes)
        return replace(self, links=tuple(new if it is old else it for it in self.links))

    def to_json(self) -> Json:
        links = [
            {"a": it.a, "b": it.b, "rate": it.rate, "delay": it.delay, "buffer": it.buffer, "loss": it.loss}
            for it in self.links
        ]
        shape = {"hosts": self.hosts, "switches": self.switches, "framing": FRAMING}
        return {**shape, "queue": self.queue.to_json(), "links": links}


@dataclass(frozen=True)
class Tensor:
    """Gradients that are reduced at once: ready so long after a step's computation began. `layer`: of its first
    element."""

    ready: int
    bytes: int
    layer: int


@dataclass(frozen=True)
class Job:
    """A training job. `members`: the hosts of its ranks: workers, then `servers` of them. `compute`: of a step;
    `delays`: what workers take longer, by step and rank; `check`: results are compared with the exact mean; `warm`:
    steps that come first, and are not measured. `weights`: of the owners' shares of what is reduced directly; empty:
    equal ones. `groups`: after its computation a worker averages all tensors in one of these; None: all reduce with
    all."""

    id: int
    members: tuple[int, ...]
    carrier: Carrier
    tensors: tuple[Tensor, ...]
    steps: int = 1
    servers: int = 0
    compute: int = 0
    algorithm: str = "direct"
    start: int = 0
    delays: tuple[tuple[int, ...], ...] = ()
    check: bool = False
    warm: int = 0
    weights: tuple[int, ...] = ()
    groups: Groups | None = None

    def __post_init__(self) -> None:
        name = f"job {self.id}"
        need(1 <= self.id <= 65535, f"{name}: its number must be 1 to 65535")
        need(
            self.workers >= 1,
            f"{name} has {len(self.members)} members, {self.servers} of them servers; it needs a worker",
        )
        need(len(set(self.members)) == len(self.members), f"{name} has a host twice; a host has one rank of a job")
        need(
            len(self.members) <= wire.MAX_RANKS, f"{name} has {len(self.members)} ranks; {wire.MAX_RANKS} are possible"
        )
        need(self.steps >= 1, f"{name} has {self.steps} steps; it must have 1 or more")
        need(0 <= self.warm < self.steps, f"{name}: {self.warm} of {self.steps} steps are not measured; one has to be")
        sums = self.algorithm == "switch"
        need(
            not sums or isinstance(self.carrier, Gradlane),
            f"{name} is carried by a rival; its algorithm can't be 'switch'",
        )
        need(bool(self.tensors), f"{name} has no tensors; it must have 1 or more")
        need(
            self.algorithm in ALGORITHMS,
            f"{name}: algorithm {self.algorithm!r}; it must be one of {', '.join(ALGORITHMS)}",
        )
        need(not self.servers or self.algorithm == "direct", f"{name} has servers; then its algorithm must be direct")
        for it in self.tensors:
            need(
                it.bytes > 0 and it.bytes % 4 == 0,
                f"{name} has a tensor of {it.bytes} bytes; it must be a multiple of 4",
            )
            need(
                0 <= it.ready <= self.compute,
                f"{name}: a tensor is ready after {it.ready} ns of {self.compute} of a step",
            )
        if self.weights:
            owners = self.servers or self.workers
            need(
                len(self.weights) == owners and min(self.weights) >= 0 and any(self.weights),
                f"{name} has {len(self.weights)} weights; it must have {owners} from 0 on, one of them above 0",
            )
            direct = self.algorithm == "direct" and self.groups is None
            need(direct, f"{name} has weights; then its algorithm must be direct, and it has no groups")
        if self.groups is not None:
            self.groups.check(self.workers)
            need(not self.servers, f"{name} has groups; then it has no servers")
            need(self.algorithm != "stragglar", f"{name} has groups; then its algorithm can't be stragglar")
            ready = {it.ready for it in self.tensors}
            need(ready == {self.compute}, f"{name} has groups; then its tensors are ready when all is computed")
        for row in self.delays:
            need(
                len(row) == self.workers,
                f"{name} has {len(row)} delays in a step; it must have one for each of {self.workers}",
            )

    @property
    def workers(self) -> int:
        return len(self.members) - self.servers

    @property
    def bytes(self) -> int:
        """Of a step, of one worker."""
        return sum(it.bytes for it in self.tensors)

    def to_json(self, seed: int) -> Json:
        """But for "carrier"."""
        beside: Json = {"weights": list(self.weights)} if self.weights else {}
        if self.groups is not None:
            beside["groups"] = self.groups.to_json()
        return {
            **beside,
            "id": self.id,
            "members": list(self.members),
            "servers": self.servers,
            "steps": self.steps,
            "tensors": [{"ready": it.ready, "bytes": it.bytes, "layer": it.layer} for it in self.tensors],
            "compute": self.compute,
            "delays": [list(row) for row in self.delays],
            "start": self.start,
            "algorithm": self.algorithm,
            "check": self.check,
            "seed": seed,
        }


ALGORITHMS = ("direct", "ring", "stragglar", "grid", "switch")
Flow: TypeAlias = tuple[int, int, int, int]  # start (ns), from, to, bytes


@dataclass(frozen=True)
class Background:
    """Other traffic."""

    carrier: Rival
    flows: tuple[Flow, ...]

    def to_json(self) -> Json:
        return {"carrier": self.carrier.to_json(), "flows": [list(flow) for flow in self.flows]}


@dataclass(frozen=True)
class HostStops:
    """The others learn of it so much later, as their control connections' heartbeats tell."""

    host: int
    at: int
    named_after: int = 10 * SECOND

    def to_json(self) -> Json:
        return {"kind": "host", "host": self.host, "at": self.at, "named_after": self.named_after}


@dataclass(frozen=True)
class SwitchDies:
    """With all its links; `switch` is its node. `back`: when it is back, having forgotten everything; None: never."""

    switch: int
    at: int
    back: int | None = None

    def to_json(self) -> Json:
        found: Json = {"kind": "switch", "switch": self.switch, "at": self.at}
        return found if self.back is None else found | {"back": self.back}


@dataclass(frozen=True)
class LinkChanges:
    a: int
    b: int
    at: int
    up: bool

    def to_json(self) -> Json:
        return {"kind": "link", "a": self.a, "b": self.b, "at": self.at, "up": self.up}


@dataclass(frozen=True)
class Capture:
    """What a port (from 1 on) of a node sends and receives is written to `file`, for Wireshark."""

    node: int
    port: int
    file: str

    def to_json(self) -> Json:
        return {"node": self.node, "port": self.port, "file": self.file}


@dataclass(frozen=True)
class Specification:
    """One run of the program."""

    fabric: Fabric
    jobs: tuple[Job, ...]
    seed: int = 1
    background: Background | None = None
    faults: tuple[HostStops | SwitchDies | LinkChanges, ...] = ()
    limit: int = 60 * SECOND
    capture: Capture | None = None

    def __post_init__(self) -> None:
        need(0 < self.limit <= MAX_LIMIT, f"the limit is {self.limit} ns; it must be 1 to {MAX_LIMIT}")
        ids = [job.id for job in self.jobs]
        need(len(set(ids)) == len(ids), f"jobs have the numbers {ids}; each must have its own")
        need(
            bool(self.jobs) or self.background is not None, "there is nothing to simulate: neither a job nor background"
        )
        for job in self.jobs:
            for host in job.members:
                need(
                    0 <= host < self.fabric.hosts,
                    f"job {job.id} has host {host}; hosts are 0 to {self.fabric.hosts - 1}",
                )
        for fault in self.faults:
            if isinstance(fault, LinkChanges):
                self.fabric.link(fault.a, fault.b)
            elif isinstance(fault, SwitchDies):
                is_switch = self.fabric.hosts <= fault.switch < self.fabric.nodes
                numbers = f"{self.fabric.hosts} to {self.fabric.nodes - 1}"
                need(is_switch, f"switch {fault.switch} shall die; switches are nodes {numbers}")
                back = fault.at if fault.back is None else fault.back
                need(back >= fault.at, f"switch {fault.switch} is back after {back} ns, but dies after {fault.at}")
            else:
                need(
                    0 <= fault.host < self.fabric.hosts,
                    f"host {fault.host} shall stop; hosts are 0 to {self.fabric.hosts - 1}",
                )
        for start, a, b, size in self.background.flows if self.background else ():
            need(start >= 0 and size > 0, f"a flow of {size} bytes starts at {start} ns; neither may be negative")
            fits = 0 <= a < self.fabric.hosts and 0 <= b < self.fabric.hosts and a != b
            need(fits, f"a flow goes from {a} to {b}; it must be two of hosts 0 to {self.fabric.hosts - 1}")


def ideal_time(fabric: Fabric, job: Job) -> float:
    """Seconds of a step, if the busiest host's link never idles, and nobody is late: less is not possible for exact
    results by that algorithm, these shares or these groups."""
    rates = [fabric.links[host].rate for host in job.members]
    bits, compute = job.bytes * 8, job.compute / SECOND
    if job.groups is not None:
        times = max(bits * job.groups.transfers(worker) / rate for worker, rate in enumerate(rates))
        # What a worker sends of its own follows its computation; of its results, the next one may overtake it.
        return max(compute if job.groups.delay else compute + times / 2, times)
    if job.servers:
        return max(bits * job.workers / job.servers / min(rates), compute)
    weights = job.weights or (1,) * job.workers
    # A worker sends all parts but its own, and its own to all others.
    sent = [1 + (job.workers - 2) * weight / sum(weights) for weight in weights]
    return max(*(bits * times / rate for times, rate in zip(sent, rates, strict=True)), compute)


def packets(specification: Specification) -> int:
    """About how many are sent: what a run costs."""
    of_jobs = sum(job.steps * job.bytes * 2 * _sent(job) / job.carrier.payload for job in specification.jobs)
    flows = specification.background.flows if specification.background else ()
    return math.ceil(of_jobs + sum(size for *_, size in flows) / 1460)


def _sent(job: Job) -> float:
    """How many times its bytes all workers send in half of a step."""
    if job.groups is None:
        return job.workers * (1 if job.servers else 1 - 1 / job.workers)
    turn = 1 if isinstance(job.groups, Asked) else len(job.groups.partitions)
    return sum(size - 1 for size in grouping.sizes(job.groups, job.workers)) / turn
