# SPDX-License-Identifier: Apache-2.0
"""When a switch sums, and when hosts do: the model against a switch that is simulated slice by slice."""

from collections import deque

import pytest

from gradlane.job.costs import FORWARDED, MESSAGE_SECONDS, START_SECONDS, SUMMED, Conditions, Sums, choose

SLICE = 1408  # bytes
LONG = 64 << 20


def simulated(it: Sums, workers: int, conditions: Conditions) -> float:
    """Seconds until all have all sums: ports and the switch's processor do one thing at a time, hosts take no time."""
    on_port, half = SLICE * 8 / conditions.rate, conditions.latency / 2
    sent = processor = received = 0.0  # when the worker's port, the switch, and its port to the worker are free again
    window: deque[float] = deque([0.0] * it.window)  # when these slices' results came
    for _ in range(it.nbytes // SLICE):
        sent = max(sent, window.popleft()) + on_port
        processor = max(processor, sent + half) + workers / SUMMED
        received = max(received, processor) + on_port
        window.append(received + half)
    return window[-1]


@pytest.mark.parametrize(
    ("what", "workers", "window", "rate", "latency"),
    [
        ("ports", 8, 64, 100e6, 50e-6),
        ("ports", 2, 2048, 1e9, 1e-3),
        ("the window", 2, 4, 1e9, 1e-3),
        ("the window", 8, 64, 1e9, 10e-3),
        ("the processor", 32, 64, 10e9, 50e-6),
        ("the processor", 8, 128, 1e9, 50e-6),
    ],
)
def test_what_a_switch_takes_is_bound_by(what: str, workers: int, window: int, rate: float, latency: float) -> None:
    conditions = Conditions(rate, latency)
    sums = Sums(4000 * SLICE, SLICE, window)
    bounds = {
        "ports": 4000 * SLICE * 8 / rate,
        "the window": 4000 / window * latency,
        "the processor": 4000 * workers / SUMMED,
    }
    assert max(bounds, key=bounds.__getitem__) == what
    choice = choose(100 * LONG, workers, conditions, sums=sums)
    assert choice.algorithm == "switch", choice.reason
    # That the window waits for a slice's time at the ports, too, is left out.
    assert choice.seconds == pytest.approx(simulated(sums, workers, conditions), rel=0.06)


def test_one_slice_takes_one_way_there_and_back() -> None:
    """By hosts it takes two: to who adds it up, and from there."""
    choice = choose(SLICE, 4, Conditions(1e12, 1e-3), sums=Sums(SLICE, SLICE, 64))
    assert choice.algorithm == "switch"
    assert choice.seconds - START_SECONDS - 2 * MESSAGE_SECONDS == pytest.approx(1e-3, rel=0.05)
    direct = choose(SLICE, 4, Conditions(1e12, 1e-3))
    assert direct.seconds - START_SECONDS - 6 * MESSAGE_SECONDS == pytest.approx(2e-3, rel=0.05)


@pytest.mark.parametrize(("workers", "wire", "expected"), [(2, 2, "switch"), (2, 4, "direct"), (3, 4, "switch")])
def test_ports_are_better_used_by_a_switch_where_they_carry_less(workers: int, wire: int, expected: str) -> None:
    """Between two, hosts send each element once as a switch does, in 32 bits, and in floating point."""
    bits = LONG // 4 * 32
    choice = choose(LONG, workers, Conditions(100e6, 50e-6), sums=Sums(LONG // 4 * wire, SLICE, 64))
    assert choice.algorithm == expected
    ports = LONG // 4 * wire * 8 if expected == "switch" else 2 * (workers - 1) / workers * bits
    assert choice.seconds == pytest.approx(ports / 100e6, rel=0.01)


def test_hosts_reduce_what_a_small_window_would_hold_up() -> None:
    slow = choose(LONG, 8, Conditions(1e9, 10e-3), sums=Sums(LONG // 2, SLICE, 4))
    assert slow.algorithm == "ring"
    assert "switch" in slow.reason
    assert LONG / 2 / SLICE / 4 * 10e-3 > 14 * LONG / SLICE / FORWARDED  # s: one window in 10 ms


def test_a_switch_forwards_what_hosts_reduce_and_that_takes_it_longer() -> None:
    """Of a fast link neither can have much."""
    fast = Conditions(100e9, 20e-6)
    hosts = choose(LONG, 8, fast, sums=Sums(100 * LONG, SLICE, 64))
    assert hosts.algorithm == "direct"
    datagrams = 2 * 8 * 7 * (LONG / 8) / SLICE  # each of eight sends seven parts and seven results
    assert hosts.seconds == pytest.approx(datagrams / FORWARDED)
    assert choose(LONG, 8, fast, sums=Sums(LONG // 2, SLICE, 64)).algorithm == "switch"


def test_a_switch_has_a_budget_as_direct_has_and_one_host_needs_neither() -> None:
    slow, sums = Conditions(100e6, 50e-6), Sums(LONG // 2, SLICE, 64)
    assert choose(LONG, 4, slow, tolerance=0.1, sums=sums).algorithm == "switch"
    assert choose(LONG, 4, slow, tolerance=0.1).algorithm == "direct"
    assert choose(LONG, 1, slow, sums=sums).algorithm == "direct"


def test_hosts_keep_what_a_switch_hardly_speeds_up() -> None:
    """Fixed point has to be worth it: 5 %."""
    whole, slow = LONG // SLICE * SLICE, Conditions(100e6, 0.0, contention=0.0)
    for share, expected in ((0.94, "switch"), (0.97, "direct")):
        choice = choose(whole, 2, slow, sums=Sums(int(whole * share), SLICE, 64))
        assert choice.algorithm == expected
