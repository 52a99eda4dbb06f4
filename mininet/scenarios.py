# SPDX-License-Identifier: Apache-2.0
"""The scenarios: what the network does to the training, and which arms are compared under it. Pure data."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from gradlane.units import parse_rate, parse_size
from training.arms import ARMS

# The limits of what a user may ask for; what the fabric of a small machine can still carry.
WORKERS = (2, 16)
SERVERS = (1, 8)
RATE = (parse_rate("1mbit"), parse_rate("1gbit"))
BUFFER = (parse_size("8kB"), parse_size("4MB"))


class ScenarioError(ValueError):
    """A setting that no fabric can have; the message names it and its range."""


@dataclass(frozen=True)
class Bursts:
    """On/off cross traffic from one further host, in best effort: the same packets at the same times for every arm.

    receivers: towards whose ports. rate_share: of a link's rate while a burst is on, towards each port. period: seconds
    from burst to burst. duty: fraction of the period that is on. stagger: the ports' bursts come in turn, not at once.
    """

    receivers: Literal["worker", "server"]
    rate_share: float
    period: float
    duty: float
    stagger: bool


@dataclass(frozen=True)
class Scenario:
    """One scenario. `arms` are compared on the same fabric; the first is the one that the others are measured against.
    `further_arms` are those that only the benchmark adds: baselines with settings that few users make.

    rate in bit/s of every link, buffer in bytes of every switch port. loss: probability that a frame is lost on the
    first worker's link, in each direction. steps: of training, the same for every arm.
    """

    name: str
    summary: str
    arms: tuple[str, ...]
    workers: int
    servers: int
    rate: int
    buffer: int
    steps: int
    loss: float = 0.0
    bursts: Bursts | None = None
    further_arms: tuple[str, ...] = ()

    def with_settings(
        self,
        *,
        arms: tuple[str, ...] | None = None,
        workers: int | None = None,
        servers: int | None = None,
        rate: int | None = None,
        buffer: int | None = None,
        steps: int | None = None,
    ) -> "Scenario":
        """The scenario with what a user set instead. Raises ScenarioError."""
        given = {"arms": arms, "workers": workers, "servers": servers, "rate": rate, "buffer": buffer, "steps": steps}
        changed = dataclasses.replace(self, **{key: value for key, value in given.items() if value is not None})
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


def _check_range(name: str, value: int, limits: tuple[int, int], unit: str) -> None:
    if not limits[0] <= value <= limits[1]:
        raise ScenarioError(f"{name} is {value}{unit}; it must be from {limits[0]} to {limits[1]}{unit}")


_BASE = Scenario(
    name="clean",
    summary="no other traffic: what the transport itself is worth",
    arms=("gradlane", "gradlane-fp32", "ddp-gloo", "ddp-gloo-fp16"),
    workers=4,
    servers=0,
    rate=parse_rate("100mbit"),
    buffer=parse_size("64kB"),
    steps=100,
)

SCENARIOS: Mapping[str, Scenario] = {
    scenario.name: scenario
    for scenario in (
        _BASE,
        dataclasses.replace(
            _BASE,
            name="incast",
            summary="many workers push to one parameter server through a shallow buffer",
            arms=("gradlane-ps", "ps-tcp"),
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
    )
}
