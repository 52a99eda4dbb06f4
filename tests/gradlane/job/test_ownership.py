# SPDX-License-Identifier: Apache-2.0
"""Shares of owners: as good as any, by an oracle that lists every message of an all-reduce and counts its bits."""

import heapq

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradlane.job import ownership
from gradlane.job.ownership import UNITS, Case, Owner, best, seconds, weights
from tests.support.effort import tries

rates = st.floats(1e8, 1e10)
lateness = st.just(0.0) | st.floats(0, 2)


@st.composite
def cases(draw: st.DrawFn, most: int = 64) -> Case:
    workers = draw(st.integers(2, most))
    late = draw(st.lists(lateness, min_size=workers, max_size=workers))
    servers = draw(st.sampled_from([0, 0, 0, 1, 2, 5]))
    count = servers or workers
    of = draw(st.lists(rates, min_size=count, max_size=count) | st.just([1e9] * count))
    owners = tuple(Owner(rate, 0.0 if servers else late[k]) for k, rate in enumerate(of))
    return Case(draw(st.integers(1, 10**9)), workers, owners, max(late), servers > 0, draw(st.booleans()))


def counted(case: Case, owner: int, share: float) -> float:
    """When an owner is done, message by message: each worker pushes to it, it sends a result to each."""
    rate, bits = case.owners[owner].rate, case.nbytes * 8
    sends = receives = results = 0.0
    peers = range(case.workers) if case.servers else [k for k in range(case.workers) if k != owner]
    for peer in peers:
        receives += share * bits
        if not case.multicast or peer == peers[0]:
            results += share * bits
    if not case.servers:  # it contributes to all the others' shares, and gets their results
        sends += (1 - share) * bits
        receives += (1 - share) * bits
    sends += results
    late = case.owners[owner].late
    if case.servers:
        return case.last + max(sends, receives) / rate
    now = 0.0  # what its port receives, in the order in which it can come; the results, when all others have come
    coming = [(case.owners[peer].late, share) for peer in peers]
    for at, part in sorted([*coming, (max(coming)[0], 1 - share)]):
        now = max(now, at) + part * bits / rate
    if case.multicast:
        return max(receives / rate, case.last + results / rate, now)
    return max(late + max(sends, receives) / rate, case.last + results / rate, now)


def least(case: Case, units: int) -> float:
    """The earliest end with shares of whole units: each goes to the owner who would be done first with it."""
    heap = [(counted(case, k, 1 / units), k, 1) for k in range(len(case.owners))]
    heapq.heapify(heap)
    end = max(counted(case, k, 0.0) for k in range(len(case.owners)))
    for _ in range(units):
        done, k, has = heap[0]
        end = max(end, done)
        heapq.heapreplace(heap, (counted(case, k, (has + 1) / units), k, has + 1))
    return end


@settings(max_examples=tries(75, 750), deadline=None)
@given(case=cases())
def test_no_other_shares_are_better(case: Case) -> None:
    """One unit more or less for each owner is what whole units may cost against any shares."""
    units = 40 * len(case.owners)
    shares = best(case)
    assert sum(shares) == pytest.approx(1)
    assert min(shares) >= 0
    found = max(counted(case, k, share) for k, share in enumerate(shares))
    assert seconds(case, shares) == pytest.approx(found, rel=1e-9)
    assert found <= least(case, units) * (1 + 1e-9)


@settings(max_examples=tries(75, 750), deadline=None)
@given(case=cases(12))
def test_whole_units_come_close(case: Case) -> None:
    """The oracle is not too strict: with many units it comes down to what was found."""
    shares = best(case)
    found = seconds(case, shares)
    unit = max(counted(case, k, w + 1 / 4000) - counted(case, k, w) for k, w in enumerate(shares))
    assert least(case, 4000) <= (found + unit) * (1 + 1e-9)


@settings(max_examples=tries(100), deadline=None)
@given(case=cases())
def test_weights_are_the_shares_and_somebody_always_owns(case: Case) -> None:
    shares = best(case)
    found = weights(shares)
    assert min(found) >= 0
    assert sum(found) in (UNITS, len(shares))
    for share, weight in zip(shares, found, strict=True):
        assert weight / sum(found) == pytest.approx(share, abs=1.01 / UNITS)


@pytest.mark.parametrize("workers", range(2, 65))
def test_equal_links_without_a_straggler_have_equal_shares(workers: int) -> None:
    case = Case(10**6, workers, (Owner(1e9),) * workers)
    assert best(case) == pytest.approx([1 / workers] * workers)
    assert weights(best(case)) == [1] * workers
    assert seconds(case, best(case)) == pytest.approx(2 * (workers - 1) / workers * 8e6 / 1e9)


@pytest.mark.parametrize("workers", range(3, 65))
def test_a_straggler_owns_nothing_and_only_its_own_bytes_follow_it(workers: int) -> None:
    owners = [Owner(1e9)] * workers
    owners[workers // 2] = Owner(1e9, late=0.3)
    case = Case(10**6, workers, tuple(owners), last=0.3)
    shares = best(case)
    expected = [1 / (workers - 1)] * workers
    expected[workers // 2] = 0
    assert shares == pytest.approx(expected, abs=1e-9)
    assert weights(shares)[workers // 2] == 0
    assert seconds(case, shares) == pytest.approx(0.3 + 8e6 / 1e9)
    assert seconds(case, [1] * workers) == pytest.approx(0.3 + 2 * (workers - 1) / workers * 8e6 / 1e9)


def test_one_that_is_a_little_late_owns_a_little_less() -> None:
    """It is late by half of what the others need: they should not do all of its part."""
    late = 0.5 * 2 / 3 * 8e6 / 1e9
    case = Case(10**6, 4, (Owner(1e9), Owner(1e9), Owner(1e9), Owner(1e9, late)), late)
    assert 0 < best(case)[3] < 0.24


def test_what_late_workers_send_to_an_owner_counts_together_with_the_results() -> None:
    """Two of four: with 40 % each, the others' ports would receive 1.4 contributions when both have come."""
    case = Case(10**6, 4, (Owner(1e9), Owner(1e9), Owner(1e9, 0.3), Owner(1e9, 0.3)), 0.3)
    assert best(case) == pytest.approx([1 / 3, 1 / 3, 1 / 6, 1 / 6])
    assert seconds(case, best(case)) == pytest.approx(0.3 + 4 / 3 * 8e6 / 1e9)
    assert seconds(case, [0.4, 0.4, 0.1, 0.1]) == pytest.approx(0.3 + 1.4 * 8e6 / 1e9)


def test_of_a_slow_link_only_its_own_contribution_is_asked() -> None:
    case = Case(10**6, 4, (Owner(1e9), Owner(1e9), Owner(1e9), Owner(5e8)))
    assert weights(best(case))[3] == 0
    assert seconds(case, best(case)) == pytest.approx(2 * 8e6 / 1e9)
    assert seconds(case, [1] * 4) == pytest.approx(3 * 8e6 / 1e9)


def test_servers_have_shares_as_their_rates_and_multicast_forgives_lateness() -> None:
    servers = Case(10**6, 8, (Owner(1e9), Owner(3e9)), last=0.5, servers=True)
    assert best(servers) == pytest.approx([0.25, 0.75])
    late = (*[Owner(1e9)] * 3, Owner(1e9, 0.5))
    assert best(Case(10**6, 4, late, 0.5, multicast=True)) == pytest.approx([0.25] * 4)


def test_a_worker_alone_owns_all() -> None:
    assert best(Case(10**6, 1, (Owner(1e9),))) == [1.0]
    assert ownership.weights([1.0]) == [1]
