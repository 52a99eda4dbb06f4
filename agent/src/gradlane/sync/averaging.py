# SPDX-License-Identifier: Apache-2.0
"""Schemes in which disjoint groups average their parameters, exactly: a lost part could not be made up for later."""

from abc import abstractmethod
from collections.abc import Sequence
from functools import partial

from gradlane.client.connection import Connection
from gradlane.sync.block import Block
from gradlane.sync.schedule import Places
from gradlane.sync.scheme import Exchange, Plan, Scheme


class Averaging(Scheme):
    """Of groups that each worker knows by itself."""

    @abstractmethod
    def group(self, step: int, place: int, size: int) -> Places | None:
        """With whom the worker at `place` of `size` averages after its local step number `step`, from 0: places,
        ascending, itself among them; None: nobody. All members of a group name the same one."""

    def groups(self, place: int, size: int) -> list[Places]:
        """Groups in which the worker will be, so that they are made before the training begins."""
        return []

    def plan(self, connection: Connection, name: str) -> "Known":
        """See Scheme."""
        return Known(self, connection)


class InGroups(Plan):
    """Exchanges are averages in a group."""

    def among(self, places: Places | None, blocks: Sequence[Block]) -> list[Exchange]:
        """What a group averages; nothing if it is None, or this worker alone."""
        group = None if places is None else self.group(places)
        if group is None or len(group.ranks) == 1:
            self.ranks = ()
            return []
        self.ranks = group.ranks
        return [(block, partial(block.average, group)) for block in blocks]


class Known(InGroups):
    """Groups that an `Averaging` has for each step."""

    def __init__(self, scheme: Averaging, connection: Connection) -> None:
        super().__init__(connection)
        self._scheme = scheme
        for places in scheme.groups(self._place, self._size):
            self.group(places)

    def next(self, step: int, blocks: Sequence[Block]) -> list[Exchange]:
        """See Plan."""
        return self.among(self._scheme.group(step, self._place, self._size), blocks)
