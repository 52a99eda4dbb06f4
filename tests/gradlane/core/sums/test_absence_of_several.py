# SPDX-License-Identifier: Apache-2.0
"""A host whose processes are late has several tensors."""

import numpy as np
from gradlane._core import lib

from tests.gradlane.core.sums.hosts import job
from tests.gradlane.core.sums.late_trial import STEPS, WINDOW, left_out
from tests.gradlane.core.sums.test_summed_exchange import PARTS


def test_a_step_of_several_tensors_without_the_processes_counts_once() -> None:
    with job(2, late=(STEPS, WINDOW)) as its:
        early, late = its.hosts
        values = [np.ones(sum(PARTS), np.float32)]
        for host in its.hosts:
            for number in (0, 1):
                host.tensor(number, PARTS)
        for number in (0, 1):
            its.step(number, [values, values])
        for number in (0, 1):
            slots = early.submit(number, values)
            with late.locked() as exchange:
                lib.gl_exchange_go_on(exchange, number, 2)
            early.wait(slots)
        assert late.counts()[1].left_out == 1
        assert left_out(late) == (1, 1)
        for number in (0, 1):
            late.wait(late.submit(number, values))
        for number in (*[0] * WINDOW, 1):  # one that is behind makes nothing recent again
            its.step(number, [values, values])
        assert left_out(late) == (1, 0)


def test_what_is_not_summed_or_waits_for_all_begins_with_the_processes_whatever_others_say() -> None:
    with job(2, late=(STEPS, WINDOW)) as its:
        late = its.hosts[1]
        for host in its.hosts:
            host.tensor(0, PARTS, summed=False)
            host.tensor(1, PARTS, late=False)
        for number in (0, 1):
            with late.locked() as exchange:
                lib.gl_exchange_go_on(exchange, number, 1)
            assert late.counts()[1].left_out == 0
            its.step(number, [[np.full(sum(PARTS), value, np.float32)] for value in (1, 3)])
            for host in its.hosts:
                np.testing.assert_array_equal(host.results[number], 2)
