# SPDX-License-Identifier: Apache-2.0
"""Who waited for whom, from what each worker knows by itself."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.model.waiting import Exchange, Part, exchanges, most_awaited, waited


def test_the_last_of_a_group_is_the_one_that_is_waited_for() -> None:
    found = exchanges(
        [
            [Part((0, 1, 2), 1.0, 4.5), Part((0, 1), 6.0, 6.5)],
            [Part((0, 1, 2), 2.0, 4.25), Part((0, 1), 5.5, 6.25)],
            [Part((0, 1, 2), 4.0, 4.75)],
        ]
    )
    assert found == (
        Exchange(worker=0, began=0.0, ready=1.0, complete=4.0, done=4.5, last=2),
        Exchange(worker=0, began=4.5, ready=6.0, complete=6.0, done=6.5, last=0),
        Exchange(worker=1, began=0.0, ready=2.0, complete=4.0, done=4.25, last=2),
        Exchange(worker=1, began=4.25, ready=5.5, complete=6.0, done=6.25, last=0),
        Exchange(worker=2, began=0.0, ready=4.0, complete=4.0, done=4.75, last=2),
    )
    assert waited(found, 3) == [[0.0, 0.0, 3.0], [0.5, 0.0, 2.0], [0.0, 0.0, 0.0]]
    worst = most_awaited(found, 3, seconds=10.0)
    assert worst is not None
    assert (worst.worker, worst.share) == (2, pytest.approx(5 / 20))


def test_nobody_waits_for_what_is_not_known_yet() -> None:
    found = exchanges([[Part((0, 1), 1.0, 3.0)], []])
    assert found == (Exchange(0, 0.0, 1.0, 1.0, 3.0, 0),)
    assert most_awaited(found, 2, 10.0) is None
    assert most_awaited((), 2, 0.0) is None


@given(data=st.data(), workers=st.integers(2, 5), steps=st.integers(0, 12))
def test_what_workers_note_is_put_together_again(data: st.DataObject, workers: int, steps: int) -> None:
    """Against a run that is made up in one place, where it is known who was last."""
    pairs = [group for size in range(2, workers + 1) for group in itertools.combinations(range(workers), size)]
    free = [0] * workers
    parts: list[list[Part]] = [[] for _ in range(workers)]
    expected: list[list[Exchange]] = [[] for _ in range(workers)]
    for _ in range(steps):
        group = data.draw(st.sampled_from(pairs))
        computing = data.draw(st.permutations(range(10 * workers)))  # so that no two are ready at the same time
        ready = {rank: max(free) + 1 + computing[rank] for rank in group}
        last = max(group, key=lambda rank: ready[rank])
        for rank in group:
            done = ready[last] + 1 + rank
            parts[rank].append(Part(group, ready[rank], done))
            expected[rank].append(Exchange(rank, free[rank], ready[rank], ready[last], done, last))
            free[rank] = done
    assert list(exchanges(parts)) == [it for of_worker in expected for it in of_worker]
