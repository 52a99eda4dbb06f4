# SPDX-License-Identifier: Apache-2.0
"""What is known of the sums at switches beside the plan: who lacks its part, and when a slot was forgotten."""

import random
from collections.abc import Iterable, Mapping
from dataclasses import replace

from gradlane_controller.desired.plan import Plan
from gradlane_controller.network.fabric import SwitchAddress
from gradlane_controller.policy import Numbers
from gradlane_controller.policy.sums import HeldSums, Sums

EPOCHS = 255  # of a switch, from 1


class SumsAtSwitches:
    """`lacking`: the switches that are known not to hold their part of the plan; trees go around them.

    A slice that a switch has forgotten must not be summed there as if it was new. So each switch has an epoch, which
    changes whenever it has lost its tables (and its slots with them) or a job has other slots.
    """

    def __init__(self) -> None:
        self.lacking: set[str] = set()
        self._read: set[str] = set()
        self._slots: dict[int, tuple[int, int]] = {}  # the last ones of each job that was ever there

    def stand_by(self) -> None:
        """Another controller writes to the switches: what they hold has to be read again."""
        self._read.clear()

    def read(self, where: SwitchAddress, held: HeldSums, plan: Plan, *, started: bool) -> Numbers:
        """What the jobs' numbers are, as a switch says what it holds at the beginning of a session.

        Before the controller has `started`, any switch may lack what it is about to get.
        """
        own, name = plan.numbers, where.name
        if not where.aggregation:
            return own
        epoch = held.epoch
        if epoch is None:
            epoch = after(own.epochs.get(name, 1)) if name in self._read else random.randint(1, EPOCHS)
        sums, withheld, wanted = own.sums, own.withheld, HeldSums.of(plan.entities[name])
        if name not in self._read:
            # Those that switches have are first: nobody may change them under running jobs.
            read = {number: Sums(base) for number, base in held.bases.items()}
            sums = read | {number: it for number, it in sums.items() if number not in read}
            withheld |= held.others(wanted) & {it.id for it in plan.jobs.values() if not it.sums_name_workers}
        self._read.add(name)
        if started and held.parts != wanted.parts:
            self.lacking.add(name)
        return replace(own, sums=sums, epochs={**own.epochs, name: epoch}, withheld=withheld)

    def leave_out(self, before: Plan, plan: Plan, away: Iterable[str]) -> None:
        """Switches that are away lack their part of a new plan if it is another one."""
        for name in away:
            old, new = (HeldSums.of(it.entities.get(name, ())) for it in (before, plan))
            if old.parts != new.parts:
                self.lacking.add(name)

    def renumbered(self, plan: Plan) -> Numbers:
        """The numbers of a new plan, with another epoch at the switches where a job has other slots than it had."""
        epochs = dict(plan.numbers.epochs)
        for number, slots in _slots(plan).items():
            if self._slots.get(number, slots) != slots:
                epochs |= {name: after(plan.numbers.epochs.get(name, 1)) for name in plan.numbers.sums[number].switches}
        return replace(plan.numbers, epochs=epochs)

    def take(self, plan: Plan) -> None:
        """It is the plan now."""
        self._slots |= _slots(plan)


def after(epoch: int) -> int:
    """The next one."""
    return epoch % EPOCHS + 1


def _slots(plan: Plan) -> Mapping[int, tuple[int, int]]:
    return {number: (it.sums.base, it.job.transport.sum_slots) for number, it in plan.summed.items()}
