# SPDX-License-Identifier: Apache-2.0
"""Which jobs send through which ports."""

from collections.abc import Iterable
from itertools import product

from gradlane.job import Job
from gradlane_controller.network.fabric import Fabric, LinkPort, Port
from gradlane_controller.network.topology import Topology


class Usage:
    """The jobs whose gradients may leave by a port. Every rank must be at a port of the fabric."""

    def __init__(self, fabric: Fabric, topology: Topology, jobs: Iterable[Job]) -> None:
        self._fabric = fabric
        self._topology = topology
        self._jobs: dict[tuple[str, int], list[Job]] = {}
        for job in jobs:
            for place in sorted({(it.switch, it.number) for it in self.ports_of(job)}):
                self._jobs.setdefault(place, []).append(job)

    def jobs_at(self, switch: str, number: int) -> list[Job]:
        """The jobs that may send by that port, in their order."""
        return self._jobs.get((switch, number), [])

    def ports_of(self, job: Job) -> list[Port | LinkPort]:
        """Those of its hosts, and of its links, by which its gradients may leave."""
        hosts = self._fabric.host_ports(it.host for it in job.members)
        return [*hosts, *links_of(self._fabric, self._topology, job)]

    def own_ports(self, job: Job) -> list[Port | LinkPort]:
        """Those by which no other job may send."""
        return [it for it in self.ports_of(job) if self._jobs[it.switch, it.number] == [job]]

    def shared_ports(self) -> dict[tuple[str, int], list[Job]]:
        """The ports, as switch and number, by which several jobs may send."""
        return {place: jobs for place, jobs in self._jobs.items() if len(jobs) > 1}


def links_of(fabric: Fabric, topology: Topology, job: Job) -> list[LinkPort]:
    """The sending ends of every link on a path between a worker and an aggregator, whose hosts must be there."""
    workers = {port.switch for port in fabric.host_ports(it.host for it in job.workers)}
    aggregators = {port.switch for port in fabric.host_ports(it.host for it in job.aggregators)}
    pairs = {*product(workers, aggregators), *product(aggregators, workers)}
    # By identity, as to hash so many took a third of the time of a plan.
    return [*{id(port): port for pair in pairs for port in topology.links_between(*pair)}.values()]
