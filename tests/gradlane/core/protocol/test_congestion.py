# SPDX-License-Identifier: Apache-2.0
"""Congestion control on simulated fabrics: even shares, short queues, and no slowing for losses that are tolerated."""

from typing import Any

import pytest
from gradlane._core import lib

from tests.gradlane.core.protocol.fabric_model import Model, dumbbell, jain, rates
from tests.gradlane.core.protocol.queued_port import Port
from tests.support.effort import only_thorough

BUFFER = 64_000


def unevenness(parts: list[float]) -> float:
    mean = sum(parts) / len(parts)
    return max(abs(part / mean - 1) for part in parts)


def start(model: Model) -> None:
    for job in model.jobs:
        model.start(job)
        model.run(3_000)
    model.run(100_000)


@pytest.mark.parametrize(
    ("jobs", "rate"),
    [
        pytest.param(2, 100_000_000, marks=only_thorough("fewer jobs than in another case")),
        pytest.param(4, 100_000_000, marks=only_thorough("fewer jobs than in another case")),
        (8, 100_000_000),
        (4, 300_000_000),
    ],
)
def test_jobs_that_meet_in_the_fabric_share_it_evenly_and_its_queue_stays_short(jobs, rate):
    model, port = dumbbell(jobs, rate)
    start(model)
    port.depths.clear()
    port.dropped = 0
    parts = rates(model, port, 1_000_000, model.jobs)
    depths = sorted(depth for _, depth in port.depths)
    assert unevenness(parts) < 0.1
    assert sum(parts) > 0.8
    assert sum(depths) / len(depths) < 0.4 * BUFFER
    assert port.dropped < 0.005 * len(depths)


def test_without_marks_losses_tell_of_the_queue():
    model, port = dumbbell(4, 200_000_000, mark=None)
    start(model)
    parts = rates(model, port, 1_500_000, model.jobs)
    assert unevenness(parts) < 0.15
    assert sum(parts) > 0.9


@pytest.mark.parametrize(
    ("jobs", "round_trip"),
    [pytest.param(1, 5_000, marks=only_thorough("shorter than in another case")), (2, 10_000), (1, 40_000)],
)
def test_a_long_way_is_filled_as_a_short_one_and_its_queue_stays_short(jobs, round_trip):
    """There are no marks, so it is known by the delay alone; the second job finds the queue of the first."""
    model, port = dumbbell(jobs, 100_000_000, None, 2 * BUFFER, elements=262_144)
    model.lengthen(round_trip // 2)
    start(model)
    model.run(800_000)
    port.depths.clear()
    parts = rates(model, port, 1_500_000, model.jobs)
    assert unevenness(parts) < 0.1
    assert sum(parts) > 0.93
    assert sum(depth for _, depth in port.depths) / len(port.depths) < 0.4 * port.buffer


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_way_that_becomes_longer_is_not_taken_for_a_queue_for_long(jobs):
    model, port = dumbbell(jobs, 100_000_000, None, 2 * BUFFER, elements=262_144)
    model.lengthen(500)
    start(model)
    model.run(500_000)
    model.lengthen(4_000)
    model.run(700_000)
    port.depths.clear()
    parts = rates(model, port, 1_300_000, model.jobs)
    assert unevenness(parts) < 0.15
    assert sum(parts) > 0.88
    assert sum(depth for _, depth in port.depths) / len(port.depths) < 0.5 * port.buffer


def test_a_job_that_comes_gets_its_part_and_one_that_goes_leaves_its_part():
    model, port = dumbbell(3, 200_000_000)
    first, second, late = model.jobs
    model.start(first)
    model.start(second)
    model.run(100_000)
    model.start(late)
    model.run(200_000)
    assert unevenness(rates(model, port, 400_000, model.jobs)) < 0.15
    model.stop(first)
    model.run(150_000)
    parts = rates(model, port, 800_000, [second, late])
    assert unevenness(parts) < 0.1
    assert sum(parts) > 0.8


@pytest.mark.parametrize(("weights", "expected"), [((1, 1), 1.0), ((2, 1), 2.0)])
def test_jobs_on_the_same_hosts_share_their_links_by_weight(weights, expected):
    model = Model(2, 200_000_000)
    jobs = [model.job([0, 1], weight=weight) for weight in weights]
    start(model)
    parts = rates(model, model.downlinks[1], 300_000, jobs)
    assert parts[0] / parts[1] == pytest.approx(expected, rel=0.1)
    assert sum(parts) > 0.9


@pytest.mark.parametrize(("weights", "expected"), [((1, 1), 1.0), ((3, 1), 3.0)])
def test_jobs_that_go_different_ways_share_the_link_out_of_their_host_by_weight(weights, expected):
    """Nobody but the host itself can tell them: each receiver has its link to itself."""
    model = Model(3, 200_000_000)
    jobs = [
        model.job([0, other], weight=weight, collective=lib.GL_BROADCAST)
        for other, weight in zip((1, 2), weights, strict=True)
    ]
    start(model)
    parts = rates(model, model.uplinks[0], 300_000, jobs)
    assert parts[0] / parts[1] == pytest.approx(expected, rel=0.1)
    assert sum(parts) > 0.9


def test_a_job_that_rested_does_not_make_up_for_it_at_another_ones_cost():
    model = Model(3, 200_000_000)
    jobs = [model.job([0, other], collective=lib.GL_BROADCAST) for other in (1, 2)]
    model.start(jobs[0])
    model.run(500_000)
    model.start(jobs[1])
    parts = rates(model, model.uplinks[0], 200_000, jobs)
    assert parts[0] / parts[1] == pytest.approx(1.0, rel=0.15)


def test_jobs_of_different_size_get_the_same_part_of_a_host_that_they_share():
    """The shared host has one stream of one job, and three of the other."""
    model = Model(5, 200_000_000)
    jobs = [model.job([0, 1]), model.job([0, 2, 3, 4])]
    start(model)
    parts = rates(model, model.downlinks[0], 300_000, jobs)
    assert parts[0] / parts[1] == pytest.approx(1.0, rel=0.15)
    assert sum(parts) > 0.85


@pytest.mark.parametrize("loss", [0.001, 0.01, 0.05])
def test_random_losses_within_the_budget_slow_nothing(loss):
    steps = []
    for lost in (0.0, loss):
        model = Model(2, 200_000_000)
        model.downlinks[1].loss = lost
        job = model.job([0, 1], push=0.08, pull=0.08)
        model.start(job)
        model.run(300_000)
        assert model.downlinks[1].lost or not lost
        steps.append(len(job.times))
    clean, lossy = steps
    assert clean > 20
    assert lossy > 0.9 * clean


def test_random_losses_beyond_the_budget_cost_little_more_than_their_repair():
    times = []
    for loss in (0.0, 0.02):
        model = Model(2, 200_000_000)
        model.downlinks[1].loss = loss
        job = model.job([0, 1])
        model.start(job)
        model.run(300_000)
        times.append(len(job.times))
    assert times[1] > 0.7 * times[0]


@pytest.mark.parametrize("mark", [16_000, None])
def test_incast_of_eight_hosts_at_a_shallow_port_has_no_long_tail(mark):
    """All know how many meet, so nothing is lost; a TCP segment that is lost at the end waits 200 ms or more."""
    model = Model(9, 1_000_000_000, BUFFER, mark)
    job = model.job(list(range(9)), elements=16_384, collective=lib.GL_REDUCE)
    needed = 8 * 16_384 * 4 / model.downlinks[0].rate
    times: list[int] = []
    for pause in range(40):
        times.append(model.once(job))
        model.run(1_000 + 700 * (pause % 13))
    assert not model.downlinks[0].dropped
    assert max(times) < 1.5 * needed


def test_slow_jobs_that_meet_fill_their_link_as_its_queue_may_take_long():
    model, port = dumbbell(2, 20_000_000, None, 2 * BUFFER)
    start(model)
    model.run(2_000_000)
    port.depths.clear()
    parts = rates(model, port, 2_000_000, model.jobs)
    assert sum(parts) > 0.88
    assert sum(depth for _, depth in port.depths) / len(port.depths) < 0.4 * port.buffer


@pytest.mark.parametrize("core", [0.8, 0.67])
def test_however_many_slow_flows_meet_in_the_fabric_its_queue_is_not_above_half(core):
    """That a slice of each may wait by chance excuses no queue that delay must tell of: there are no marks."""
    model = Model(11, 20_000_000, buffer := 16_000)
    port = Port(core * model.rate / 8e6, buffer)
    model.join_by(port, list(range(1, 11)), [0])
    model.start(model.job(list(range(11)), collective=lib.GL_REDUCE))
    model.run(1_000_000)
    port.depths.clear()
    parts = rates(model, port, 2_000_000, model.jobs)
    assert sum(parts) > 0.85
    assert sum(depth for _, depth in port.depths) / len(port.depths) < 0.5 * buffer


def beside_tcp(jobs: int, **options: Any) -> tuple[Model, Port]:
    """Jobs that meet at a port without classes and marks, with a pair of hosts more for TCP."""
    return dumbbell(jobs, 50_000_000, None, plain=1, **options)


@pytest.mark.parametrize(("first", "tolerated"), [("job", 0.0), ("tcp", 0.1)])
def test_a_job_beside_tcp_takes_its_part_and_leaves_tcp_its_own(first, tolerated):
    """TCP fills the queue: a job that comes later never saw it empty. One that tolerates losses leaves TCP its part."""
    model, port = beside_tcp(1, push=tolerated, pull=tolerated)
    if first == "job":
        model.start(model.jobs[0])
        model.run(300_000)
    connection = model.connect(1, 3)
    model.run(300_000)
    if first == "tcp":
        model.start(model.jobs[0])
    model.run(2_000_000)
    assert min(rates(model, port, 1_500_000, [model.jobs[0], connection])) > 0.3


def test_a_job_beside_tcp_on_a_long_way_keeps_a_part():
    model, port = beside_tcp(1, elements=262_144)
    model.lengthen(5_000)
    connection = model.connect(1, 3)
    model.run(300_000)
    model.start(model.jobs[0])
    model.run(2_000_000)
    assert min(rates(model, port, 2_000_000, [model.jobs[0], connection])) > 0.2


def test_jobs_keep_the_queue_short_again_when_tcp_has_gone():
    model, port = beside_tcp(4)
    start(model)
    connection = model.connect(4, 9)
    model.run(1_500_000)
    depths = []
    for _ in range(2):
        port.depths.clear()
        model.run(500_000)
        depths.append(sum(depth for _, depth in port.depths) / len(port.depths))
        if connection in model.connections:
            model.disconnect(connection)
            model.run(500_000)
    assert depths[0] > 0.6 * BUFFER
    assert depths[1] < 0.45 * BUFFER


def test_a_queue_on_the_way_back_is_no_congestion():
    """REPORTs that wait for half of a buffer longer than the window allows for cost half of the rate, and no more."""
    model, _ = beside_tcp(1, collective=lib.GL_REDUCE)
    model.start(model.jobs[0])  # from right to left
    model.run(300_000)
    model.connect(1, 3)
    model.run(500_000)
    back = model.hosts[2].ways[0][1]
    assert rates(model, back, 500_000, model.jobs)[0] > 0.5


def test_jains_index_is_one_for_equal_parts():
    assert jain([3.0, 3.0]) == pytest.approx(1)
    assert jain([1.0, 0.0, 0.0, 0.0]) == pytest.approx(0.25)


def test_a_port_drops_what_its_buffer_does_not_hold():
    port = Port(rate=1.0, buffer=2_000, mark=1_000)
    assert port.forward(0, 1_500, 1, True) == (1_510, False)
    assert port.forward(0, 500, 1, True) == (2_010, True)
    assert port.forward(0, 500, 1, True) is None
    assert port.dropped == 1
