# SPDX-License-Identifier: Apache-2.0
"""The choice of an algorithm: what the model says at its ends, and that it is the same everywhere."""

import math

import pytest

from gradlane.job import costs
from gradlane.job.costs import (
    MESSAGE_SECONDS,
    PROCESSED,
    START_SECONDS,
    Conditions,
    choose,
    seconds,
    stragglar,
    work,
)
from gradlane.job.racks import Racks, rows
from tests.support.grids import rows_of

FAST = Conditions(rate=10e9, latency=50e-6)


def test_small_tensors_go_the_way_of_least_latency() -> None:
    assert choose(4096, 8, FAST).algorithm == "direct"
    assert choose(1 << 20, 8, Conditions(rate=100e9, latency=1e-3)).algorithm == "direct"


def test_large_tensors_on_a_slow_wire_go_where_one_sender_meets_each_port() -> None:
    choice = choose(64 << 20, 4, Conditions(rate=1e9, latency=50e-6))
    assert choice.algorithm == "ring"
    # Two times three quarters of the bytes, at the rate of the wire.
    assert choice.seconds == pytest.approx(2 * 3 / 4 * (64 << 20) * 8 / 1e9, rel=0.01)


@pytest.mark.parametrize("workers", [*range(2, 70), 100, 256, 1000, 1024])
def test_the_core_makes_the_rows_that_the_model_counts_with(workers: int) -> None:
    assert rows(workers) == [len(row) for row in rows_of(workers)]


@pytest.mark.parametrize(("workers", "least"), [(64, 1.4), (256, 1.7), (1024, 1.8)])
def test_small_tensors_among_many_go_by_a_grid(workers: int, least: float) -> None:
    """Where messages cost more than bytes. Its own are to the row, to owners and back, and with each result to the
    row."""
    choice = choose(256 << 10, workers, Conditions(rate=100e9, latency=20e-6))
    assert choice.algorithm == "grid"
    count = len(rows(workers))
    length = workers // count
    assert work("grid", workers)[0] == (length - 1) + (count - 1) + (count - 1) + (length - 1) * count
    assert seconds("direct", 256 << 10, workers, Conditions(100e9, 20e-6)) > least * choice.seconds


def test_a_grid_carries_as_much_as_any_where_its_rows_are_of_one_length() -> None:
    for workers in (4, 8, 9, 16, 64, 100, 256, 1024):
        assert work("grid", workers)[1] == pytest.approx(2 * (workers - 1) / workers)
    for workers in (5, 7, 11, 13, 17, 257):
        assert 1 <= work("grid", workers)[1] / (2 * (workers - 1) / workers) <= 1.25


def test_on_fast_links_the_processor_is_the_limit() -> None:
    """So a ring gains nothing by what many senders lose of a port, and neither does a faster link."""
    for rate in (100e9, 400e9):
        choice = choose(64 << 20, 4, Conditions(rate, 10e-6))
        bytes_alone = 2 * 3 / 4 * (64 << 20) * 8 / PROCESSED
        assert choice.algorithm != "ring"
        assert choice.seconds == pytest.approx(bytes_alone + START_SECONDS, rel=0.01)


def test_a_grid_is_chosen_where_it_saves_something_worth_it() -> None:
    fast = Conditions(rate=100e9, latency=10e-6)
    found = {power: choose(1 << power, 16, fast) for power in range(12, 30)}
    assert {choice.algorithm for choice in found.values()} == {"direct", "grid"}
    for power, choice in found.items():
        grid, direct = (seconds(name, 1 << power, 16, fast) for name in ("grid", "direct"))
        assert grid < direct
        assert (choice.algorithm == "grid") == (1.05 * grid < direct)
        assert choice.seconds == (grid if choice.algorithm == "grid" else direct)


def test_what_may_be_lost_needs_a_budget() -> None:
    exact, tolerant = (choose(64 << 20, 4, FAST, tolerance=p) for p in (0.0, 0.01))
    assert (exact.algorithm, tolerant.algorithm) == ("ring", "direct")
    assert "1.0%" in tolerant.reason


def test_unequal_shares_need_the_direct_algorithm() -> None:
    choice = choose(64 << 20, 4, Conditions(rate=1e9, latency=50e-6), uneven=True)
    assert choice.algorithm == "direct"
    assert "others have equal shares only" in choice.reason


def test_servers_are_used_and_more_of_them_cost_less() -> None:
    one, four = (choose(16 << 20, 8, FAST, servers=servers) for servers in (1, 4))
    assert one.algorithm == four.algorithm == "direct"
    assert four.seconds < one.seconds / 3


def test_the_reason_names_what_was_compared() -> None:
    reason = choose(1 << 20, 4, FAST, processes=2).reason
    assert "2 processes" in reason
    assert "1048576 bytes among 4 hosts" in reason
    assert "direct" in reason
    assert "ring" in reason


# ms of an all-reduce in simulated leaf-spines of links of 10 Gbit/s, whose hosts need no time but that in which
# arrivals gather (docs/performance.md): by racks, hosts in each, bytes and oversubscription; direct, ring and grid.
SIMULATED = {
    (4, 4, 1 << 16, 1): (0.16, 0.31, 0.20),
    (4, 4, 1 << 16, 4): (0.45, 0.34, 0.22),
    (4, 4, 1 << 20, 1): (1.89, 1.73, 2.94),
    (4, 4, 1 << 20, 2): (3.15, 1.74, 2.77),
    (4, 4, 1 << 20, 4): (6.19, 2.48, 2.85),
    (4, 4, 4 << 20, 1): (7.79, 6.78, 9.44),
    (4, 4, 4 << 20, 2): (13.0, 6.79, 10.4),
    (4, 4, 4 << 20, 4): (23.7, 6.83, 10.6),
    (4, 8, 1 << 16, 1): (0.184, 0.470, 0.198),
    (4, 8, 1 << 16, 4): (0.41, 0.45, 0.23),
    (4, 8, 1 << 20, 1): (1.89, 1.77, 2.29),
    (4, 8, 1 << 20, 2): (3.35, 1.79, 4.10),
    (4, 8, 1 << 20, 4): (6.96, 1.79, 2.34),
    (4, 8, 4 << 20, 1): (7.24, 7.00, 8.52),
    (4, 8, 4 << 20, 2): (12.5, 7.00, 8.60),
}


@pytest.mark.parametrize(("network", "measured"), SIMULATED.items())
def test_where_processors_take_no_time_it_chooses_what_a_simulation_has_the_fastest(
    network: tuple[int, int, int, int], measured: tuple[float, float, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or what takes no more than a tenth longer."""
    for name, value in (("START_SECONDS", 0.0), ("MESSAGE_SECONDS", 5e-6), ("PROCESSED", math.inf)):
        monkeypatch.setattr(costs, name, value)
    count, members, nbytes, times = network
    racks = Racks(tuple(rank // members for rank in range(count * members)), times)
    choice = choose(nbytes, count * members, Conditions(10e9, 5e-6, racks=racks))
    assert measured[("direct", "ring", "grid").index(choice.algorithm)] <= 1.1 * min(measured)


def test_every_size_has_a_choice_and_more_bytes_never_cost_less() -> None:
    for workers in (1, 2, 3, 7, 64):
        times = [choose(1 << power, workers, FAST).seconds for power in range(30)]
        assert times == sorted(times)


@pytest.mark.parametrize(
    ("nbytes", "workers", "conditions", "named"),
    [
        (-1, 2, FAST, "nbytes"),
        (1, 0, FAST, "workers"),
        (1, 2, Conditions(rate=0.0, latency=0.0), "rate"),
        (1, 2, Conditions(rate=1e9, latency=-1.0), "latency"),
    ],
)
def test_numbers_that_make_no_sense_are_named(nbytes: int, workers: int, conditions: Conditions, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        choose(nbytes, workers, conditions)


@pytest.mark.parametrize(
    ("workers", "break_even", "speed_up"), [(4, 0.50, 1.13), (8, 0.39, 1.36), (16, 0.26, 1.56), (64, 0.09, 1.82)]
)
def test_stragglar_pays_from_the_delay_that_the_paper_gives(workers: int, break_even: float, speed_up: float) -> None:
    wire = 1000.0  # s for the bytes, so that latency and messages do not count
    times = stragglar(int(wire * 125_000_000), workers, Conditions(rate=1e9, latency=0.0, contention=0.0))
    ring = 2 * (workers - 1) / workers * wire
    assert times.break_even / wire == pytest.approx(break_even, abs=0.006)
    assert ring / times.merge == pytest.approx(speed_up, abs=0.006)
    # At the break-even they end at the same time.
    assert max(times.break_even, times.reduce) + times.merge == pytest.approx(times.break_even + ring, rel=1e-3)


def test_stragglar_never_pays_where_rounds_cost_more_than_bytes() -> None:
    assert stragglar(4096, 8, FAST).break_even == math.inf
    assert stragglar(256 << 20, 8, FAST).break_even < math.inf
    times = stragglar(0, 8, FAST)
    assert times.merge == pytest.approx(9 * (FAST.latency + MESSAGE_SECONDS))
    assert times.reduce == pytest.approx(FAST.latency + 6 * MESSAGE_SECONDS)


def test_stragglar_between_two_hosts_is_one_swap() -> None:
    times = stragglar(1 << 30, 2, FAST)
    assert (times.reduce, times.break_even) == (0.0, 0.0)
    assert times.merge == pytest.approx((1 << 30) * 8 / FAST.rate, rel=1e-3)
    with pytest.raises(ValueError, match="at least 2"):
        stragglar(1, 1, FAST)
    with pytest.raises(ValueError, match="nbytes"):
        stragglar(-1, 2, FAST)
