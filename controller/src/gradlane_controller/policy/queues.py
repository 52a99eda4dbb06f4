# SPDX-License-Identifier: Apache-2.0
"""Congestion at a port: its virtual queue, what is dropped when, and the shares of jobs that meet there.

Virtual queues are two-rate three-colour meters (RFC 2698). With CIR = PIR = the port's rate in bytes/s, the tokens
missing from a bucket are the bytes that would be queued at a link of that rate. So the committed burst size is the
occupancy at which packets turn yellow, and the peak burst size the occupancy at which they turn red. A switch of
several pipes has each meter in each of them, for what enters there: each gets an equal part of rate and occupancies.
"""

from collections.abc import Mapping

from finsy import Action, Match, P4MeterConfig, P4MeterEntry, P4TableEntry

from gradlane_controller.network.fabric import Fabric, LinkPort, Port
from gradlane_controller.network.links import End
from gradlane_controller.policy.entities import Entity, kept
from gradlane_controller.policy.thresholds import thresholds
from gradlane_controller.policy.usage import Usage

CONTROL_PART = 8
"""A host may send this part of its port's rate in the top class: control datagrams are a hundredth of what a job
sends."""
EXCESS_CLASS = 1  # what a job sends beyond its share waits behind the others, but before best effort


def virtual_queues(fabric: Fabric, switch: str, moved: Mapping[End, tuple[int, int]]) -> list[Entity]:
    """The virtual queue of every port; `moved`: the thresholds of those where they are not as the file says."""
    return [
        _virtual_queue(
            port.number,
            _octets(fabric, port, port.rate),
            *(moved.get((switch, port.number)) or thresholds(fabric, port)),
        )
        for port in _ports(fabric, switch)
    ]


@kept
def _virtual_queue(number: int, rate: int, yellow: int, red: int) -> Entity:
    config = P4MeterConfig(cir=rate, cburst=yellow, pir=rate, pburst=red)
    return P4MeterEntry("virtual_queue", index=number, config=config)


def control_rates(fabric: Fabric, switch: str) -> list[Entity]:
    """What each host may send in the top class."""
    return [
        P4MeterEntry("control_rates", index=port.number, config=_bucket(fabric, port, port.rate // CONTROL_PART))
        for port in fabric.ports_at(switch)
    ]


def port_policies(fabric: Fabric, switch: str, usage: Usage) -> list[Entity]:
    """What each port with gradients drops at which colour, and whether another switch comes after it."""
    entities: list[Entity] = []
    for port in _ports(fabric, switch):
        jobs = usage.jobs_at(switch, port.number)
        to_fabric = int(isinstance(port, LinkPort))
        if jobs:  # they agree (checks.check_shared_ports), but where a link that is down has brought them together
            policy = jobs[0].policy
            # Best effort waits behind prioritised gradients, so it fills the virtual queue only if they share it.
            lowest = 1 if policy.priority else 0
            entities.append(_port_policy(port.number, lowest, policy.yellow, policy.red, to_fabric))
        elif to_fabric:
            entities.append(_port_policy(port.number, 0, 7, 1, to_fabric))
    return entities


def job_shares(fabric: Fabric, switch: str, usage: Usage, indices: Mapping[int, int]) -> list[Entity]:
    """Each job's part of a port that several jobs use, by weight."""
    entities: list[Entity] = []
    for port in _ports(fabric, switch):
        jobs = usage.jobs_at(switch, port.number)
        if len(jobs) < 2:
            continue
        weights = sum(job.policy.weight for job in jobs)
        for job in jobs:
            bucket = _bucket(fabric, port, port.rate * job.policy.weight // weights)
            entities.append(_job_share(indices[job.id], port.number, bucket.cir, bucket.cburst, bucket.pburst))
    return entities


@kept
def _job_share(job_index: int, port: int, rate: int, yellow: int, red: int) -> Entity:
    return P4TableEntry(
        "job_shares",
        match=Match(job_index=job_index, egress_port=port),
        action=Action("set_share", queue_class_of_excess=EXCESS_CLASS),
        meter_config=P4MeterConfig(cir=rate, cburst=yellow, pir=rate, pburst=red),
    )


def _ports(fabric: Fabric, switch: str) -> list[Port | LinkPort]:
    return [*fabric.ports_at(switch), *fabric.link_ports_at(switch)]


def _octets(fabric: Fabric, port: Port | LinkPort, rate: int) -> int:
    return max(rate // 8 // fabric.pipes_of(port.switch), 1)


def _bucket(fabric: Fabric, port: Port | LinkPort, rate: int) -> P4MeterConfig:
    octets = _octets(fabric, port, rate)
    yellow, red = thresholds(fabric, port)
    return P4MeterConfig(cir=octets, cburst=yellow, pir=octets, pburst=red)


@kept
def _port_policy(number: int, lowest: int, yellow: int, red: int, to_fabric: int) -> P4TableEntry:
    action = Action("set_policy", lowest_metered_class=lowest, yellow=yellow, red=red, to_fabric=to_fabric)
    return P4TableEntry("port_policies", match=Match(egress_port=number), action=action)
