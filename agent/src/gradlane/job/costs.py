# SPDX-License-Identifier: Apache-2.0
"""Which algorithm carries an all-reduce: a cost model of latency, bandwidth and the hosts' processors.

As in Thakur, Rabenseifner and Gropp, "Optimization of Collective Communication Operations in MPICH", 2005. It is a pure
function of what all ranks know alike, so all of them choose alike.

With n workers, s bytes, one-way latency alpha, a host's CPU time phi for an operation and gamma for what it sends and
receives at a time; with r rows of up to l members each in a grid, which are racks or parts of racks (racks.py):

             starts                  what a link carries              messages of a host
    direct   phi + 2 alpha           2 (n - 1) / n s                  2 (n - 1)
    ring     phi + 2 alpha + 2 gamma 2 (n - 1) / n s                  2 (n - 1)
    grid     phi + 4 alpha           v s, and more at first           2 (r - 1) + (l - 1) (r + 1)

Slices are pipelined, so the most of the following is added to that, and the rest is hidden: what the link carries, over
its rate and eta; the host's processor, messages times gamma and these bytes over PROCESSED; what the core carries
(below); and of a ring its 2 (n - 1) hops of alpha + gamma, as a part can't be sent on before it has come.

In a ring a single stream comes in at each port; otherwise m senders meet there, n - 1 directly and r + l - 2 in a grid,
whose rates never match quite: eta = 1 - contention (1 - 1 / m). In a grid a member pushes to its row at once, to r - 1
owners and back, and passes each of r results on to its row when it comes. So those of its row send it r times what
owners do. All have equal parts of its port at first, and it takes r (r + l - 2) / (n - 1) as long until these have
followed, for SETTLING. v is 2 (n - 1) / n where rows are of one length, and more where they are not. A grid is chosen
where it saves GAIN.

phi, gamma and PROCESSED are fitted to measurements (bench.agent.costs, docs/performance.md); all else is compared with
simulated networks, whose hosts need no time (docs/simulation.md).

Where a rack's links to others carry 1 / x of what its hosts can send, and the part c of what each worker sends to all
leaves its rack, bytes take 2 c x s / rate at least, directly. A row's contributions leave it as one sum, and results
come to it once, so a grid divides that by a row's mean length, n / r; a ring goes from rack to rack, and divides it by
the members of a mean rack. A job with servers uses them, and one that tolerates loss uses what has a budget: then the
model only says what to expect. With S servers, whose pushes and pulls cross the wire in opposite directions, it takes
phi + 2 alpha, max(1, n / S) s over the wire, and 2 max(n, S) messages. Below beta is the time of a byte, by the wire or
by the processor, whichever is more.

StragglAR (arXiv 2505.23523) depends on how late the straggler is. The others reduce meanwhile, directly; the rounds
that follow are one hop and one chunk each:

    reduce   alpha + (n - 2) gamma + (n - 2) / (n - 1) s beta        (n - 2 senders)
    merge    (n - 2 + ceil(log2 n)) (alpha + gamma + s beta / (n - 1))

It ends max(delay, reduce) + merge after the others are ready; any other algorithm, delay + its own time.

A switch that sums gets s' bytes of lanes from every worker, in slices of L bytes of which W may be on their way, and
sends as many back:

    switch   phi + alpha + 2 gamma + max(s' beta, s' alpha / (W L), n s' / (L SUMMED))

Its processor is the limit of fast links; that is so, too, for what hosts send through it, 2 (n - 1) s / (L FORWARDED)
at least. It is chosen where it saves GAIN of the time: what it sums is rounded to fixed point.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from gradlane.job.racks import Racks
from gradlane.job.racks import rows as rows_of

# Of one core, for an operation, and for each time that a host sends and receives something: a system call each, a
# wake-up or a part of one, answers.
START_SECONDS, MESSAGE_SECONDS = 15e-6, 28e-6
# bit/s that one core sends and receives at a time, in slices of 1,432 bytes.
PROCESSED = 14e9
# Of transport.contention, the part of a port that is lost when many senders meet there: an estimate.
CONTENTION = 0.03
# Slices in a second that one core of gradlane-switch sums, each worker's counted, and that it forwards: the least of
# docs/measurements/switch.md.
SUMMED, FORWARDED = 180_000, 230_000
# Until streams of a grid that end sooner have left their parts of a port to others: by simulation.
SETTLING = 5e-3
GAIN = 0.05  # of the time, that another way of reducing is worth


@dataclass(frozen=True)
class Conditions:
    """What was measured between the hosts. `rate`: bit/s; `latency`: one-way delay in seconds.

    `contention`: what the job file says is lost of a port where many senders meet, in [0, 1). `racks`: of the workers,
    None if nothing is known.
    """

    rate: float
    latency: float
    contention: float = CONTENTION
    racks: Racks | None = None

    def to_json(self) -> dict[str, float]:
        """What the status says of them."""
        return {"rate": self.rate, "latency": self.latency, "contention": self.contention}

    def among(self, ranks: Sequence[int]) -> "Conditions":
        """Between these workers."""
        return self if self.racks is None else replace(self, racks=self.racks.among(ranks))

    def efficiency(self, senders: int) -> float:
        """Of a port where so many meet."""
        return 1 - self.contention * (1 - 1 / max(1, senders))

    def carried(self, senders: int = 1) -> float:
        """Bit/s of a host where so many send to it, each no faster than its link and its processor."""
        return min(self.rate * self.efficiency(senders), PROCESSED)


@dataclass(frozen=True)
class Sums:
    """What a switch may sum: `nbytes` of lanes, in slices of `slice_bytes`, of which `window` may be on their way."""

    nbytes: int
    slice_bytes: int
    window: int


@dataclass(frozen=True)
class Choice:
    """`algorithm`: "direct", "ring", "grid" or "switch"; `reason`: why, for the log; `seconds`: by the model."""

    algorithm: str
    reason: str
    seconds: float


def work(algorithm: str, workers: int, racks: Racks | None = None) -> tuple[int, float]:
    """How often a host sends and receives something, and how many times an array's bytes."""
    if algorithm != "grid":
        return 2 * (workers - 1), 2 * (workers - 1) / workers
    rows = rows_of(workers, racks)
    count, longest = len(rows), max(rows)
    # A member reduces what its row contributes to these parts, and receives the other rows' sums of its own.
    received = max(-(-workers // length) * (length - 1) + count - 1 for length in set(rows))
    return 2 * (count - 1) + (longest - 1) * (count + 1), 2 * received / workers


def between_racks(algorithm: str, workers: int, racks: Racks | None) -> float:
    """How many times an array's bytes a host's link would carry in what links between racks take for them."""
    if racks is None:
        return 0.0
    together = {"grid": len(rows_of(workers, racks)), "ring": len(set(racks.of))}.get(algorithm, workers)
    return 2 * racks.across * racks.oversubscription * together / workers


def seconds(algorithm: str, nbytes: int, workers: int, conditions: Conditions) -> float:
    """What an all-reduce among hosts takes; `algorithm`: "direct", "ring" or "grid"."""
    messages, share = work(algorithm, workers, conditions.racks)
    bits = share * nbytes * 8
    core = nbytes * 8 * between_racks(algorithm, workers, conditions.racks) / conditions.rate
    begins, least = START_SECONDS + 2 * conditions.latency, max(core, processor(messages, bits))
    if algorithm == "ring":
        hop = conditions.latency + MESSAGE_SECONDS
        return begins + 2 * MESSAGE_SECONDS + max(_wire(bits, 1, conditions), least, messages * hop)
    if algorithm == "direct":
        return begins + max(_wire(bits, workers - 1, conditions), least)
    rows = rows_of(workers, conditions.racks)
    senders = max(rows) + len(rows) - 2
    wire = _wire(bits, senders, conditions)
    wire += max(0.0, len(rows) * senders / (workers - 1) - 1) * min(wire, SETTLING)
    return begins + 2 * conditions.latency + max(wire, least)


def _wire(bits: float, senders: int, conditions: Conditions) -> float:
    return bits / (conditions.rate * conditions.efficiency(senders))


def processor(messages: int, bits: float) -> float:
    """Seconds of a host's processor in an all-reduce beside START_SECONDS."""
    return messages * MESSAGE_SECONDS + bits / PROCESSED


def _direct(nbytes: int, workers: int, servers: int, conditions: Conditions) -> float:
    if not servers:
        return seconds("direct", nbytes, workers, conditions)
    bits = max(1.0, workers / servers) * nbytes * 8
    least = processor(2 * max(workers, servers), bits)
    return START_SECONDS + 2 * conditions.latency + max(_wire(bits, workers, conditions), least)


def _switch(it: Sums, workers: int, conditions: Conditions) -> float:
    slices = it.nbytes / it.slice_bytes
    bounds = it.nbytes * 8 / conditions.carried(), slices / it.window * conditions.latency, workers * slices / SUMMED
    return START_SECONDS + conditions.latency + 2 * MESSAGE_SECONDS + max(bounds)


def _check(nbytes: int, workers: int, conditions: Conditions, processes: int = 1) -> None:
    for name, value, least in (("nbytes", nbytes, 0), ("workers", workers, 1), ("processes", processes, 1)):
        if value < least:
            raise ValueError(f"{name} is {value}, it must be at least {least}")
    if conditions.rate <= 0 or conditions.latency < 0:
        raise ValueError(f"rate {conditions.rate} bit/s and latency {conditions.latency} s: it must be > 0 and >= 0")


@dataclass(frozen=True)
class StragglarTimes:
    """Seconds that StragglAR takes: until the others have reduced, and from there, or from the straggler's arrival, on.

    `break_even`: how late a straggler must be for it to end before ring and direct do; infinite where it never does.
    """

    reduce: float
    merge: float
    break_even: float


def stragglar(nbytes: int, workers: int, conditions: Conditions) -> StragglarTimes:
    """What the model expects of StragglAR for an all-reduce of `nbytes`.

    Raises ValueError where a number is out of range; `workers` is at least 2.
    """
    _check(nbytes, workers, conditions)
    if workers < 2:
        raise ValueError(f"workers is {workers}, it must be at least 2")
    bits, others = nbytes * 8, workers - 1
    rounds = workers - 2 + math.ceil(math.log2(workers))
    reduce = 0.0
    if others > 1:
        spread = bits / others / conditions.carried(others - 1)
        reduce = conditions.latency + (others - 1) * (MESSAGE_SECONDS + spread)
    merge = rounds * (conditions.latency + MESSAGE_SECONDS + bits / others / conditions.carried())
    best = min(_direct(nbytes, workers, 0, conditions), seconds("ring", nbytes, workers, conditions))
    return StragglarTimes(reduce, merge, max(0.0, reduce + merge - best) if merge < best else math.inf)


def choose(
    nbytes: int,
    workers: int,
    conditions: Conditions,
    *,
    processes: int = 1,
    servers: int = 0,
    tolerance: float = 0.0,
    uneven: bool = False,
    late: bool = False,
    sums: Sums | None = None,
) -> Choice:
    """The algorithm for an all-reduce of `nbytes` among `workers` hosts, with `servers` dedicated ones or none.

    `processes` per host reduce in shared memory before anything is sent, whichever algorithm follows. `tolerance`: the
    fraction of a message that may be lost; only the direct algorithm has a budget. `uneven`: owners may have unequal
    shares, as in a ring or a grid they can't; the model counts with equal ones. `late`: it need not wait for all
    workers, as these must. `sums`: what a switch would sum instead, None if it can't. Raises ValueError where a number
    is out of range.
    """
    _check(nbytes, workers, conditions, processes)
    inside = f"after {processes} processes of each host in shared memory, " if processes > 1 else ""
    hosts = _by_hosts(nbytes, workers, conditions, inside, servers, tolerance, uneven, late)
    if sums is None or workers == 1:
        return hosts
    forwarded = 2 * (workers - 1) * nbytes / sums.slice_bytes / FORWARDED
    best, switch = max(hosts.seconds, forwarded), _switch(sums, workers, conditions)
    compared = f"switch {switch * 1e3:.2f} ms, hosts {best * 1e3:.2f} ms"
    if switch * (1 + GAIN) < best:
        return Choice("switch", f"{inside}a switch: {compared} for {nbytes} bytes among {workers} hosts", switch)
    return Choice(hosts.algorithm, f"{hosts.reason}; {compared}", best)


def _by_hosts(
    nbytes: int,
    workers: int,
    conditions: Conditions,
    inside: str,
    servers: int,
    tolerance: float,
    uneven: bool,
    late: bool,
) -> Choice:
    """As `choose`; `inside`: what the reason begins with."""
    if workers == 1:
        return Choice("direct", f"{inside}nothing to send: one host", 0.0)
    direct = _direct(nbytes, workers, servers, conditions)
    others = ("ring", "grid") if workers > 3 else ("ring",)  # fewer are one row
    times = {"direct": direct} | {name: seconds(name, nbytes, workers, conditions) for name in others}
    if servers:
        return Choice("direct", f"{inside}the job's {servers} servers: {direct * 1e3:.2f} ms expected", direct)
    expected = ", ".join(f"{name} {each * 1e3:.2f} ms" for name, each in times.items())
    compared = f"{expected} for {nbytes} bytes among {workers} hosts"
    if conditions.racks is not None:
        compared += f" in {len(set(conditions.racks.of))} racks, oversubscription {conditions.racks.oversubscription:g}"
    if workers == 2:
        return Choice("direct", f"{inside}direct: with two hosts a ring is the same ({compared})", direct)
    if tolerance > 0:
        return Choice(
            "direct", f"{inside}direct: up to {tolerance:.1%} may be lost, otherwise nothing ({compared})", direct
        )
    if late:
        return Choice("direct", f"{inside}direct: no other leaves anybody out ({compared})", direct)
    if uneven:
        return Choice("direct", f"{inside}direct: others have equal shares only ({compared})", direct)
    best = min(times, key=times.__getitem__)
    if best == "grid":  # of its two hops more, what a busy host makes of them is not counted
        other = min(("direct", "ring"), key=times.__getitem__)
        best = best if times[best] * (1 + GAIN) < times[other] else other
    return Choice(best, f"{inside}{best}: {compared}", times[best])
