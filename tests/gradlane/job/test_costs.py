# SPDX-License-Identifier: Apache-2.0
"""The choice of an algorithm: what the model says at its ends, and that it is the same everywhere."""

import pytest

from gradlane.job.costs import Conditions, choose

FAST = Conditions(rate=10e9, latency=50e-6)


def test_small_tensors_go_the_way_of_least_latency() -> None:
    assert choose(4096, 8, FAST).algorithm == "direct"
    assert choose(1 << 20, 8, Conditions(rate=100e9, latency=1e-3)).algorithm == "direct"


def test_large_tensors_on_a_slow_wire_go_where_one_sender_meets_each_port() -> None:
    choice = choose(64 << 20, 4, Conditions(rate=1e9, latency=50e-6))
    assert choice.algorithm == "ring"
    # Two times three quarters of the bytes, at the rate of the wire.
    assert choice.seconds == pytest.approx(2 * 3 / 4 * (64 << 20) * 8 / 1e9, rel=0.01)


def test_what_may_be_lost_needs_a_budget() -> None:
    exact, tolerant = (choose(64 << 20, 4, FAST, tolerance=p) for p in (0.0, 0.01))
    assert (exact.algorithm, tolerant.algorithm) == ("ring", "direct")
    assert "1.0%" in tolerant.reason


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
