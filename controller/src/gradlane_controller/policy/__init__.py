# SPDX-License-Identifier: Apache-2.0
"""The entries that the switches need: a pure function of the fabric and the jobs."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache

from gradlane.job import Job
from gradlane_controller.network.fabric import Fabric, SwitchAddress
from gradlane_controller.network.links import End
from gradlane_controller.network.topology import Topology, whole
from gradlane_controller.policy import budget, gradients, multicast, ports, queues, routes, spreading, tuning
from gradlane_controller.policy.checks import check_jobs, check_shared_ports
from gradlane_controller.policy.entities import Entity
from gradlane_controller.policy.numbers import Numbers, assign
from gradlane_controller.policy.sharing import Room
from gradlane_controller.policy.sums import SummedJob
from gradlane_controller.policy.tuning import Tuning
from gradlane_controller.policy.usage import Usage

__all__ = ["Entity", "Numbers", "assign", "carried", "desired_entities", "summed_jobs"]


def desired_entities(
    fabric: Fabric,
    jobs: Iterable[Job],
    known: Numbers | None = None,
    down: Collection[End] = (),
    lacking: Collection[str] = (),
    loads: Mapping[End, float] | None = None,
    avoided: Collection[str] = (),
    tunings: Mapping[str, Tuning] | None = None,
) -> dict[str, list[Entity]]:
    """Every entity that each switch has to hold, by the switch's name; no more and no less.

    `known` are numbers of jobs that switches already use. `down` are the ends of links, as switch and port, that do
    not work now; `lacking` are switches that don't hold what they should for sums, which go by others then. `loads`
    are what traffic that follows no tree takes of links, in bit/s, by the sending end. No path or tree leads through
    switches that are `avoided`, but those keep their own ways to all others. `tunings`, by name of a job, hold within
    the fabric's bounds. Raises JobError for a job that does not fit the fabric or another job.
    """
    jobs = tuple(jobs)
    check_jobs(fabric, jobs)
    intact = whole(fabric)
    usage = Usage(fabric, intact, jobs)
    check_shared_ports(fabric, usage)
    topology = Topology(fabric, down, avoided) if down or avoided else intact
    if topology is not intact:
        usage = Usage(fabric, topology, jobs)
    numbers = assign(fabric, jobs, known)
    summed = summed_jobs(fabric, jobs, numbers, down, lacking, loads, avoided)
    trees = multicast.trees(fabric, topology, jobs, Room(fabric, loads or {}).of)
    known_jobs = gradients.known_jobs(jobs, numbers.indices)
    tunings = tunings or {}
    gradients_at = gradients.senders_and_tags(fabric, tuning.tuned_jobs(fabric, usage, jobs, tunings))
    moved = tuning.moved_ports(fabric, usage, jobs, tunings)
    members = frozenset(member.address for job in jobs for member in job.members)
    return {
        switch.name: [
            *_without_jobs(fabric, switch),
            *queues.virtual_queues(fabric, switch.name, moved),
            *ports.sources(fabric, switch.name, members),
            *routes.routes(fabric, topology, switch),
            *queues.port_policies(fabric, switch.name, usage),
            *queues.job_shares(fabric, switch.name, usage, numbers.indices),
            *budget.budget_shares({intact, topology}, switch),
            *known_jobs,
            *gradients_at[switch.name],
            *multicast.replication(fabric, trees, switch.name, jobs, summed),
            *(entity for job in summed for entity in job.entries(switch.name, numbers.epochs.get(switch.name, 1))),
        ]
        for switch in fabric.switches
    }


@lru_cache(maxsize=1024)
def _without_jobs(fabric: Fabric, switch: SwitchAddress) -> Sequence[Entity]:
    """What depends on the fabric file alone."""
    # Of the links as they are in the file: flows keep their ways when another link goes down.
    return [
        *ports.ports(fabric, switch, spreading.chosen_bits(whole(fabric))),
        *ports.ordinary_traffic(fabric, switch.name),
        *ports.notifications(fabric, switch.name),
        *routes.addresses(fabric, switch.name),
        *queues.control_rates(fabric, switch.name),
    ]


def summed_jobs(
    fabric: Fabric,
    jobs: Iterable[Job],
    numbers: Numbers,
    down: Collection[End] = (),
    lacking: Collection[str] = (),
    loads: Mapping[End, float] | None = None,
    avoided: Collection[str] = (),
) -> list[SummedJob]:
    """Those that switches sum; the rest as above."""
    return [
        SummedJob(fabric, job, numbers.sums[job.id], down, lacking, loads or {}, avoided)
        for job in jobs
        if job.id in numbers.sums
    ]


def carried(
    fabric: Fabric,
    jobs: Iterable[Job],
    numbers: Numbers,
    down: Collection[End],
    lacking: Collection[str],
    loads: Mapping[End, float],
    avoided: Collection[str] = (),
) -> list[Mapping[End, int]]:
    """How many units of what follows trees each end of a link sends, of all multicasts and of each job's sums; the rest
    as above."""
    jobs = tuple(jobs)
    trees = multicast.trees(fabric, Topology(fabric, down, avoided), jobs, Room(fabric, loads).of)
    summed = summed_jobs(fabric, jobs, numbers, down, lacking, loads, avoided)
    return [Counter(end for tree in trees.values() for end in tree), *(job.ways.carried for job in summed)]
