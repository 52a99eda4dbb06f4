# SPDX-License-Identifier: Apache-2.0
"""What is compared: a workload on a fabric (a scenario), carried in several ways (arms), with several seeds."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from gradlane_sim.specification import Specification


@dataclass(frozen=True)
class Arm:
    """Who carries the gradients. `subject`: Gradlane; others are what it is compared with. `setting`: that of the sweep
    which a rival has in place of its own."""

    name: str
    summary: str
    subject: bool = False
    setting: str = ""


@dataclass(frozen=True)
class Case:
    """A run."""

    scenario: str
    arm: Arm
    seed: int
    specification: Specification

    @property
    def name(self) -> str:
        return f"{self.scenario} · {self.arm.name} · seed {self.seed}"


@dataclass(frozen=True)
class Scenario:
    """`make`: the specification for an arm and a seed. Those of one `family` differ in nothing but `hosts`."""

    name: str
    summary: str
    hosts: int
    arms: tuple[Arm, ...]
    make: Callable[[Arm, int], Specification]
    family: str = ""

    def cases(self, seeds: Iterable[int]) -> list[Case]:
        return [Case(self.name, arm, seed, self.make(arm, seed)) for seed in seeds for arm in self.arms]


Study: TypeAlias = tuple[Scenario, ...]
