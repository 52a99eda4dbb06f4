# SPDX-License-Identifier: Apache-2.0
"""The studies: which scenarios, and who carries them."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial

from gradlane_sim import fabrics, models, partners, rivals
from gradlane_sim.background import DISTRIBUTIONS
from gradlane_sim.cases import Arm, Scenario, Study
from gradlane_sim.rivals import MILLISECOND, RIVALS
from gradlane_sim.specification import (
    Fabric,
)
from gradlane_sim.workloads import (
    EXACT,
    LOSSLESS,
    SUMMED,
    all_reduce,
    arms,
    averaging,
    beside,
    dying_spine,
    incast,
    lossy,
    mixed_rates,
    restarting_spine,
    several_jobs,
    slow_link,
    stopping_host,
    summed,
    tails,
    training,
    with_sums,
)

GBIT = 1_000_000_000
MB = 1_000_000
# Into an all-reduce: when faults come.
EARLY = MILLISECOND // 2
# What models are made smaller to, times and sizes alike, so that a run takes seconds.
MODEL_BYTES = 10 * MB
# Of a port of a 10 Gbit/s switch, and of one of 100 Gbit/s: shallow ones. Deep: ten times that.
SHALLOW = {10: 200_000, 100: 1_000_000}
# Of those that average in groups; which of these `small` shows.
AVERAGED, TAIL = "compute 2 ms and average 500 kB", "the p99 of computations is 3 times their median"
GROUPS_SHOWN = ("all", "pairs", "ripples-behind")


def fabric_of(leaves: int, hosts: int, rate: int, core: int, deep: bool = False, oversubscription: float = 0) -> Fabric:
    """A leaf-spine with four spines; rates are in Gbit/s. `core` 0: by the oversubscription."""
    up = core * GBIT if core else fabrics.core_rate(hosts, 4, rate * GBIT, oversubscription)
    buffer = SHALLOW[rate] * (10 if deep else 1)
    return fabrics.leaf_spine(leaves, hosts, 4, rate * GBIT, up, buffer, 1000 if rate == 10 else 500)


def smoke() -> Study:
    """Seconds: whether everything works together."""
    fabric = fabrics.leaf_spine(2, 2, 2, GBIT, GBIT, 64_000, 1000)
    make = partial(all_reduce, fabric, 400_000, "direct")
    return (Scenario("smoke", "4 hosts reduce 400 kB", 4, with_sums(arms(), 4), make),)


def small() -> Study:
    """What `make sim` shows: 32 hosts, and shallow buffers."""
    fabric = fabric_of(4, 8, 10, 20)
    reduce, to_one = partial(all_reduce, fabric, 1_000_000, "direct"), partial(incast, fabric, 256_000)
    in_groups = partial(averaging, fabric_of(4, 4, 10, 0, oversubscription=1), MB // 2, 3.0, steps=5)
    found = (
        Scenario("incast-32", "31 workers send 256 kB each to one server, who sends the mean back", 32, arms(), to_one),
        Scenario("direct-32", "32 hosts reduce 1 MB directly, each with each", 32, with_sums(arms(), 32), reduce),
        Scenario("groups-16", f"16 hosts {AVERAGED}; {TAIL}", 16, _averaging_arms(16, GROUPS_SHOWN), in_groups),
    )
    return tuple(map(_at_their_best, found))


def sweep() -> Study:
    """By which the rivals' settings were chosen: all scenarios of up to 144 hosts where there are all rivals."""
    asked = tuple(Arm(name, summary) for name, (summary, _) in rivals.sweep().items())
    among = {it.name: it for it in (*small(), *study())}.values()
    whole = [it for it in among if it.hosts <= 144 and {arm.name for arm in it.arms} >= set(RIVALS)]
    return tuple(replace(it, arms=asked, family="") for it in whole)


def study() -> Study:
    """The whole: 144 hosts as in the papers, and what changes with the number of hosts, buffers and faults."""
    parts = (
        _of_144,
        _of_1024,
        _of_hosts,
        _of_sums,
        _of_fabrics,
        _of_racks,
        _of_workloads,
        _of_groups,
        _of_loads,
        _of_faults,
    )
    return tuple(_at_their_best(scenario) for part in parts for scenario in part())


def _at_their_best(scenario: Scenario) -> Scenario:
    """Rivals with the settings that the sweep has found best there."""
    better = rivals.BETTER.get(scenario.name, {})
    return replace(scenario, arms=tuple(replace(arm, setting=better.get(arm.name, "")) for arm in scenario.arms))


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
        found.append(Scenario(f"{algorithm}-144-10G", summary, 144, arms(), make))
    large = partial(all_reduce, fabric_of(9, 16, 100, 400), 40_000_000, "direct")
    found.append(Scenario("large-144", "144 hosts reduce 40 MB directly; 100/400 Gbit/s", 144, (LOSSLESS,), large))
    return tuple(found)


def _of_1024() -> Study:
    """Each with each they would be a million messages for a tensor."""
    fabric = _three_tiers(16)
    to_one = partial(incast, fabric, 64_000)
    grid = partial(all_reduce, fabric, MB, "grid")
    return (
        Scenario("incast-1024", "1,023 workers send 64 kB to one server; 10 Gbit/s", 1024, arms(), to_one),
        Scenario("grid-1024", "1,024 hosts reduce 1 MB in a grid; 10 Gbit/s", 1024, (LOSSLESS,), grid),
    )


def _three_tiers(pods: int) -> Fabric:
    """Of 64 hosts each, whose leaves carry up half of what their hosts send."""
    return fabrics.pods(pods, 4, 16, 10 * GBIT, 40 * GBIT, SHALLOW[10], 1000)


def _of_hosts() -> Study:
    found: list[Scenario] = []
    for per_leaf in (2, 4, 8, 16):
        fabric = fabric_of(4, per_leaf, 10, 0, oversubscription=1)
        make = partial(all_reduce, fabric, 1_000_000, "direct")
        summary = f"{fabric.hosts} hosts reduce 1 MB directly; 10 Gbit/s"
        among = with_sums(arms(), fabric.hosts)
        found.append(Scenario(f"growth-{fabric.hosts}", summary, fabric.hosts, among, make, "growth"))
    return tuple(found)


def _of_sums() -> Study:
    """Up to 144 hosts under two tiers, and more under three."""
    by_two = [fabric_of(leaves, 16, 10, 40) for leaves in (1, 2, 4, 9)]
    by_three = map(_three_tiers, (4, 8, 16))
    return tuple(
        Scenario(
            f"sums-{fabric.hosts}",
            f"switches sum 1 MB of {fabric.hosts} hosts; 10 Gbit/s",
            fabric.hosts,
            (EXACT,),
            partial(summed, fabric, MB),
            "sums",
        )
        for fabric in (*by_two, *by_three)
    )


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
    pods = partial(beside, fabrics.fat_tree(4, 10 * GBIT, SHALLOW[10], 1000), MB, "web-search", 0.4)
    summary = "16 hosts under three tiers reduce 1 MB beside flows of web search, load 0.4"
    found.append(Scenario("beside-three-tiers", summary, 16, arms(), pods))
    tree = partial(all_reduce, fabrics.fat_tree(8, 10 * GBIT, SHALLOW[10], 1000), 500_000, "direct")
    found.append(Scenario("fat-tree-128", "128 hosts under three tiers reduce 500 kB", 128, arms(), tree))
    return tuple(found)


def _of_racks() -> Study:
    """Over a thin core: directly, in grids whose rows are racks, and in rings from rack to rack."""
    found: list[Scenario] = []
    for size, times, leaves, per_leaf in ((1, 2, 4, 8), (1, 4, 4, 8), (4, 2, 4, 8), (4, 4, 4, 8), (1, 4, 9, 16)):
        fabric = fabric_of(leaves, per_leaf, 10, 0, oversubscription=times)
        of = "" if (size, leaves) == (1, 4) else f"{size}MB-{fabric.hosts}-"
        # Directly it is one of the above.
        for algorithm in ("grid", "ring") if not of else ("direct", "grid", "ring"):
            summary = f"{fabric.hosts} hosts reduce {size} MB, {algorithm}, by racks; oversubscription {times}"
            make = partial(all_reduce, fabric, size * MB, algorithm)
            found.append(Scenario(f"racks-{of}{algorithm}-{times}", summary, fabric.hosts, arms(), make))
    for count in (2, 4):
        for algorithm in ("grid", "ring"):
            make = partial(several_jobs, fabric_of(4, 8, 10, 0, oversubscription=2), count, MB, algorithm=algorithm)
            summary = f"{count} jobs of {32 // count} hosts share spines, {algorithm}, by racks; oversubscription 2"
            found.append(Scenario(f"jobs-{algorithm}-{count}", summary, 32, arms(), make))
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
    thin = fabric_of(4, 8, 10, 0, oversubscription=2)
    for count in (2, 4):
        summary = f"{count} jobs of {32 // count} hosts share spines; oversubscription 2"
        found.append(Scenario(f"jobs-{count}", summary, 32, arms(), partial(several_jobs, thin, count, MB)))
    for name, uneven in (("even", False), ("uneven", True)):
        summary = f"32 hosts whose links carry 2.5, 5 or 10 Gbit/s reduce 4 MB, in {name} shares"
        make = partial(mixed_rates, fabric, 4 * MB, uneven)
        found.append(Scenario(f"mixed-rates-{name}", summary, 32, arms(), make))
    return tuple(found)


def _of_groups() -> Study:
    found: list[Scenario] = []
    for leaves, per_leaf in ((4, 4), (4, 16), (9, 16)):
        fabric = fabric_of(leaves, per_leaf, 10, 0, oversubscription=1)
        hosts = fabric.hosts
        rate = fabric.links[0].rate
        slow = fabric.with_link(hosts - 1, fabric.links[hosts - 1].b, rate=rate // 4, stated=rate)
        for name, summary, on, tail in (
            ("tail-1.5", "the p99 of computations is 1.5 times their median", fabric, 1.5),
            ("tail-3", TAIL, fabric, 3.0),
            ("slow", "one host's link has a quarter of its rate", slow, 1.0),
        ):
            text, asked = f"{hosts} hosts {AVERAGED}; {summary}", _averaging_arms(hosts, partners.SCHEMES)
            found.append(Scenario(f"groups-{hosts}-{name}", text, hosts, asked, partial(averaging, on, MB // 2, tail)))
    return tuple(found)


def _averaging_arms(workers: int, schemes: Iterable[str]) -> tuple[Arm, ...]:
    """Each of these that a job of so many can have, by Gradlane, and by DCTCP."""
    return tuple(
        Arm(f"{name}/{by.name}", partners.SCHEMES[name].summary, by.subject)
        for by in (LOSSLESS, Arm("dctcp", RIVALS["dctcp"][0]))
        for name in schemes
        if workers <= partners.SCHEMES[name].most
    )


def _of_loads() -> Study:
    fabric = fabric_of(4, 8, 10, 20)
    found: list[Scenario] = []
    for sizes in DISTRIBUTIONS:
        for load in (0.2, 0.4, 0.6, 0.8):
            make = partial(beside, fabric, MB, sizes, load)
            summary = f"32 hosts reduce 1 MB beside {sizes} flows at a load of {load:g}"
            found.append(Scenario(f"{sizes}-{load:g}", summary, 32, arms(), make))
    return tuple(found)


def _of_faults() -> Study:
    fabric = fabric_of(4, 8, 10, 20)
    found = [
        Scenario("dying-spine", "a spine fails after 0.5 ms", 32, arms(), partial(dying_spine, fabric, MB, EARLY)),
        Scenario("restart", "a spine restarts in a step", 32, (SUMMED,), partial(restarting_spine, fabric, MB)),
        Scenario(
            "stopping-host", "a host stops after 0.5 ms", 32, (LOSSLESS,), partial(stopping_host, fabric, MB, EARLY)
        ),
    ]
    for loss in (0.0001, 0.001, 0.01, 0.1):
        make = partial(lossy, fabric, MB, loss)
        summary = f"every link loses {loss:g} of its packets"
        found.append(Scenario(f"loss-{loss:g}", summary, 32, with_sums(arms(), 32), make))
    return tuple(found)


STUDIES: dict[str, Callable[[], Study]] = {"smoke": smoke, "small": small, "study": study, "sweep": sweep}
