# SPDX-License-Identifier: Apache-2.0
"""The sender's and the receiver's state machines against a network that does its worst: the guarantees hold."""

import functools
import math
import random
import re

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gradlane.wire import Header, Kind
from tests.gradlane.core.protocol.network import JOB, TOKEN, Cluster, Impairment
from tests.gradlane.core.protocol.test_collectives import shares
from tests.support.effort import tries
from tests.support.paths import DOCS

RUNS = tries(150, 1500)
LIMIT = 600_000_000  # us of simulated time within which every run ends
LONGEST_WAIT = 125_000  # us between two PROBEs of a message: 5/4 of PROBE_WAIT_MAX


class Bursts:
    """Loss as of Gilbert and Elliott: each way between two ranks is good or bad, and loses by its state.

    Kept in simulated time, 200 us at a time, so that retransmissions sent at once meet the same burst.
    """

    def __init__(self, cluster: Cluster, bad: float, good: float, stay_bad: float, stay_good: float, seed: int) -> None:
        self._cluster, self._loss = cluster, {True: bad, False: good}
        self._stay = {True: stay_bad, False: stay_good}
        self._random = random.Random(seed)
        self._state: dict[tuple[int, int], tuple[bool, int]] = {}

    def __call__(self, source: int, to: int, header: Header) -> bool:
        state, until = self._state.get((source, to), (False, 0))
        slot = self._cluster.now // 200
        for _ in range(min(slot - until, 100)):
            if self._random.random() >= self._stay[state]:
                state = not state
        self._state[source, to] = (state, slot)
        return self._random.random() >= self._loss[state]


class Partition:
    """Nothing passes between two sides for a while."""

    def __init__(self, cluster: Cluster, side: set[int], begin: int, end: int) -> None:
        self._cluster, self._side = cluster, side
        self._begin, self._end = cluster.now + begin, cluster.now + end

    def __call__(self, source: int, to: int, header: Header) -> bool:
        apart = (source in self._side) != (to in self._side)
        return not (apart and self._begin <= self._cluster.now < self._end)


def contributions(workers: int, size: int, seed: int) -> list[np.ndarray]:
    return [np.random.default_rng([seed, rank]).standard_normal(size).astype(np.float32) for rank in range(workers)]


def all_reduce(cluster: Cluster, inputs: list[np.ndarray], step: int = 0) -> list[np.ndarray]:
    """The results, once all workers have them. Raises TimeoutError: a livelock."""
    results = [cluster.submit(rank, step, 0, values) for rank, values in enumerate(inputs)]
    cluster.run(until=functools.partial(cluster.all_completed, step + 1), limit=LIMIT)
    return results


def check_result(cluster: Cluster, inputs: list[np.ndarray], results: list[np.ndarray], push_loss: float) -> None:
    """The result is the mean of what counted, bit for bit, and no push lost more than its budget."""
    cluster.run(limit=LIMIT)  # until every message is over, so that every loss has been told
    per_slice, size = cluster.slice_bytes // 4, inputs[0].size
    counted = np.ones((len(inputs), -(-size // per_slice)), dtype=bool)
    for rank, events in enumerate(cluster.events):
        for event in events:
            assert event.kind in (1, 2)
            if event.kind == 2:
                assert len(event.lost) <= round(push_loss * 1e6) * event.slices // 1_000_000
                counted[rank, [event.first_slice + i for i in event.lost]] = False
    elements = np.repeat(counted, per_slice, axis=1)[:, :size]
    total = functools.reduce(
        lambda a, b: a + b, [np.where(elements[r], v, np.float32(0)) for r, v in enumerate(inputs)]
    )
    expected = total / np.maximum(elements.sum(axis=0), 1).astype(np.float32)
    for result in results:
        np.testing.assert_array_equal(result, expected)
    for rank in range(cluster.ranks):
        counts = cluster.statistics(rank)
        assert counts.budget_violations == 0
        assert counts.slices_lost <= counts.budget_total


model = settings(max_examples=RUNS, deadline=None, suppress_health_check=[HealthCheck.too_slow])
topologies = st.tuples(st.integers(2, 4), st.integers(0, 2))
tolerances = st.sampled_from([0.0, 0.0, 0.05, 0.3])


@model
@given(
    topology=topologies,
    loss=st.floats(0, 0.9),
    duplicate=st.floats(0, 0.3),
    corrupt=st.floats(0, 0.1),
    delay=st.integers(1, 3000),
    jitter=st.integers(0, 3000),
    trim=st.sampled_from([0.0, 0.0, 0.5]),
    push_loss=tolerances,
    size=st.integers(1, 500),
    data=st.data(),
    seed=st.integers(0, 2**32),
)
def test_any_loss_duplication_reordering_and_corruption(
    topology, loss, duplicate, corrupt, delay, jitter, trim, push_loss, size, data, seed
):
    impairment = Impairment(loss, duplicate, corrupt, delay, jitter, trim=trim)
    weights = data.draw(st.none() | shares(topology[1] or topology[0]))
    cluster = Cluster(*topology, push_loss, impairment=impairment, seed=seed, weights=weights)
    inputs = contributions(topology[0], size, seed)
    check_result(cluster, inputs, all_reduce(cluster, inputs), push_loss)


@model
@given(
    topology=topologies,
    bad=st.floats(0.6, 1.0),
    good=st.sampled_from([0.0, 0.01, 0.3]),
    stay_bad=st.floats(0.5, 0.95),
    stay_good=st.floats(0.3, 0.99),
    push_loss=tolerances,
    size=st.integers(1, 500),
    seed=st.integers(0, 2**32),
)
def test_bursts_of_60_to_100_percent_loss(topology, bad, good, stay_bad, stay_good, push_loss, size, seed):
    cluster = Cluster(*topology, push_loss, seed=seed)
    cluster.filter = Bursts(cluster, bad, good, stay_bad, stay_good, seed)
    inputs = contributions(topology[0], size, seed)
    check_result(cluster, inputs, all_reduce(cluster, inputs), push_loss)


@settings(model, max_examples=RUNS // 2)
@given(
    topology=topologies,
    begin=st.integers(0, 5_000),
    length=st.integers(1_000, 3_000_000),
    loss=st.sampled_from([0.0, 0.05, 0.5]),
    push_loss=tolerances,
    size=st.integers(1, 500),
    seed=st.integers(0, 2**32),
)
def test_a_partition_for_a_while_delays_and_no_more(topology, begin, length, loss, push_loss, size, seed):
    cluster = Cluster(*topology, push_loss, seed=seed, impairment=Impairment(loss))
    cluster.filter = Partition(cluster, {0}, begin, begin + length)
    inputs = contributions(topology[0], size, seed)
    healed = cluster.now + begin + length
    results = all_reduce(cluster, inputs)
    if not loss:
        assert cluster.now < healed + 3 * LONGEST_WAIT
    check_result(cluster, inputs, results, push_loss)


@settings(model, max_examples=RUNS // 2)
@given(
    topology=topologies,
    loss=st.floats(0, 0.5),
    push_loss=tolerances,
    size=st.integers(1, 300),
    seed=st.integers(0, 2**32),
)
def test_datagrams_that_do_not_belong_change_nothing(topology, loss, push_loss, size, seed):
    cluster = Cluster(*topology, push_loss, seed=seed, impairment=Impairment(loss))
    chance, forged = random.Random(seed), 0

    def forge(source: int, to: int, header: Header) -> bool:
        nonlocal forged
        if header.kind in (Kind.DATA, Kind.REPAIR) and chance.random() < 0.3:
            wrong = chance.choice([{"token": TOKEN ^ 1 << chance.randrange(64)}, {"job": JOB ^ 1}, {"version": 9}])
            fields = {name: getattr(header, name) for name in Header.__dataclass_fields__} | wrong
            cluster.receive(to, Header(**fields).pack() + chance.randbytes(header.length))
            forged += 1
        return True

    cluster.filter = forge
    inputs = contributions(topology[0], size, seed)
    check_result(cluster, inputs, all_reduce(cluster, inputs), push_loss)
    counts = [cluster.statistics(rank) for rank in range(cluster.ranks)]
    assert sum(c.bad_token + c.bad_job + c.bad_header for c in counts) == forged


def rounds(loss: float, slices: int) -> float:
    """Of PROBEs that a message may take on average, by the formula of docs/protocol.md."""
    [formula] = re.findall(r"^    (.*ln N.*)$", (DOCS / "protocol.md").read_text(), re.MULTILINE)
    found = eval(re.sub(r"\bln (\w|\([^)]*\))", r"log(\1)", formula), {"log": math.log, "N": slices, "q": loss})
    return float(found)


@pytest.mark.parametrize("loss", [0.3, 0.6, 0.8, 0.9])
def test_probes_are_bounded_by_what_the_loss_makes_necessary(loss):
    probes = messages = 0
    for seed in range(12):
        cluster = Cluster(2, seed=seed, impairment=Impairment(loss))
        all_reduce(cluster, contributions(2, 64 * 16, seed))
        cluster.run(limit=LIMIT)
        probes += sum(cluster.statistics(r).probes_sent for r in range(2))
        messages += sum(cluster.statistics(r).messages_sent for r in range(2))
    assert messages == 12 * 4
    assert probes / messages <= rounds(loss, 32)


def test_a_sender_with_a_fixed_number_of_rounds_would_fail_where_this_one_ends():
    """In bursts of 60 to 90 % loss most messages need more rounds than the handful after which others give up."""
    needed = []
    for seed in range(20):
        cluster = Cluster(2, seed=seed)
        cluster.filter = Bursts(cluster, 0.9, 0.6, 0.9, 0.5, seed)
        asked = 0

        def count(source, to, header, bursts=cluster.filter):
            nonlocal asked
            asked += header.kind in (Kind.PROBE, Kind.BITMAP)
            return bursts(source, to, header)

        cluster.filter = count
        inputs = contributions(2, 64 * 16, seed)
        check_result(cluster, inputs, all_reduce(cluster, inputs), 0.0)
        needed.append(asked / 4)
    assert sum(n > 8 for n in needed) > len(needed) / 2


def test_a_host_that_slept_goes_on():
    """For an hour, in the middle of a step: no timer, round trip or rate is the worse for it."""
    cluster = Cluster(2, impairment=Impairment(loss=0.1))
    inputs = contributions(2, 6400, 1)
    results = [cluster.submit(rank, 0, 0, values) for rank, values in enumerate(inputs)]
    with pytest.raises(TimeoutError):
        cluster.run(until=lambda: False, limit=3_000)
    assert not cluster.all_completed(1)
    cluster.now += 3_600_000_000
    woken = cluster.now
    cluster.run(until=lambda: cluster.all_completed(1))
    assert cluster.now - woken < 200_000
    check_result(cluster, inputs, results, 0.0)


def test_stops_that_are_all_lost_at_first_keep_nobody_waiting():
    cluster = Cluster(2)
    lost = 0

    def lose(source, to, header):
        nonlocal lost
        lost += (stop := header.kind == Kind.STOP and lost < 40)
        return not stop

    cluster.filter = lose
    inputs = contributions(2, 640, 2)
    check_result(cluster, inputs, all_reduce(cluster, inputs), 0.0)
    assert lost == 40
    assert all(cluster.statistics(r).memory_used == 0 for r in range(2))
