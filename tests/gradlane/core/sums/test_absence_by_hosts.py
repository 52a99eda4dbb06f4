# SPDX-License-Identifier: Apache-2.0
"""A host whose processes are late with a step that hosts reduce, of a tensor that a switch sums otherwise."""

from gradlane.wire import Flag, Header, Kind
from tests.gradlane.core.sums.hosts import job
from tests.gradlane.core.sums.late_trial import LATE, STEPS, WINDOW, Trial


def test_it_sees_itself_that_the_others_wait() -> None:
    with job(3, late=(STEPS, WINDOW), after=20_000) as its:
        trial = Trial(its)
        trial.begin(without=True)()
        trial.come()
        trial.catch_up()
        trial.all()
        trial.check_owed()
        assert trial.late.counts()[1].left_out == 1


def test_of_its_zeros_nothing_is_owed_whatever_is_lost() -> None:
    with job(3, loss=500_000, late=(STEPS, WINDOW), relayed=LATE) as its:
        trial = Trial(its, [2000, 150])
        trial.all()
        for host in its.hosts:
            host.plan(2, 0)
        lost: list[int] = []

        def loses(header: Header) -> bool:
            """A third of the contribution to what rank 0 reduces of the first partition."""
            if header.kind not in (Kind.DATA, Kind.REPAIR) or header.flags & Flag.PULL:
                return False
            if (header.step, header.tensor, header.slice % 3) != (2, 0, 0):
                return False
            lost.append(header.slice)
            return True

        its.switch.loses = loses
        for step in (2, 3):  # the second one begins when all is known of the first
            wait = trial.begin(without=True, by_hosts=True)
            trial.go_on(step)
            wait()
        assert lost
        assert not trial.late.owed(0, 2).any()
        for _ in range(STEPS):
            trial.come()
            trial.catch_up()
        trial.check_owed()
