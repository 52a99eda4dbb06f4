# SPDX-License-Identifier: Apache-2.0
"""Workloads: what an arm carries on a fabric, as a specification for a seed."""

from dataclasses import replace
from typing import Any

from gradlane.job import ownership
from gradlane.job.ownership import Owner
from gradlane.job.transport import SUM_MEMBERS
from gradlane_sim import models, partners, rivals, stragglers
from gradlane_sim.background import DISTRIBUTIONS, poisson
from gradlane_sim.carriers import Carrier, Gradlane
from gradlane_sim.cases import Arm
from gradlane_sim.jobs import jitter, pieces, whole
from gradlane_sim.rivals import MILLISECOND, RIVALS
from gradlane_sim.specification import (
    SECOND,
    Background,
    Fabric,
    HostStops,
    Job,
    Queue,
    Specification,
    SwitchDies,
    Tensor,
)

# While flows beside a job begin.
BACKGROUND_TIME = 4 * MILLISECOND
LOSSLESS = Arm("gradlane-p0", "Gradlane's lossless mode: every slice arrives, and the mean is exact", True)
TOLERANT = Arm("gradlane-p3", "Gradlane, 3 % of a contribution may be lost", True)
GENEROUS = Arm("gradlane-p10", "Gradlane, 10 % of a contribution may be lost", True)
GRADLANE = (LOSSLESS, TOLERANT, GENEROUS)
SUMMED = Arm("gradlane-sum", "Gradlane, switches sum the gradients in 16 bits of fixed point", True)
# With more workers nothing may be lost of sums, and 16 bits are too few.
EXACT = Arm("gradlane-sum-int32", "Gradlane, switches sum the gradients in 32 bits of fixed point", True)
_LOSS = {LOSSLESS.name: 0.0, TOLERANT.name: 0.03, GENEROUS.name: 0.1}
# Of hosts whose links are slower than stated, one after the other: by how many times.
SLOWER = (1, 2, 1, 4)


def arms() -> tuple[Arm, ...]:
    """All that there are for every workload."""
    return (*GRADLANE, *(Arm(name, summary) for name, (summary, _) in RIVALS.items()))


def with_sums(among: tuple[Arm, ...], workers: int) -> tuple[Arm, ...]:
    """These, and sums in switches in as few bits as so many workers can have: for all-reduces."""
    return (*among, SUMMED if workers <= SUM_MEMBERS else EXACT)


def carried(arm: Arm, fabric: Fabric, slots: int = 65536, slot_base: int = 0) -> tuple[Fabric, Carrier]:
    """How an arm carries a job: the fabric with the queues that it asks for, and the carrier."""
    if arm in (SUMMED, EXACT):
        return fabric, Gradlane(slots=slots, slot_base=slot_base, lanes="int32" if arm == EXACT else "int16")
    if arm.name in _LOSS:
        return fabric, Gradlane(push=_LOSS[arm.name], slots=slots, slot_base=slot_base)
    setting = (RIVALS.get(arm.setting or arm.name) or rivals.sweep()[arm.setting or arm.name])[1](fabric)
    return setting.fabric, setting.carrier


def _job(arm: Arm, fabric: Fabric, tensors: tuple[Tensor, ...], seed: int, **settings: Any) -> Specification:
    """One job of all hosts."""
    set_fabric, carrier = carried(arm, fabric)
    job = Job(1, tuple(range(fabric.hosts)), carrier, tensors, **settings)
    late = jitter(job.workers, job.steps, seed, job.delays)
    return Specification(set_fabric, (replace(job, delays=late),), seed)


def all_reduce(fabric: Fabric, size: int, algorithm: str, arm: Arm, seed: int) -> Specification:
    """Of all hosts. What a switch sums comes after a step by hosts, from whose result exponents are taken."""
    if arm in (SUMMED, EXACT):
        return _job(arm, fabric, pieces(size), seed, algorithm="switch", steps=2, warm=1)
    return _job(arm, fabric, pieces(size), seed, algorithm=algorithm)


def summed(fabric: Fabric, size: int, arm: Arm, seed: int, steps: int = 3) -> Specification:
    """All-reduces by switches, of all hosts, whose first step by hosts is not simulated: of many it would be most."""
    found = _job(arm, fabric, pieces(size), seed, algorithm="switch", steps=steps, warm=1)
    job = found.jobs[0]
    assert isinstance(job.carrier, Gradlane)
    return replace(found, jobs=(replace(job, carrier=replace(job.carrier, known=True)),))


def incast(fabric: Fabric, size: int, arm: Arm, seed: int, steps: int = 3) -> Specification:
    """All hosts but the last send to it, and it sends the mean back to each: a parameter server."""
    return _job(arm, fabric, pieces(size), seed, servers=1, steps=steps)


def tails(fabric: Fabric, size: int, tail: float, arm: Arm, seed: int, steps: int = 10) -> Specification:
    """All-reduces after computations of which some take longer: their 99th percentile is `tail` times the median."""
    compute = 2 * MILLISECOND
    late = stragglers.delays(fabric.hosts, steps, compute, tail, seed)
    return _job(arm, fabric, pieces(size, compute), seed, steps=steps, compute=compute, delays=late)


def training(fabric: Fabric, model: str, scale: float, arm: Arm, seed: int, steps: int = 3) -> Specification:
    """Steps of a model, whose gradients travel while the backward pass goes on. Tensors are reduced as they come."""
    trace = models.trace(models.MODELS[model], bucket=1 << 20, scale=scale)
    return _job(arm, fabric, trace.tensors, seed, steps=steps, compute=trace.compute)


def several_jobs(
    fabric: Fabric, count: int, size: int, arm: Arm, seed: int, steps: int = 4, algorithm: str = "direct"
) -> Specification:
    """Jobs that share the spines: of so many neighbours each is another one's."""
    jobs: list[Job] = []
    set_fabric = fabric
    slots = 65536 // count
    for number in range(1, count + 1):
        members = tuple(range(number - 1, fabric.hosts, count))
        set_fabric, carrier = carried(arm, fabric, slots, slots * (number - 1))
        late = jitter(len(members), steps, seed + number)
        jobs.append(Job(number, members, carrier, pieces(size), steps=steps, delays=late, algorithm=algorithm))
    return Specification(set_fabric, tuple(jobs), seed)


def mixed_rates(fabric: Fabric, size: int, uneven: bool, arm: Arm, seed: int, steps: int = 3) -> Specification:
    """All-reduces among hosts whose links carry all, half or a quarter of the rate that the files state. `uneven`: who
    has a faster one reduces more, by the agent's own rule."""
    set_fabric, carrier = carried(arm, fabric)
    links = [
        replace(it, rate=it.rate // SLOWER[it.a % len(SLOWER)], stated=it.rate) if it.a < fabric.hosts else it
        for it in set_fabric.links
    ]
    owners = tuple(Owner(float(link.rate)) for link in links[: fabric.hosts])
    weights = ownership.weights(ownership.best(ownership.Case(size, fabric.hosts, owners))) if uneven else ()
    job = Job(
        1,
        tuple(range(fabric.hosts)),
        carrier,
        whole(carrier, size),
        steps=steps,
        delays=jitter(fabric.hosts, steps, seed),
        weights=tuple(weights),
    )
    return Specification(replace(set_fabric, links=tuple(links)), (job,), seed)


def averaging(fabric: Fabric, size: int, tail: float, arm: Arm, seed: int, steps: int = 10) -> Specification:
    """Steps after which workers average `size` bytes of parameters in groups, as the arm has them. Some compute longer:
    the 99th percentile is `tail` times the median."""
    scheme, _, by = arm.name.partition("/")
    workers, compute = fabric.hosts, 2 * MILLISECOND
    set_fabric, carrier = carried(replace(arm, name=by), fabric)
    late = stragglers.delays(workers, steps, compute, tail, seed) if tail > 1 else ()
    job = Job(
        1,
        tuple(range(workers)),
        carrier,
        whole(carrier, size, compute),
        steps=steps,
        compute=compute,
        delays=jitter(workers, steps, seed, late),
        groups=partners.SCHEMES[scheme].groups(workers),
    )
    return Specification(set_fabric, (job,), seed)


def slow_link(fabric: Fabric, size: int, part: float, arm: Arm, seed: int) -> Specification:
    """One leaf's link to one spine has a part of its rate only."""
    leaf, spine = fabric.tiers[0][0], fabric.tiers[1][0]
    slow = fabric.with_link(leaf, spine, rate=round(fabric.link(leaf, spine).rate * part))
    return all_reduce(slow, size, "direct", arm, seed)


def lossy(fabric: Fabric, size: int, loss: float, arm: Arm, seed: int) -> Specification:
    """Every link loses packets by chance."""
    links = tuple(replace(link, loss=loss) for link in fabric.links)
    return all_reduce(replace(fabric, links=links), size, "direct", arm, seed)


def dying_spine(fabric: Fabric, size: int, at: int, arm: Arm, seed: int) -> Specification:
    """The first spine."""
    dies = SwitchDies(fabric.tiers[1][0], at)
    return replace(all_reduce(fabric, size, "direct", arm, seed), faults=(dies,))


def restarting_spine(fabric: Fabric, size: int, arm: Arm, seed: int) -> Specification:
    """The first spine forgets everything while slices of many steps are in its slots, and is away for 1 ms."""
    found = all_reduce(fabric, size, "direct", arm, seed)
    job = replace(found.jobs[0], steps=20, warm=1, delays=jitter(fabric.hosts, 20, seed))
    at = 10 * MILLISECOND
    return replace(found, jobs=(job,), faults=(SwitchDies(fabric.tiers[1][0], at, at + MILLISECOND),))


def stopping_host(fabric: Fabric, size: int, at: int, arm: Arm, seed: int) -> Specification:
    """A host says nothing any more; 10 s later the others know."""
    stops = HostStops(fabric.hosts - 1, at)
    return replace(all_reduce(fabric, size, "direct", arm, seed), faults=(stops,), limit=20 * SECOND)


def beside(fabric: Fabric, size: int, sizes: str, load: float, arm: Arm, seed: int) -> Specification:
    """An all-reduce beside flows between all hosts. A rival carries these, too; beside Gradlane DCTCP does."""
    flows = poisson(DISTRIBUTIONS[sizes], load, fabric.hosts, fabric.links[0].rate, BACKGROUND_TIME, seed)
    found = all_reduce(fabric, size, "direct", arm, seed)
    carrier = found.jobs[0].carrier
    if isinstance(carrier, Gradlane):
        marks = Queue("priority", (("mark", rivals.mark_threshold(fabric)),))
        found = replace(found, fabric=replace(found.fabric, queue=marks))
        carrier = rivals.dctcp(fabric).carrier
    return replace(found, background=Background(carrier, flows))
