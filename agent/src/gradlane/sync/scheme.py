# SPDX-License-Identifier: Apache-2.0
"""What a scheme of synchronisation is."""

from abc import ABC, abstractmethod
from enum import Enum
from typing import Any, ClassVar

import numpy.typing as npt

from gradlane.sync.schedule import Group

Array = npt.NDArray[Any]
State = dict[str, Array]


class What(Enum):
    """What workers average after a local step."""

    PARAMETERS = 1  # of a group, exactly: a lost part of an average could not be made up for later
    # By how much they have changed since the last time, of all workers. It is a gradient of several steps, so the job's
    # tolerance of loss holds, and error feedback makes up for what was lost.
    CHANGES = 2


class Scheme(ABC):
    """Which workers exchange what, when, and how it is mixed in. All workers of a job have an equal one.

    A worker is a host, by its place among the job's hosts: the processes of one host are always in the same group. A
    scheme is a frozen dataclass; what changes during the training is in the `state` of each array of parameters.
    """

    what: ClassVar[What]
    # Whether the next gradient is computed meanwhile, of the parameters before the exchange.
    behind: ClassVar[bool] = False
    lockstep: ClassVar[bool] = True  # all workers take equally many steps

    @abstractmethod
    def group(self, step: int, place: int, size: int) -> Group | None:
        """With whom the worker at `place` of `size` averages after its local step number `step`, from 0: places,
        ascending, itself among them; None: nobody. All members of a group name the same one. CHANGES are everyone's."""

    def groups(self, place: int, size: int) -> list[Group]:
        """Groups in which the worker will average parameters, so that they are made before the training begins."""
        return []

    def state(self, values: Array) -> State:
        """What the scheme keeps beside an array of parameters, which begins with `values`; saved in checkpoints."""
        return {}

    def change(self, values: Array, state: State) -> Array:
        """What is exchanged as CHANGES, in a new array."""
        raise NotImplementedError

    def mix(self, values: Array, average: Array, state: State) -> None:
        """Turns a worker's values into those that it goes on with, in place. `average`: of what was exchanged; of
        PARAMETERS it is `values` itself."""
        if average is not values:
            values[:] = average
