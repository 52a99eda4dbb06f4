# SPDX-License-Identifier: Apache-2.0
"""What many workers have lost is sent again at once, whoever has lost it."""

from collections.abc import Callable

import pytest

from gradlane.wire import Kind, Lanes
from tests.gradlane.core.sums.summing import Summed, Tensor
from tests.gradlane.core.sums.test_fall_back import Training
from tests.gradlane.core.sums.test_large_jobs import large

WINDOW, SLICES = 16, 48
WAIT = 5_000  # us, from when nothing comes any more; the least where nobody knows whether all have begun
SOON = 800  # us: some round trips, of 200


def trained(cluster: Summed, loses: Callable[[int, int], bool], slices: int = SLICES) -> int:
    """us of a step in which the first sending of some slices is lost: `loses(worker, slice)`."""
    training = Training(cluster, [Tensor(0, [slices * cluster.per_slice])], 2)
    cluster.passes = lambda source, header: header.kind != Kind.DATA or not loses(source, header.slice)
    cluster.run(lambda: cluster.complete(1, training.tensors[0]) or training.go_on())
    begun = cluster.now
    cluster.run(training.go_on)
    training.check([2])
    return cluster.now - begun


def exact(workers: int) -> Summed:
    return Summed(workers, WINDOW, 2 * WINDOW, Lanes.INT32_LANES, slice_bytes=144)


@pytest.mark.parametrize("workers", [16, 40])
def test_slices_that_each_lack_another_worker_are_not_repaired_one_by_one(workers: int) -> None:
    cluster = large("leaf-spine", window=WINDOW) if workers == 40 else exact(workers)
    assert trained(cluster, lambda worker, part: part % workers == worker) < SLICES / 2 * WAIT


@pytest.mark.parametrize(("slices", "soon"), [(SLICES, True), (1, False)])
def test_nobody_waits_for_a_late_worker_where_all_have_begun_the_step(slices: int, soon: bool) -> None:
    """The last slice has no later ones by which it could be missed."""
    without = trained(exact(3), lambda worker, part: False, slices)
    with_loss = trained(exact(3), lambda worker, part: (worker, part) == (1, slices - 1), slices)
    assert (with_loss < without + (SOON if soon else WAIT)) == soon
