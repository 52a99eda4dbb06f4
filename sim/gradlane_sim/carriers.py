# SPDX-License-Identifier: Apache-2.0
"""Who carries a job's gradients, or background flows: Gradlane with the settings of its job file, or a rival."""

from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

_MSS = 1460


@dataclass(frozen=True)
class Gradlane:
    """Gradlane's engines and switches. `push`, `pull`: the tolerated loss; 0 is its lossless mode. `droppable`: which
    part of a message, the smallest gradients, switches may drop under congestion. `slots`: of a switch's budget
    registers, for the job: a power of two. Where switches sum (a job's algorithm is "switch"): `lanes` on the wire,
    slices of a tensor on their way, and slots of the job; `known`: of a step before the first one all know how large
    gradients are."""

    push: float = 0.0
    pull: float = 0.0
    droppable: float = 0.5
    trim: bool = False
    priority: bool = True
    slots: int = 65536
    slot_base: int = 0
    slice_bytes: int = 1432
    lanes: str = "int16"
    sum_window: int = 64
    sum_slots: int = 1024
    known: bool = False
    kind: ClassVar[str] = "gradlane"

    @property
    def payload(self) -> int:
        return self.slice_bytes


@dataclass(frozen=True)
class Rival:
    """A transport of the program's own: `kind` and its settings as sim/src reads them."""

    kind: str
    settings: tuple[tuple[str, Any], ...] = ()

    @property
    def payload(self) -> int:
        return _MSS

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, **dict(self.settings)}


Carrier: TypeAlias = Gradlane | Rival
