# SPDX-License-Identifier: Apache-2.0
"""Which links are called slow: the evidence that it takes, and that it does not come of noise or of little use."""

import random

import pytest

from gradlane.job.links import (
    CALM,
    GROUP,
    LEAST_WINDOWS,
    LOOKS,
    MOST_CALM,
    SLOW,
    SOUND,
    Direction,
    Links,
    Report,
    carried,
    checked,
    suspects,
    text,
)

RATE = 1e8
HALF = RATE / 2


def everybody(workers: int, slow: set[int], measured: float = HALF, sends: float = RATE) -> dict[int, Report]:
    """Direct: all send to all; what goes to slow links is held, and they receive that much."""
    return {
        rank: Report(measured if rank in slow else RATE, sends, {to: to in slow for to in range(workers) if to != rank})
        for rank in range(workers)
    }


def in_ring(workers: int, slow: int) -> dict[int, Report]:
    """All go as slowly as the slow link receives; only the flow to it is held."""
    return {rank: Report(HALF, HALF, {(rank - 1) % workers: (rank - 1) % workers == slow}) for rank in range(workers)}


def looked(links: Links, reports: dict[int, Report], times: int) -> dict[int, float]:
    for _ in range(times):
        links.look(reports, set(reports))
    return links.slow


@pytest.mark.parametrize("workers", [3, 4, 8, 16])
def test_a_link_that_receives_half_is_found_after_some_looks(workers: int) -> None:
    links = Links(workers, RATE)
    assert looked(links, everybody(workers, {1}), LOOKS - 1) == {}
    assert looked(links, everybody(workers, {1}), 1) == {1: HALF}


@pytest.mark.parametrize("workers", [4, 8])
def test_a_link_that_sends_half_is_found_by_all_its_flows(workers: int) -> None:
    reports = everybody(workers, set())
    reports[2] = Report(RATE, HALF, dict.fromkeys(set(range(workers)) - {2}, True))
    assert looked(Links(workers, RATE), reports, LOOKS) == {2: HALF}


def test_in_a_ring_both_ends_are_suspected_until_direct_all_reduces_clear_the_one() -> None:
    links = Links(4, RATE)
    assert looked(links, in_ring(4, 1), LOOKS) == {1: HALF, 2: HALF}
    assert looked(links, everybody(4, {1}), LOOKS) == {1: HALF}


@pytest.mark.parametrize(
    "reports",
    [
        everybody(4, set()),
        everybody(4, {1}, SLOW * RATE),  # it is held, but carries enough
        {rank: Report(HALF, HALF, dict.fromkeys(set(range(4)) - {rank}, False)) for rank in range(4)},  # little to do
        everybody(4, {0, 1, 2}),  # it is the network, or the machine
        {rank: Report(HALF, HALF, dict.fromkeys(set(range(4)) - {rank}, True)) for rank in range(4)},
        {rank: Report(None, None, {to: to == 1 for to in range(4) if to != rank}) for rank in range(4)},  # too short
        {},
    ],
)
def test_what_is_no_evidence_names_nobody(reports: dict[int, Report]) -> None:
    assert looked(Links(4, RATE), reports, 100) == {}


def test_evidence_now_and_then_is_noise() -> None:
    links, chance = Links(4, RATE), random.Random(1)
    for _ in range(300):
        bad = chance.random() < 0.3
        assert looked(links, everybody(4, {1} if bad else set()), 1) == {} or bad
        links.look(everybody(4, set()), set(range(4)))
    assert links.slow == {}


def test_a_report_is_looked_at_once() -> None:
    links = Links(4, RATE)
    reports = everybody(4, {1})
    looked(links, reports, 1)
    for _ in range(10):
        links.look(reports, {0, 2})
    assert links.slow == {}


def test_what_it_carries_does_not_drift_with_its_use_and_follows_a_change() -> None:
    links = Links(4, RATE)
    looked(links, everybody(4, {1}), LOOKS)
    assert looked(links, everybody(4, {1}, HALF * 1.09), 50) == {1: HALF}
    used_less = {rank: Report(RATE / 5, RATE / 5, {to: False for to in range(4) if to != rank}) for rank in range(4)}
    assert looked(links, used_less, CALM - 1) == {1: HALF}
    assert looked(links, everybody(4, {1}, HALF / 2), LOOKS) == {1: HALF / 2}


def test_it_is_sound_again_when_it_carries_more() -> None:
    links = Links(4, RATE)
    looked(links, everybody(4, {1}), LOOKS)
    assert looked(links, everybody(4, set()), LOOKS - 1) == {1: HALF}
    assert looked(links, everybody(4, set()), 1) == {}
    assert SLOW < SOUND < 1


def test_one_that_nothing_holds_up_gets_another_chance_ever_more_seldom() -> None:
    direction = Direction(RATE)
    waited = CALM
    for _ in range(10):
        for _ in range(LOOKS):
            direction.look(HALF, True, True)
        assert direction.carries == HALF
        for _ in range(waited - 1):
            direction.look(RATE / 5, False, True)
            direction.look(RATE / 5, False, False)  # without use time does not count
        assert direction.carries == HALF
        direction.look(RATE / 5, False, True)
        assert direction.carries is None
        waited = min(2 * waited, MOST_CALM)
    assert waited == MOST_CALM


def test_the_slower_direction_counts() -> None:
    reports = everybody(4, {1})
    reports[1] = Report(HALF, HALF / 2, dict.fromkeys((0, 2, 3), True))
    assert looked(Links(4, RATE), reports, LOOKS) == {1: HALF / 2}
    assert suspects(reports) == ({1}, {1})


def test_a_quarter_of_the_windows_has_no_lack_of_slices() -> None:
    windows = [HALF] * 8 + [HALF / 10] * 23 + [RATE]
    random.Random(1).shuffle(windows)
    assert carried(windows) == HALF
    assert carried([HALF] * (LEAST_WINDOWS - 1)) is None


def by_multicast(held: set[int], servers: int) -> dict[int, Report]:
    """Four workers push to servers, whose results go to all workers at once; those of `held` more slowly than that."""
    pushes = {rank: Report(RATE, RATE, {4 + k: False for k in range(servers)}) for rank in range(4)}
    results = {4 + k: Report(RATE, HALF if 4 + k in held else RATE, {GROUP: 4 + k in held}) for k in range(servers)}
    return pushes | results


@pytest.mark.parametrize("servers", [2, 3])
def test_a_server_that_sends_half_by_multicast_is_found(servers: int) -> None:
    assert looked(Links(4 + servers, RATE), by_multicast({5}, servers), LOOKS) == {5: HALF}


@pytest.mark.parametrize("servers", [1, 2, 3])
def test_where_multicast_of_most_is_held_it_is_a_receiver_and_no_sender(servers: int) -> None:
    held = set(range(4, 4 + servers))
    assert looked(Links(4 + servers, RATE), by_multicast(held, servers), 100) == {}


def test_a_successor_goes_on_from_what_was_found_and_nothing_is_kept_of_the_dead() -> None:
    links = Links(4, RATE)
    links.take_over({1: HALF, 2: HALF / 2})
    assert links.slow == {1: HALF, 2: HALF / 2}
    links.drop(2)
    assert looked(links, everybody(4, {1}), 1) == {1: HALF}
    assert looked(links, everybody(4, set()), LOOKS) == {}
    links.drop(2)
    links.take_over({2: HALF})
    assert links.slow == {}


def test_rates_of_others_are_checked_and_named() -> None:
    assert checked(None) is None
    assert checked(5000) == 5000.0
    for nonsense in (0, 0.3, 1e-310, 999, 1e14, 10**400, -1.0, float("nan"), float("inf"), True, "5", [5]):
        with pytest.raises(ValueError, match="a link that carries"):
            checked(nonsense)
    assert text(48.66e6) == "its link carries 48.7 Mbit/s"
