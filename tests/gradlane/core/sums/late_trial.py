# SPDX-License-Identifier: Apache-2.0
"""A job one of whose hosts has processes that come late, for tests of what it does meanwhile."""

from collections.abc import Callable, Sequence

import numpy as np
from gradlane._core import ffi, lib

from tests.gradlane.core.sums.hosts import SLICE, Job, SummedHost
from tests.gradlane.core.sums.summing import Oracle, Tensor
from tests.gradlane.core.sums.test_summed_exchange import PARTS, of_hosts, values_of

LATE = 2  # the rank
STEPS, WINDOW = 2, 5
SLICES = sum(-(-4 * count // SLICE) for count in PARTS)  # that are owed as such


class Trial:
    """A job with one tensor, the steps of which end as the oracle says."""

    def __init__(self, its: Job, parts: Sequence[int] = PARTS) -> None:
        self.job, self.parts, self.oracle = its, parts, Oracle(its, Tensor(0, parts, True))
        self.step = 0
        self.expected: dict[int, np.ndarray] = {}
        for host in its.hosts:
            host.tensor(0, parts)
        self.late = its.hosts[LATE]
        self.taken = 0  # steps of the late host
        self.pending: list[int] = []

    def _values(self, step: int) -> list[list[np.ndarray]]:
        return values_of(self.job, step, sum(self.parts))

    def _by_hosts(self, values: list[np.ndarray], without: bool) -> np.ndarray:
        late = self.oracle.with_owed(values)[LATE]
        if without:
            self.oracle.owed[LATE] = 0
            values = [*values[:LATE], np.zeros_like(late)]
        expected = self.oracle.by_hosts(values)
        if without:
            self.oracle.owed[LATE] = late
        return expected

    def begin(self, *, without: bool = False, by_hosts: bool = False) -> Callable[[], None]:
        """The others begin a step; the first one is always by hosts. Returns what waits for it."""
        self.step += 1
        values = of_hosts(self._values(self.step), True)
        # Who is late is in no slice, as far as the oracle is concerned.
        members = dict.fromkeys(range(sum(-(-n // self.job.per_slice) for n in self.parts)), 0b011) if without else {}
        by_hosts |= self.step == 1
        self.expected[self.step] = (
            self._by_hosts(values, without) if by_hosts else self.oracle.by_switch(values, members)
        )
        others = [host for host in self.job.hosts if host is not self.late]
        slots = [host.submit(0, self._values(self.step)[host.rank]) for host in others]
        step = self.step

        def wait() -> None:
            for host, its in zip(others, slots, strict=True):
                host.wait(its)
                np.testing.assert_array_equal(host.results[0], self.expected[step])

        return wait

    def go_on(self, step: int) -> None:
        with self.late.locked() as exchange:
            lib.gl_exchange_go_on(exchange, 0, step)

    def come(self) -> None:
        """The late host's processes begin their next step."""
        self.taken += 1
        self.pending = self.late.submit(0, self._values(self.taken)[LATE])

    def catch_up(self) -> None:
        """They have its result."""
        self.late.wait(self.pending)
        np.testing.assert_array_equal(self.late.results[0], self.expected[self.taken])

    def all(self) -> None:
        wait = self.begin()
        self.come()
        wait()
        self.catch_up()

    def check_owed(self) -> None:
        assert self.taken == self.step
        for host, owed in zip(self.job.hosts, self.oracle.owed, strict=True):
            np.testing.assert_array_equal(host.owed(0, len(self.parts)), owed)


def since(host: SummedHost) -> int:
    states = ffi.new("gl_sum_state[4]")
    with host.locked() as exchange:
        assert lib.gl_exchange_sums_state(exchange, states, 4) == 1
    return int(states[0].since)


def left_out(host: SummedHost) -> tuple[int, int]:
    """Of how many steps it has been, and of how many recent ones."""
    found = ffi.new("gl_left_out *")
    with host.locked():
        assert lib.gl_engine_left_out(host.engine, host.rank, found) == 0
    return found.steps, found.recent
