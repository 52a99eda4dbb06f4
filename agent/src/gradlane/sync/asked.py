# SPDX-License-Identifier: Apache-2.0
"""Groups that average parameters, as a generator at the agent that leads the job decides while the training runs."""

import math
from collections.abc import Sequence
from typing import ClassVar
from weakref import WeakKeyDictionary

from gradlane._core import lib
from gradlane.client.connection import Connection
from gradlane.sync.averaging import InGroups
from gradlane.sync.block import Block
from gradlane.sync.schedule import Places
from gradlane.sync.scheme import Exchange

_open: WeakKeyDictionary[Connection, str] = WeakKeyDictionary()  # the model that a job's process asks for


class Asked(InGroups):
    """Asks before each exchange. One at a time: a worker that waits in a group of one model would keep those waiting
    that have a group of another model with it."""

    label: ClassVar[str] = "gradlane.sync.asked"  # who is when in these groups is chance

    def __init__(self, connection: Connection, name: str, members: int, slack: int) -> None:
        """`members`, `slack`: see Generator. Raises ValueError if the job has several processes on a host, too many
        hosts, or such a plan that is not closed."""
        if connection.processes > 1:
            raise ValueError("ripples needs jobs with one process on each host (worker.processes)")
        super().__init__(connection)
        self._name = name
        self._members = min(members, max(2, self._size))
        self._slack = slack
        self._step = 0
        groups = sum(math.comb(self._size, members) for members in range(2, self._members + 1))
        others = self._size  # of all, and of those that are left after each death
        if groups + others > int(lib.GL_MAX_GROUPS):
            raise ValueError(
                f"ripples may need {groups} groups of {self._size} hosts, and a job has {lib.GL_MAX_GROUPS - others} "
                f"for it: choose fewer members than {self._members}"
            )
        if connection in _open:
            raise ValueError(
                f"ripples synchronises {_open[connection]!r} in this job, and {name!r} would be a second model at the "
                "same time: close the first one before, or synchronise the parameters of both as one model"
            )
        _open[connection] = name

    def next(self, step: int, blocks: Sequence[Block]) -> list[Exchange]:
        """See Plan."""
        self._step = step
        return self.among(self._ask(False), blocks)

    def pause(self, blocks: Sequence[Block]) -> list[Exchange]:
        """See Plan: groups that have been decided already."""
        return self.among(self._ask(True), blocks)

    def close(self, blocks: Sequence[Block]) -> None:
        """See Plan."""
        super().close(blocks)
        _open.pop(self._connection, None)

    def _ask(self, pause: bool) -> Places:
        return self._connection.next_group(self._name, self._members, self._slack, self._step, pause)
