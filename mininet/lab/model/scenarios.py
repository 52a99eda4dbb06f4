# SPDX-License-Identifier: Apache-2.0
"""The scenarios: what the network does to the training, and which arms are compared under it. Pure data."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from gradlane.units import parse_rate, parse_size
from lab.model.arms import ARMS, EXPEDITED_FORWARDING
from lab.model.errors import ScenarioError
from lab.model.topology import Topology

STAR = Topology()
# The limits of what a user may ask for; what the fabric of a small machine can still carry.
WORKERS = (2, 16)
SERVERS = (1, 8)
RATE = (parse_rate("1mbit"), parse_rate("1gbit"))
BUFFER = (parse_size("8kB"), parse_size("4MB"))


@dataclass(frozen=True)
class Bursts:
    """On/off cross traffic from one further host: the same packets at the same times for every arm.

    receivers: towards whose ports; `sink` is a further host at every edge switch. rate_share: of a link's rate while a
    burst is on, towards each receiver. period: seconds from burst to burst. duty: fraction of the period that is on.
    stagger: the ports' bursts come in turn, not at once. source: the switch where the sender is; empty for an edge
    switch. dscp: of the packets, 0 for best effort.
    """

    receivers: Literal["worker", "server", "sink"]
    rate_share: float
    period: float
    duty: float
    stagger: bool
    source: str = ""
    dscp: int = 0


@dataclass(frozen=True)
class Failure:
    """A switch dies in the middle of every arm, with all its links, when this share of the steps is done."""

    switch: str
    share: float


@dataclass(frozen=True)
class Slowness:
    """The last worker computes more slowly than the others, in every step of every arm.

    computation_ms: what a step's computation takes the others. It really takes less, and a pause makes up the rest: so
    the workers of a machine with few cores are like hosts with processors of their own. factor: how many times as long
    the last worker takes.
    """

    computation_ms: int
    factor: int

    def milliseconds(self, rank: int, workers: int) -> int:
        """What a step's computation takes that worker."""
        return self.computation_ms * (self.factor if rank == workers - 1 else 1)


@dataclass(frozen=True)
class Scenario:
    """One scenario. `arms` are compared on the same fabric; the first is the one that the others are measured against.
    `further_arms` are those that only the benchmark adds: baselines with settings that few users make.

    rate in bit/s of every link, buffer in bytes of every switch port. loss: probability that a frame is lost on the
    first worker's link, in each direction. steps: of training, the same for every arm. bmv2_scale: what BMv2 carries of
    it: there the links' rate and the gradients' size are multiplied by that, so that a step takes as long as before
    (timeouts of TCP do not scale); `scale` is the part that was applied. thresholds: of congestion, as fractions of the
    buffer; None: those that the controller derives.
    """

    name: str
    summary: str
    arms: tuple[str, ...]
    workers: int
    servers: int
    rate: int
    buffer: int
    steps: int
    topology: Topology = STAR
    loss: float = 0.0
    bursts: Bursts | None = None
    failure: Failure | None = None
    slow: Slowness | None = None
    further_arms: tuple[str, ...] = ()
    thresholds: tuple[float, float] | None = None
    bmv2_scale: float = 0.25
    scale: float = 1.0

    def for_switch(self, switch: str) -> "Scenario":
        """The scenario as these switches carry it (as Topology.targets takes them). Raises TopologyError."""
        if "bmv2" not in self.topology.targets(switch).values():
            return self
        rate = max(RATE[0], round(self.rate * self.bmv2_scale))
        return dataclasses.replace(self, rate=rate, scale=rate / self.rate)

    def with_settings(
        self,
        *,
        topology: Topology | None = None,
        arms: tuple[str, ...] | None = None,
        workers: int | None = None,
        servers: int | None = None,
        rate: int | None = None,
        buffer: int | None = None,
        steps: int | None = None,
    ) -> "Scenario":
        """The scenario with what a user set instead. Raises ScenarioError."""
        given: dict[str, Any] = {
            "topology": topology,
            "arms": arms,
            "workers": workers,
            "servers": servers,
            "rate": rate,
            "buffer": buffer,
            "steps": steps,
        }
        changed = dataclasses.replace(self, **{key: value for key, value in given.items() if value is not None})
        changed._check_switches()
        _check_range("workers", changed.workers, WORKERS, "")
        _check_range("rate", changed.rate, RATE, " bit/s")
        _check_range("buffer", changed.buffer, BUFFER, " bytes")
        _check_range("steps", changed.steps, (10, 100_000), "")
        if not changed.arms:
            raise ScenarioError(f"no arm is named; the arms are {', '.join(ARMS)}")
        for arm in changed.arms:
            if arm not in ARMS:
                raise ScenarioError(f"arm {arm!r} is unknown; the arms are {', '.join(ARMS)}")
        if len(set(changed.arms)) < len(changed.arms):
            raise ScenarioError(f"an arm is named twice in {','.join(changed.arms)}; once each is right")
        if any(ARMS[arm].servers for arm in changed.arms):
            _check_range("servers", changed.servers, SERVERS, "")
        else:
            changed = dataclasses.replace(changed, servers=0)
        return changed

    def _check_switches(self) -> None:
        """What the scenario does to a switch needs one of that name, and one beside it."""
        named = {self.failure.switch if self.failure else "", self.bursts.source if self.bursts else ""} - {""}
        for name in named:
            if name not in self.topology.switches:
                raise ScenarioError(
                    f"scenario {self.name!r} needs a switch {name!r}; the {self.topology} has "
                    f"{', '.join(self.topology.switches)}"
                )
        if self.failure and self.topology.spines < 2:
            raise ScenarioError(f"scenario {self.name!r} needs at least 2 spines: one of them fails")


def _check_range(name: str, value: int, limits: tuple[int, int], unit: str) -> None:
    if not limits[0] <= value <= limits[1]:
        raise ScenarioError(f"{name} is {value}{unit}; it must be from {limits[0]} to {limits[1]}{unit}")


_BASE = Scenario(
    name="clean",
    summary="no other traffic: what the transport itself is worth",
    arms=("gradlane", "gradlane-fp32", "gradlane-switch-sum", "ddp-gloo", "ddp-gloo-fp16"),
    workers=4,
    servers=0,
    rate=parse_rate("100mbit"),
    buffer=parse_size("64kB"),
    steps=100,
)

# With and without spraying, and what TCP makes of the same paths.
_LEAF_SPINE = dataclasses.replace(
    _BASE,
    arms=("gradlane", "gradlane-ecmp", "ddp-gloo-fp16"),
    topology=Topology("leafspine"),
    # Every packet crosses up to three switches, which share the machine's cores.
    rate=parse_rate("25mbit"),
    steps=60,
    bmv2_scale=0.5,
)

SCENARIOS: Mapping[str, Scenario] = {
    scenario.name: scenario
    for scenario in (
        _BASE,
        dataclasses.replace(
            _BASE,
            name="incast",
            summary="many workers push to one parameter server through a shallow buffer",
            arms=("gradlane-ps", "gradlane-switch-sum", "ps-tcp"),
            further_arms=("ps-tcp-tuned",),
            workers=8,
            servers=1,
            steps=80,
            # About twice what the path itself holds, which is what a shallow-buffered switch has per port.
            buffer=parse_size("16kB"),
        ),
        dataclasses.replace(
            _BASE,
            name="burst",
            summary="bursts of other traffic take the workers' ports again and again",
            arms=("gradlane", "no-drop", "no-priority", "lossless", "ddp-gloo", "ddp-gloo-fp16", "ddp-gloo-prio"),
            bursts=Bursts("worker", rate_share=1.5, period=0.1, duty=0.4, stagger=False),
        ),
        dataclasses.replace(
            _BASE,
            name="gray",
            summary="one worker's link silently loses 1 % of the frames",
            arms=("gradlane", "lossless", "ddp-gloo", "ddp-gloo-fp16"),
            further_arms=("ddp-gloo-tuned",),
            loss=0.01,
        ),
        dataclasses.replace(
            _LEAF_SPINE,
            name="asymmetric",
            # TCP in best effort would wait behind that traffic, so it is in the same class.
            arms=("gradlane", "gradlane-ecmp", "ddp-gloo-prio"),
            summary="other traffic, in the gradients' own class, takes 60 % of one spine's links to the leaves",
            bursts=Bursts(
                "sink",
                rate_share=0.6,
                period=1.0,
                duty=1.0,
                stagger=False,
                source="spine1",
                dscp=EXPEDITED_FORWARDING,
            ),
        ),
        dataclasses.replace(
            _LEAF_SPINE,
            name="spine-failure",
            summary="one of two spines dies in the middle of the training, with all its links",
            failure=Failure("spine1", share=0.4),
        ),
        dataclasses.replace(
            _LEAF_SPINE,
            name="racks",
            summary="two racks of four workers, and spines with half of what the hosts have",
            arms=("gradlane-switch-sum", "gradlane", "ddp-gloo-fp16"),
            workers=8,
            rate=parse_rate("10mbit"),
            steps=16,
        ),
        dataclasses.replace(
            _BASE,
            name="straggler",
            summary="one of the workers takes three times as long to compute as each of the others",
            arms=("ripples", "gradlane", "ddp-gloo-fp16"),
            # The network is no bottleneck, so that what is left is waiting.
            rate=parse_rate("200mbit"),
            steps=80,
            slow=Slowness(computation_ms=300, factor=3),
        ),
    )
}
