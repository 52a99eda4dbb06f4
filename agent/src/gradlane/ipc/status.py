# SPDX-License-Identifier: Apache-2.0
"""What an agent reports about itself: the answer to `gradlane status --json`, and what top and the metrics show.

Counts are cumulative since the job was joined; their names are explained in docs/protocol.md. Keys that an agent does
not know are absent.
"""

from typing import Any, TypedDict

Counts = dict[str, int]


class Hop(TypedDict):
    """What a switch wrote into a trace: the ports by which it came and went, and the queue in between.

    `depth` is in `depth_unit` ("packets" or "bytes"), as the trace left the queue; `wait_us` is its time there.
    """

    switch: int
    ingress_port: int
    egress_port: int
    queue_class: int
    color: str
    depth: int
    depth_unit: str
    wait_us: float


class PeerStatus(TypedDict, total=False):
    """Another rank of the job. `rate`: pacing towards it, bit/s; `heard_seconds`: since its agent was heard.

    `paths`: how many traces took which path through the fabric; `hops`: what the latest one met.
    """

    host: str
    address: str
    control: str
    heard_seconds: float
    rate: int
    srtt_us: int
    paths: dict[str, int]
    hops: list[Hop]
    counts: Counts


class ClassStatus(TypedDict, total=False):
    """One loss class, with the tolerated fractions of loss of the two halves.

    `layers`: first and last; absent: all that no other class has.
    """

    layers: list[int]
    push: float
    pull: float
    counts: Counts


class MemoryStatus(TypedDict):
    """Bytes of contributions that wait for slower workers, and how many may."""

    used: int
    limit: int


class StragglerStatus(TypedDict):
    """A worker that has been late: in `late_steps` of the latest `steps`, by quartiles of its lateness in s; or a host
    whose link is slow.

    `straggler`: it is late so often that it is called one. `link`: what its slow link carries, bit/s; None: it is not.
    """

    rank: int
    name: str
    straggler: bool
    steps: int
    late_steps: int
    low: float
    median: float
    high: float
    link: float | None


class LeftOutStatus(TypedDict):
    """A worker that steps went on without: so many since the job began, and `recent` of the last `window`, in which
    `budget` are allowed. As one owner of parts knows it."""

    rank: int
    name: str
    steps: int
    recent: int
    budget: int
    window: int


class OwnershipStatus(TypedDict):
    """How steps are reduced from step `first` on, and why: which share of every tensor these ranks have, by which
    `algorithm` exact ones of at least `least` bytes are reduced; `straggler`: whom StragglAR leaves out, or None.
    """

    ranks: list[int]
    shares: list[float]
    algorithm: str
    straggler: int | None
    least: int
    first: int
    reason: str


class WaitStatus(TypedDict):
    """For a rank, in seconds, by an operation (`what`) that makes no progress."""

    seconds: float
    what: str


class SumsStatus(TypedDict):
    """Of a job whose gradients a switch sums: whether it does now, since when (Unix time) and why; in which generation.

    `halts`: how often all asked one another how far they are, as a sum was missing; `fallbacks`: how often hosts took
    over then. `share`: of the bytes reduced so far, those by the switch.
    """

    by_switch: bool
    reason: str
    since: float
    generation: int
    halts: int
    fallbacks: int
    share: float


class _Job(TypedDict):
    id: int
    rank: int
    state: str
    since: float
    counts: Counts
    peers: dict[str, PeerStatus]


class JobStatus(_Job, total=False):
    """A job at this host. `since`: Unix time; `in_flight`: collectives that are not complete.

    `late`: who holds it up, if anybody does. `waits`: for which ranks this one waits, from the first second on. `dead`:
    ranks without which the job goes on, and why. `conditions`: the paths' `rate` (bit/s) and `latency` (one-way delay,
    s), measured when the job was joined. `shards`: engines that the job has at each host.
    """

    step: int
    in_flight: int
    late: str
    dead: dict[str, str]
    slice_bytes: int
    shards: int
    conditions: dict[str, float]
    memory: MemoryStatus
    stragglers: list[StragglerStatus]
    ownership: OwnershipStatus
    sums: SumsStatus
    left_out: list[LeftOutStatus]
    waits: dict[str, WaitStatus]
    classes: list[ClassStatus]


class _Agent(TypedDict):
    version: str
    addresses: list[str]
    pid: int
    started: float
    clients: int
    ended: int
    failed: int
    log_lines_lost: int
    limits: dict[str, int]
    jobs: dict[str, JobStatus]


class AgentStatus(_Agent, total=False):
    """The agent as a whole. `started`: Unix time; `ended`, `failed`: jobs since then.

    `jobs`: by name, with the id behind it where several have the same name. `transport`: what is counted of all jobs'
    datagrams; `control`: what became of other agents' calls. `controller`: the `url` of the one that it
    reports to, and the `problem` if it can't; None: it reports to none.
    """

    transport: dict[str, Any]
    control: Counts
    controller: dict[str, str] | None
