# SPDX-License-Identifier: Apache-2.0
"""Which algorithm carries an all-reduce: a cost model of latency and bandwidth (Hockney's alpha-beta model).

As in Thakur, Rabenseifner and Gropp, "Optimization of Collective Communication Operations in MPICH", 2005. It is a pure
function of what all ranks know alike, so all of them choose alike.

With n workers, s bytes, one-way latency alpha, beta = 1 / rate, a fixed cost gamma per message at either end, and
port efficiency eta (below):

    direct   2 alpha + 2 (n - 1) gamma + 2 (n - 1) / n s beta / eta
    ring     2 (n - 1) (alpha + gamma) + 2 (n - 1) / n s beta

Slices are pipelined, so each pays for its bytes once and for its latency once. In a ring a single stream comes in at
each port; otherwise n - 1 senders meet there, whose rates never match quite: eta = 1 - contention (1 - 1 / (n - 1)). A
job with servers uses them, and one that tolerates loss uses what has a budget: then the model only says what to expect.
With S servers, whose pushes and pulls cross the wire in opposite directions:

    servers  2 alpha + 2 max(n, S) gamma + max(1, n / S) s beta / eta

StragglAR (arXiv 2505.23523) depends on how late the straggler is. The others reduce meanwhile, directly; the rounds
that follow are one hop and one chunk each:

    reduce   alpha + (n - 2) gamma + (n - 2) / (n - 1) s beta / eta'        (eta' of n - 2 senders)
    merge    (n - 2 + ceil(log2 n)) (alpha + gamma + s beta / (n - 1))

It ends max(delay, reduce) + merge after the others are ready; any other algorithm, delay + its own time.

A switch that sums gets s' bytes of lanes from every worker, in slices of L bytes of which W may be on their way, and
sends as many back:

    switch   alpha + 2 gamma + max(s' beta, s' alpha / (W L), n s' / (L SUMMED))

Its processor is the limit of fast links; that is so, too, for what hosts send through it, 2 (n - 1) s / (L FORWARDED)
at least. It is chosen where it saves GAIN of the time: what it sums is rounded to fixed point.
"""

import math
from dataclasses import dataclass

# Of a host's time for each message: its state, its answers. About what two engines spend on a message of one slice.
MESSAGE_SECONDS = 10e-6
# Of transport.contention, the part of a port that is lost when many senders meet there: an estimate.
CONTENTION = 0.03
# Slices in a second that one core of gradlane-switch sums, each worker's counted, and that it forwards: the least of
# docs/measurements/switch.md.
SUMMED, FORWARDED = 180_000, 230_000
GAIN = 0.05  # of the time, that another way of reducing is worth


@dataclass(frozen=True)
class Conditions:
    """What was measured between the hosts. `rate`: bit/s; `latency`: one-way delay in seconds.

    `contention`: what the job file says is lost of a port where many senders meet, in [0, 1).
    """

    rate: float
    latency: float
    contention: float = CONTENTION

    def efficiency(self, senders: int) -> float:
        """Of a port where so many meet."""
        return 1 - self.contention * (1 - 1 / max(1, senders))


@dataclass(frozen=True)
class Sums:
    """What a switch may sum: `nbytes` of lanes, in slices of `slice_bytes`, of which `window` may be on their way."""

    nbytes: int
    slice_bytes: int
    window: int


@dataclass(frozen=True)
class Choice:
    """`algorithm`: "direct", "ring" or "switch"; `reason` says why, for the log; `seconds`: what the model expects."""

    algorithm: str
    reason: str
    seconds: float


def _direct(nbytes: int, workers: int, servers: int, conditions: Conditions) -> float:
    wire = nbytes * 8 / conditions.rate
    if servers:
        messages, share, senders = max(workers, servers), max(1.0, workers / servers), workers
    else:
        messages, share, senders = workers - 1, 2 * (workers - 1) / workers, workers - 1
    return 2 * conditions.latency + 2 * messages * MESSAGE_SECONDS + share * wire / conditions.efficiency(senders)


def ring(nbytes: int, workers: int, conditions: Conditions) -> float:
    """Seconds that a ring takes."""
    rounds = 2 * (workers - 1)
    return rounds * (conditions.latency + MESSAGE_SECONDS) + rounds / workers * nbytes * 8 / conditions.rate


def _switch(it: Sums, workers: int, conditions: Conditions) -> float:
    slices = it.nbytes / it.slice_bytes
    bounds = it.nbytes * 8 / conditions.rate, slices / it.window * conditions.latency, workers * slices / SUMMED
    return conditions.latency + 2 * MESSAGE_SECONDS + max(bounds)


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
    wire, others = nbytes * 8 / conditions.rate, workers - 1
    rounds = workers - 2 + math.ceil(math.log2(workers))
    reduce = 0.0
    if others > 1:
        spread = wire / others / conditions.efficiency(others - 1)
        reduce = conditions.latency + (others - 1) * (MESSAGE_SECONDS + spread)
    merge = rounds * (conditions.latency + MESSAGE_SECONDS + wire / others)
    best = min(_direct(nbytes, workers, 0, conditions), ring(nbytes, workers, conditions))
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
    shares, as in a ring they can't; the model counts with equal ones. `late`: it need not wait for all workers, as a
    ring must. `sums`: what a switch would sum instead, None if it can't. Raises ValueError where a number is out of
    range.
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
    direct, in_ring = _direct(nbytes, workers, servers, conditions), ring(nbytes, workers, conditions)
    if servers:
        return Choice("direct", f"{inside}the job's {servers} servers: {direct * 1e3:.2f} ms expected", direct)
    compared = f"direct {direct * 1e3:.2f} ms, ring {in_ring * 1e3:.2f} ms for {nbytes} bytes among {workers} hosts"
    if workers == 2:
        return Choice("direct", f"{inside}direct: with two hosts a ring is the same ({compared})", direct)
    if tolerance > 0:
        return Choice(
            "direct", f"{inside}direct: up to {tolerance:.1%} may be lost, in a ring nothing ({compared})", direct
        )
    if late:
        return Choice("direct", f"{inside}direct: a ring leaves nobody out ({compared})", direct)
    if uneven:
        return Choice("direct", f"{inside}direct: a ring has equal shares only ({compared})", direct)
    if in_ring < direct:
        return Choice("ring", f"{inside}ring: {compared}", in_ring)
    return Choice("direct", f"{inside}direct: {compared}", direct)
