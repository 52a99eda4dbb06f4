# SPDX-License-Identifier: Apache-2.0
"""Steps of all ranks whose results tell who is in them: rank r contributes 4^r to each element, and owes nothing.

So whether a budget holds is counted from the results alone.
"""

import time
from collections.abc import Callable

import numpy as np

from gradlane import Communicator
from tests.support.agents import PATIENCE, pause
from tests.support.communicators import Ranks, each

LINES = "\n[loss]\npush = {push}\nerror_feedback = false"  # of the job file, behind [transport]
ELEMENTS = 352 * 100  # of one message of a hundred slices, in 32-bit lanes
_HOSTS_SLICE = 1500 // 4  # elements, at most, of a slice that hosts reduce


class CountedSteps:
    """`missing`: by rank, its elements that results did not have so far."""

    def __init__(self, ranks: Ranks, push: float) -> None:
        self.ranks, self.push = ranks, push
        self.missing = np.zeros(len(ranks), int)
        self.steps = 0

    def step(self) -> None:
        """All get the same, and no rank misses more than its budget."""

        def reduce(comm: Communicator) -> np.ndarray:
            array = np.full(ELEMENTS, 4.0**comm.rank, np.float32)
            return comm.all_reduce(array, op="sum", name="w", asynchronous=True).wait(PATIENCE)

        results = each(self.ranks, reduce)
        self.steps += 1
        for result in results[1:]:
            np.testing.assert_array_equal(result, results[0])
        left = results[0].astype(int)
        assert np.array_equal(left, results[0]), "an element is no sum of what was contributed"
        for rank in range(len(self.ranks)):
            has = left % 4
            assert has.max() <= 1, f"rank {rank} counts twice in step {self.steps}"
            lost = int((has == 0).sum())
            # Hosts give up slices of their own sizes, which may end before they do.
            assert lost <= self.push * ELEMENTS + len(self.ranks) * _HOSTS_SLICE * self.push, (
                f"rank {rank} misses {lost} elements of step {self.steps}"
            )
            self.missing[rank] += lost
            left = left // 4
        assert not left.any()

    def until(self, condition: Callable[[], object]) -> None:
        """As many steps as it takes."""
        begun = time.monotonic()
        while not condition():
            assert time.monotonic() < begun + PATIENCE, "it did not happen"
            self.step()
            pause(begun)
