# SPDX-License-Identifier: Apache-2.0
"""The studies: which scenarios, and who carries them."""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from gradlane_sim import fabrics, models, rivals, stragglers
from gradlane_sim.background import DISTRIBUTIONS, poisson
from gradlane_sim.carriers import Carrier, Gradlane
from gradlane_sim.cases import Arm, Scenario, Study
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

GBIT = 1_000_000_000
MICROSECOND = 1_000
MB = 1_000_000
# While flows beside a job begin.
BACKGROUND_TIME = 4 * MILLISECOND
# Into an all-reduce: when faults come.
EARLY = MILLISECOND // 2
# What models are made smaller to, times and sizes alike, so that a run takes seconds.
MODEL_BYTES = 10 * MB
# Of a port of a 10 Gbit/s switch, and of one of 100 Gbit/s: shallow ones. Deep: ten times that.
SHALLOW = {10: 200_000, 100: 1_000_000}
LOSSLESS = Arm("gradlane-p0", "Gradlane's lossless mode: every slice arrives, and the mean is exact", True)
TOLERANT = Arm("gradlane-p3", "Gradlane, 3 % of a contribution may be lost", True)
GENEROUS = Arm("gradlane-p10", "Gradlane, 10 % of a contribution may be lost", True)
GRADLANE = (LOSSLESS, TOLERANT, GENEROUS)
_LOSS = {LOSSLESS.name: 0.0, TOLERANT.name: 0.03, GENEROUS.name: 0.1}
PIECES = 8
# Hosts do not begin in the same microsecond: that is what seeds change in every workload.
START_WITHIN = 20 * MICROSECOND


def arms() -> tuple[Arm, ...]:
    """All that there are."""
    return (*GRADLANE, *(Arm(name, summary) for name, (summary, _) in RIVALS.items()))


def carried(arm: Arm, fabric: Fabric, slots: int = 65536, slot_base: int = 0) -> tuple[Fabric, Carrier]:
    """How an arm carries a job: the fabric with the queues that it asks for, and the carrier."""
    if arm.name in _LOSS:
        return fabric, Gradlane(push=_LOSS[arm.name], slots=slots, slot_base=slot_base)
    setting = (RIVALS.get(arm.name) or rivals.sweep()[arm.name])[1](fabric)
    return setting.fabric, setting.carrier


def jitter(workers: int, steps: int, seed: int, rows: Sequence[Sequence[int]] = ()) -> tuple[tuple[int, ...], ...]:
    """When workers begin, later by chance; beside other delays."""
    chance = random.Random(f"start {seed}")
    added = rows or [[0] * workers] * steps
    return tuple(tuple(it + chance.randrange(START_WITHIN) for it in row) for row in added)


def _job(arm: Arm, fabric: Fabric, tensors: tuple[Tensor, ...], seed: int, **settings: Any) -> Specification:
    """One job of all hosts."""
    set_fabric, carrier = carried(arm, fabric)
    job = Job(1, tuple(range(fabric.hosts)), carrier, tensors, **settings)
    late = jitter(job.workers, job.steps, seed, job.delays)
    return Specification(set_fabric, (replace(job, delays=late),), seed)


def pieces(size: int, ready: int = 0) -> tuple[Tensor, ...]:
    """A tensor, cut as parameter servers and rings cut theirs, so that results travel while contributions still do.
    Gradlane does so by itself, slice by slice; carriers of whole messages would not."""
    each = size // (4 * PIECES) * 4
    return tuple(Tensor(ready, each, 1) for _ in range(PIECES))


def all_reduce(fabric: Fabric, size: int, algorithm: str, arm: Arm, seed: int) -> Specification:
    """Of all hosts."""
    return _job(arm, fabric, pieces(size), seed, algorithm=algorithm)


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


def two_jobs(fabric: Fabric, size: int, arm: Arm, seed: int) -> Specification:
    """Two jobs that share the spines: one has the even hosts, one the odd ones."""
    jobs: list[Job] = []
    set_fabric = fabric
    for number in (1, 2):
        members = tuple(range(number - 1, fabric.hosts, 2))
        set_fabric, carrier = carried(arm, fabric, 32768, 32768 * (number - 1))
        late = jitter(len(members), 2, seed + number)
        jobs.append(Job(number, members, carrier, pieces(size), steps=2, delays=late))
    return Specification(set_fabric, tuple(jobs), seed)


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


def fabric_of(leaves: int, hosts: int, rate: int, core: int, deep: bool = False, oversubscription: float = 0) -> Fabric:
    """A leaf-spine with four spines; rates are in Gbit/s. `core` 0: by the oversubscription."""
    up = core * GBIT if core else fabrics.core_rate(hosts, 4, rate * GBIT, oversubscription)
    buffer = SHALLOW[rate] * (10 if deep else 1)
    return fabrics.leaf_spine(leaves, hosts, 4, rate * GBIT, up, buffer, 1000 if rate == 10 else 500)


def smoke() -> Study:
    """Seconds: whether everything works together."""
    fabric = fabrics.leaf_spine(2, 2, 2, GBIT, GBIT, 64_000, 1000)
    make = partial(all_reduce, fabric, 400_000, "direct")
    return (Scenario("smoke", "4 hosts reduce 400 kB", 4, arms(), make),)


def small() -> Study:
    """What `make sim` shows: 32 hosts, and shallow buffers."""
    fabric = fabric_of(4, 8, 10, 20)
    reduce, to_one = partial(all_reduce, fabric, 1_000_000, "direct"), partial(incast, fabric, 256_000)
    return (
        Scenario("incast-32", "31 workers send 256 kB each to one server, who sends the mean back", 32, arms(), to_one),
        Scenario("direct-32", "32 hosts reduce 1 MB directly, each with each", 32, arms(), reduce),
    )


def sweep() -> Study:
    """By which the rivals' settings were chosen."""
    fabric = fabric_of(4, 8, 10, 20)
    asked = tuple(Arm(name, summary) for name, (summary, _) in rivals.sweep().items())
    return (
        Scenario(
            "incast-sweep", "31 workers send 256 kB each to one server", 32, asked, partial(incast, fabric, 256_000)
        ),
        Scenario("direct-sweep", "32 hosts reduce 1 MB", 32, asked, partial(all_reduce, fabric, MB, "direct")),
    )


def study() -> Study:
    """The whole: 144 hosts as in the papers, and what changes with the number of hosts, buffers and faults."""
    return (*_of_144(), *_of_hosts(), *_of_fabrics(), *_of_workloads(), *_of_faults())


def _of_144() -> Study:
    found: list[Scenario] = []
    for rate, core in ((10, 40), (100, 400)):
        fabric = fabric_of(9, 16, rate, core)
        for name, summary, make in (
            ("incast", "143 workers send 256 kB to one server", partial(incast, fabric, 256_000)),
            ("direct", "144 hosts reduce 1 MB directly", partial(all_reduce, fabric, 1_000_000, "direct")),
        ):
            found.append(Scenario(f"{name}-144-{rate}G", f"{summary}; {rate}/{core} Gbit/s", 144, arms(), make))
    for algorithm in ("ring", "grid"):
        make = partial(all_reduce, fabric_of(9, 16, 10, 40), 1_000_000, algorithm)
        summary = f"144 hosts reduce 1 MB in a {algorithm}; 10/40 Gbit/s"
        found.append(Scenario(f"{algorithm}-144-10G", summary, 144, (LOSSLESS,), make))
    large = partial(all_reduce, fabric_of(9, 16, 100, 400), 40_000_000, "direct")
    found.append(Scenario("large-144", "144 hosts reduce 40 MB directly; 100/400 Gbit/s", 144, (LOSSLESS,), large))
    return tuple(found)


def _of_hosts() -> Study:
    found: list[Scenario] = []
    for per_leaf in (2, 4, 8, 16):
        fabric = fabric_of(4, per_leaf, 10, 0, oversubscription=1)
        make = partial(all_reduce, fabric, 1_000_000, "direct")
        summary = f"{fabric.hosts} hosts reduce 1 MB directly; 10 Gbit/s"
        found.append(Scenario(f"growth-{fabric.hosts}", summary, fabric.hosts, arms(), make, "growth"))
    return tuple(found)


def _of_fabrics() -> Study:
    found: list[Scenario] = []
    for times in (1, 2, 4):
        make = partial(all_reduce, fabric_of(4, 8, 10, 0, oversubscription=times), 1_000_000, "direct")
        found.append(Scenario(f"oversubscribed-{times}", f"32 hosts; oversubscription {times}", 32, arms(), make))
    deep = partial(all_reduce, fabric_of(4, 8, 10, 0, deep=True, oversubscription=4), 1_000_000, "direct")
    found.append(Scenario("deep-4", "32 hosts; oversubscription 4, ports of 2 MB", 32, arms(), deep))
    slow = partial(slow_link, fabric_of(4, 8, 10, 20), 1_000_000, 0.25)
    found.append(
        Scenario("slow-link", "32 hosts; one link between switches has a quarter of its rate", 32, arms(), slow)
    )
    tree = partial(all_reduce, fabrics.fat_tree(8, 10 * GBIT, SHALLOW[10], 1000), 500_000, "direct")
    found.append(Scenario("fat-tree-128", "128 hosts under three tiers reduce 500 kB", 128, arms(), tree))
    return tuple(found)


def _of_workloads() -> Study:
    fabric = fabric_of(4, 8, 10, 20)
    found: list[Scenario] = []
    for tail in (1.5, 3.0):
        summary = f"32 hosts; the p99 of computations is {tail:g} times their median"
        found.append(Scenario(f"tail-{tail:g}", summary, 32, arms(), partial(tails, fabric, 250_000, tail)))
    for model in models.MODELS:
        make = partial(training, fabric_of(4, 8, 100, 200), model, MODEL_BYTES / (4 * models.MODELS[model].parameters))
        found.append(Scenario(model, f"32 hosts train {model}, made smaller to 10 MB; 100 Gbit/s", 32, arms(), make))
    found.append(
        Scenario("two-jobs", "two jobs of 16 hosts share the spines", 32, arms(), partial(two_jobs, fabric, MB))
    )
    return tuple(found)


def _of_faults() -> Study:
    fabric = fabric_of(4, 8, 10, 20)
    found = [
        Scenario("dying-spine", "a spine fails after 0.5 ms", 32, GRADLANE, partial(dying_spine, fabric, MB, EARLY)),
        Scenario(
            "stopping-host", "a host stops after 0.5 ms", 32, (LOSSLESS,), partial(stopping_host, fabric, MB, EARLY)
        ),
    ]
    for loss in (0.0001, 0.001, 0.01, 0.1):
        make = partial(lossy, fabric, MB, loss)
        found.append(Scenario(f"loss-{loss:g}", f"every link loses {loss:g} of its packets", 32, GRADLANE, make))
    return tuple(found)


STUDIES: dict[str, Callable[[], Study]] = {"smoke": smoke, "small": small, "study": study, "sweep": sweep}
