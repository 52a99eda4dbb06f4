# SPDX-License-Identifier: Apache-2.0
"""How workers agree on a new plan while they train: in two phases, so that no two ever reduce a step unlike.

1. The leader proposes. Each member answers with a bound: the last step that it will begin before it hears more.
2. When all have answered, the leader decides that the new plan holds from the step after the highest bound on. Nobody
   can have begun that step, however late the messages are. Or it withdraws the proposal. Either ends the promise.

A bound lies some steps ahead, so that nobody has to wait as long as messages come in time. A server begins no steps:
beyond its bound it leaves nobody out of one. A member that dies ends the job, as always. Messages of the leader come in
the order in which it sent them (TCP), and there is one proposal at a time.
"""

from collections.abc import Callable, Sequence
from typing import Any

Message = dict[str, Any]

MOST_AHEAD = 1 << 20  # steps: no half second has more


class Member:
    """A rank's part. `hold` promises, and returns the bound for so many steps ahead; `apply` takes a plan that holds
    from a step on, False if it can't; `release` ends the promise."""

    def __init__(
        self,
        hold: Callable[[int], int],
        apply: Callable[[int, Any], bool],
        release: Callable[[], None],
    ) -> None:
        self._hold, self._apply, self._release = hold, apply, release
        self._open = False  # whether there is a proposal

    def hear(self, message: Message) -> Message | None:
        """A message of the leader; what it is answered. Raises ValueError if it can't be followed."""
        if "propose" in message:
            ahead = int(message["ahead"])
            if self._open or not 0 <= ahead <= MOST_AHEAD:
                raise ValueError(
                    f"the leader proposes {ahead} steps ahead, of 0 to {MOST_AHEAD}"
                    + (", while its proposal before this one is open" if self._open else "")
                )
            self._open = True
            return {"bound": self._hold(ahead), "number": message["propose"]}
        if "decide" in message:
            first = int(message["decide"])
            if not self._open:
                raise ValueError(f"the leader decides on a plan from step {first} on, and has proposed none")
            if not self._apply(first, message["plan"]):
                raise ValueError(f"the plan {str(message['plan'])[:100]} can't hold from step {first} on")
        elif "withdraw" not in message:
            raise ValueError(f"the leader says {str(message)[:100]!r}")
        self._open = False
        self._release()
        return None


class Leader:
    """The leader's part. `tell` sends a message to every member (it may be one itself); `most`: the last step that a
    member can have begun by now."""

    def __init__(self, members: Sequence[int], tell: Callable[[Message], None], most: Callable[[], int]) -> None:
        self._members, self._tell, self._most = members, tell, most
        self._number = self._ahead = 0
        self._first = 0  # step from which the latest plan holds
        self._bounds: dict[int, int] = {}
        self._plan: Any = None  # of the open proposal
        self._facts: Message = {}

    @property
    def open(self) -> bool:
        """Whether a proposal is neither decided nor withdrawn."""
        return self._plan is not None

    def propose(self, plan: Any, ahead: int, facts: Message) -> None:
        """Begins to agree on a plan (what JSON takes), while nothing is open. `facts` go with the decision."""
        self._number += 1
        self._ahead = min(ahead, MOST_AHEAD)
        self._bounds = {}
        self._plan, self._facts = plan, facts
        self._tell({"propose": self._number, "ahead": self._ahead})

    def hear(self, member: int, message: Message) -> None:
        """A member's answer; of another proposal than the open one it counts for nothing. Raises ValueError if no
        member can have that bound: a plan that holds from there on would never do."""
        if self._plan is None or message["number"] != self._number:
            return
        bound, most = int(message["bound"]), self._most() + self._ahead
        if not self._ahead <= bound <= most:
            raise ValueError(f"it begins steps up to {bound} before it hears more: that can be {self._ahead} to {most}")
        self._bounds[member] = bound
        if not all(rank in self._bounds for rank in self._members):
            return
        self._first = max(self._first, *self._bounds.values()) + 1
        decided, self._plan = self._plan, None
        self._tell({"decide": self._first, "plan": decided, **self._facts})

    def withdraw(self) -> list[int]:
        """Gives the open proposal up; the members that have not answered."""
        missing = [rank for rank in self._members if rank not in self._bounds]
        self._plan = None
        self._tell({"withdraw": self._number})
        return missing
