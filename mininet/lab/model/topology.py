# SPDX-License-Identifier: Apache-2.0
"""The topologies: which switches there are, how they are linked, and at which of them hosts may be. Pure data."""

from dataclasses import dataclass
from typing import Literal, get_args

from lab.model.errors import TopologyError

Kind = Literal["star", "leafspine", "dumbbell"]
Target = Literal["gradlane", "bmv2"]
KINDS: tuple[Kind, ...] = get_args(Kind)
_TARGETS: dict[str, Target] = {target: target for target in get_args(Target)}
LEAVES = (1, 8)
SPINES = (1, 8)


@dataclass(frozen=True)
class Topology:
    """`star`: one switch. `leafspine`: every leaf is linked to every spine. `dumbbell`: two switches and the bottleneck
    between them. `leaves` and `spines` count in a leaf-spine only."""

    kind: Kind = "star"
    leaves: int = 2
    spines: int = 2

    def __post_init__(self) -> None:
        """Raises TopologyError."""
        if self.kind not in KINDS:
            raise TopologyError(f"topology {self.kind!r} is unknown; there are {', '.join(KINDS)}")
        for name, value, (least, most) in (("leaves", self.leaves, LEAVES), ("spines", self.spines, SPINES)):
            if not least <= value <= most:
                raise TopologyError(f"{name} is {value}; it must be from {least} to {most}")

    def __str__(self) -> str:
        if self.kind != "leafspine":
            return self.kind
        return f"leafspine of {_count(self.leaves, 'leaf', 'leaves')} and {_count(self.spines, 'spine', 'spines')}"

    @property
    def edges(self) -> tuple[str, ...]:
        """The switches over which hosts are spread."""
        if self.kind == "star":
            return ("s1",)
        if self.kind == "dumbbell":
            return ("left", "right")
        return tuple(f"leaf{n}" for n in range(1, self.leaves + 1))

    @property
    def switches(self) -> tuple[str, ...]:
        """All of them; the place is the switch's index, from 1."""
        spines = self.spines if self.kind == "leafspine" else 0
        return self.edges + tuple(f"spine{n}" for n in range(1, spines + 1))

    @property
    def links(self) -> tuple[tuple[str, str], ...]:
        """The pairs of switches between which there is a link."""
        if self.kind == "dumbbell":
            return (("left", "right"),)
        return tuple((leaf, spine) for leaf in self.edges for spine in self.switches[len(self.edges) :])

    def targets(self, text: str) -> dict[str, Target]:
        """What runs as each switch, from e.g. "gradlane", "bmv2", "leaf1=bmv2,spine2=bmv2" or "bmv2,leaf1=gradlane".

        A word without a name is for all that are not named; without such a word that is gradlane-switch. Raises
        TopologyError.
        """
        chosen: dict[str, Target] = {}
        default: Target = "gradlane"
        for word in text.split(","):
            name, separator, value = word.strip().rpartition("=")
            if value not in _TARGETS:
                raise TopologyError(f"switch {value!r} is unknown; there are {', '.join(_TARGETS)}")
            target = _TARGETS[value]
            if not separator:
                default = target
            elif name in self.switches:
                chosen[name] = target
            else:
                raise TopologyError(f"there is no switch {name!r}; the {self} has {', '.join(self.switches)}")
        return {name: chosen.get(name, default) for name in self.switches}


def _count(number: int, one: str, several: str) -> str:
    return f"{number} {one if number == 1 else several}"
