# SPDX-License-Identifier: Apache-2.0
"""Ripples, also called Prague (arXiv 1909.08029): partial all-reduces of groups that are decided on the way."""

from dataclasses import dataclass
from typing import ClassVar

from gradlane.client.connection import Connection
from gradlane.sync.asked import Asked
from gradlane.sync.scheme import Scheme


@dataclass(frozen=True)
class Ripples(Scheme):
    """After each local step a worker averages its parameters with a group that a generator has decided on, at the agent
    that leads the job.

    Workers may take different numbers of steps. Who is more than `slack` steps behind is not waited for.

    Volume: in each step a worker sends and receives 2(g - 1)/g times its parameters in a group of g, at most `members`,
    and a question and an answer of a few bytes between its agent and the leader's. It waits for g - 1 others.
    """

    lockstep: ClassVar[bool] = False
    survives: ClassVar[bool] = True
    members: int = 3
    slack: int = 2
    delay: int = 0

    def __post_init__(self) -> None:
        if self.members < 2 or self.slack < 0 or self.delay not in (0, 1):
            raise ValueError(f"{self}: members are at least 2, slack at least 0, delay is 0 or 1")

    @property
    def behind(self) -> int:
        """With a delay the next gradient is computed meanwhile."""
        return self.delay

    def plan(self, connection: Connection, name: str) -> Asked:
        """See Scheme."""
        return Asked(connection, name, self.members, self.slack)
