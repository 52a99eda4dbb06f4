# SPDX-License-Identifier: Apache-2.0
"""What a contribution does to its slot, line by line of the table in p4src/README.md."""

from dataclasses import replace

import pytest

from gradlane.wire import Kind, Lanes
from tests.p4src.packet_bench import Count, Reason
from tests.p4src.sums.sum_bench import (
    EPOCH,
    GROUP_PORTS,
    H1,
    H2,
    H3,
    H4,
    JOBS,
    SumBench,
    contribution,
    everybody,
    words,
)
from tests.support.gradlane_packets import Host
from tests.support.sum_switch import Event, SumHeader

ABSORBED = (Event.CONTRIBUTION,)
RESULT = (Event.CONTRIBUTION, Event.RESULT)
ANSWER, DUPLICATE, STALE = (Event.ANSWER,), (Event.DUPLICATE,), (Event.STALE,)
LAST = 0xFFFFFFFF


def finish(sums: SumBench, *order: Host, value: int = 1, **fields: int) -> bytes:
    """The workers of job 1 contribute in an order; the result's lanes."""
    lanes = words(2)
    for source in order[:-1]:
        assert sums.send(source, contribution(source, lanes, **fields)) == ABSORBED
    frame = contribution(order[-1], lanes, **fields)
    assert sums.send(order[-1], frame) == RESULT
    return frame


@pytest.mark.parametrize("order", [(H1, H2, H3), (H3, H1, H2), (H2, H3, H1)])
def test_all_get_the_sum_when_the_last_one_has_contributed(sums: SumBench, order: tuple[Host, ...]) -> None:
    mine = [words(sums.most_words, value) for value in (5, 70_000, 3)]
    for source, lanes in zip(order[:-1], mine, strict=False):
        assert sums.bench.drops(source, contribution(source, lanes, number=4))
    copies = sums.bench.process(order[-1], contribution(order[-1], mine[2], number=4))
    assert sorted(copy.port for copy in copies) == list(GROUP_PORTS), "the last contributor's port, too"
    expected = [70_008 + 3 * n for n in range(32 * sums.most_words)]
    for copy in copies:
        payload = copy.frame[42 + 36 :]
        assert SumHeader.unpack(payload) == SumHeader(1, everybody(1), 4, -3, EPOCH)
        assert [int.from_bytes(payload[n : n + 4], "big") for n in range(12, len(payload), 4)] == expected


def test_the_headers_of_a_result_are_the_last_contributions(sums: SumBench) -> None:
    """All of them, by the model; that takes the sums' own fields alone from the slot."""
    for source in (H1, H3):
        sums.send(source, contribution(source, number=9, exponent=7, step=1, tensor=2, slice=3, layer=1))
    last = contribution(H2, number=9, exponent=-128, step=4, tensor=5, slice=6, layer=3, kind=Kind.REPAIR, magnitude=9)
    assert sums.send(H2, last) == RESULT


@pytest.mark.parametrize("count", range(1, 12))
@pytest.mark.parametrize("lanes", Lanes)
def test_slices_of_every_size(sums: SumBench, count: int, lanes: Lanes) -> None:
    kind = {"element_type": 3 << 4 | lanes}
    for source in (H1, H2, H3):
        value = 251 * source.port
        events = sums.send(source, contribution(source, words(count, value, lanes), number=count, **kind))
    assert events == RESULT
    assert sums.send(H2, contribution(H2, words(count, 502, lanes), number=count, kind=Kind.REPAIR, **kind)) == ANSWER


def test_a_slot_that_is_used_again_has_nothing_of_what_was_there(sums: SumBench) -> None:
    """Of the same size, of a smaller one, and of a larger one than ever."""
    for number, count in ((0, 3), (8, 3), (16, 1), (24, 11)):
        for source in (H1, H2, H3):
            events = sums.send(source, contribution(source, words(count, number), number=number))
        assert events == RESULT


def test_lanes_are_as_wide_as_their_sum_needs(sums: SumBench) -> None:
    """Each lane comes to its largest value, and carries nothing into the next."""
    for width in (2, 4):
        full = (1 << 8 * width) - 1
        parts = [full - 2, 1, 1]
        for source, part in zip((H1, H2, H3), parts, strict=True):
            lanes = part.to_bytes(width, "big") * (256 // width)
            events = sums.send(source, contribution(source, lanes, number=width))
        assert events == RESULT


@pytest.mark.parametrize("kind", [Kind.DATA, Kind.REPAIR])
def test_what_comes_again_before_the_result_changes_nothing(sums: SumBench, kind: Kind) -> None:
    assert sums.send(H1, contribution(H1, words(2, 5))) == ABSORBED
    assert sums.send(H1, contribution(H1, words(2, 5), kind=kind)) == DUPLICATE
    assert sums.send(H1, contribution(H1, words(2, 6_000), kind=kind)) == DUPLICATE, "with other lanes"
    assert sums.send(H2, contribution(H2, words(2, 7))) == ABSORBED
    assert sums.send(H2, contribution(H2, words(2, 7), kind=kind)) == DUPLICATE
    assert sums.send(H3, contribution(H3, words(2, 9))) == RESULT
    sums.check_counters()


@pytest.mark.parametrize("kind", [Kind.DATA, Kind.REPAIR])
def test_who_comes_again_after_the_result_gets_it_alone(sums: SumBench, kind: Kind) -> None:
    finish(sums, H1, H2, H3, number=5)
    for source in (H2, H1, H3, H3):
        frame = contribution(source, words(2, 4_000), number=5, kind=kind, step=source.port)
        assert sums.send(source, frame) == ANSWER, "whatever the lanes that it has now"
    sums.check_counters()


@pytest.mark.parametrize("finished", [False, True])
@pytest.mark.parametrize(
    ("generation", "number", "again_generation", "again_number", "fate"),
    [
        (7, 8, 7, 0, STALE),
        (7, 8, 7, 16, ABSORBED),
        (7, 8, 6, 8, STALE),
        (7, 8, 8, 8, ABSORBED),
        (7, 8, 8, 0, ABSORBED),  # the generation counts first
        (7, 8, 6, 16, STALE),
        (7, LAST - 7, 7, 0, ABSORBED),  # numbers begin anew
        (7, 0, 7, LAST - 7, STALE),
        (LAST, 8, 0, 0, ABSORBED),  # so do generations
        (0, 0, LAST, 8, STALE),
        (7, 0, 7, (1 << 31) - 8, ABSORBED),  # the newest that is not the past
        (7, 0, 7, 1 << 31, STALE),
        (0, 0, (1 << 31) - 1, 0, ABSORBED),
        (0, 0, 1 << 31, 0, STALE),
    ],
)
def test_a_newer_slice_takes_the_slot_and_an_older_one_changes_nothing(
    sums: SumBench,
    finished: bool,
    generation: int,
    number: int,
    again_generation: int,
    again_number: int,
    fate: tuple[Event, ...],
) -> None:
    old = {"generation": generation, "number": number}
    if finished:
        finish(sums, H1, H2, H3, **old)
    else:
        sums.send(H1, contribution(H1, words(2), **old))
        sums.send(H2, contribution(H2, words(2), **old))
    new = {"generation": again_generation, "number": again_number}
    assert sums.send(H1, contribution(H1, words(2, 44), **new)) == fate
    if fate == STALE:
        assert sums.send(H3, contribution(H3, words(2, 5), **old)) == (ANSWER if finished else RESULT)
    else:
        assert sums.send(H3, contribution(H3, words(2, 5), **old)) == STALE
        assert sums.send(H3, contribution(H3, words(2, 5), **new)) == ABSORBED
        assert sums.send(H2, contribution(H2, words(2, 6), **new)) == RESULT
    sums.check_counters()


@pytest.mark.parametrize("size", [1, 3, 11])
def test_a_slice_of_another_size_changes_nothing(sums: SumBench, size: int) -> None:
    if sums.of_tofino:
        pytest.skip("slices have one size there")
    sums.send(H1, contribution(H1, words(2)))
    assert sums.send(H2, contribution(H2, words(size))) == STALE
    assert sums.send(H1, contribution(H1, words(size))) == STALE
    for source in (H2, H3):
        events = sums.send(source, contribution(source, words(2, 6)))
    assert events == RESULT
    assert sums.send(H1, contribution(H1, words(size))) == STALE, "nor does it get the result"
    assert sums.send(H1, contribution(H1, words(2))) == ANSWER
    sums.check_counters()


def test_jobs_have_slots_of_their_own(sums: SumBench) -> None:
    """Every slot of both, each at two numbers of the slot field: the mask folds them."""
    for slot in (0, 3, 7, 8, 11, 15, 65_535):
        for source in (H1, H2):
            for number in (1, 2):
                sums.send(source, contribution(source, words(1, slot), job=number, number=slot, slot=slot), number)
        assert sums.send(H3, contribution(H3, words(1, slot), number=slot, slot=slot)) == RESULT
        assert sums.send(H3, contribution(H3, words(1, slot), job=2, number=slot, slot=slot), 2) == ABSORBED
        last = contribution(H4, words(1, slot), job=2, number=slot, slot=slot)
        assert sums.send(H4, last, 2) == RESULT
    sums.check_counters()


def test_what_another_job_has_left_in_a_slot_has_no_age(sums: SumBench) -> None:
    sums.send(H1, contribution(H1, words(3), generation=1000, number=8))
    finish(sums, H1, H2, H3, generation=1000, number=9)
    sums.bench.change(*replace(sums.jobs[2], base=8).entries(2))
    for number in (8, 9):
        for source in (H1, H2, H3, H4):
            frame = contribution(source, words(2, number), job=2, generation=3, number=number)
            # As the model would have it in slots that are as good as new.
            events = sums.send(source, frame, 2)
        assert events == RESULT


def test_of_a_job_of_one_the_first_contribution_is_the_result(sums: SumBench) -> None:
    sums.bench.change(*replace(JOBS[1], hosts=(H1,)).entries(1))
    copies = sums.bench.process(H1, contribution(H1))
    assert sorted(copy.port for copy in copies) == list(GROUP_PORTS)
    (answer,) = sums.bench.process(H1, contribution(H1))
    assert answer.port == 1


def test_counters_tell_packets_and_bytes_and_queue_classes(sums: SumBench) -> None:
    frame = contribution(H1, layer=50)
    sums.send(H1, frame)
    sums.send(H1, frame)
    assert sums.counted() == {
        (1, Event.CONTRIBUTION): Count(1, len(frame)),
        (1, Event.DUPLICATE): Count(1, len(frame)),
    }
    assert sums.bench.decisions() == {(Reason.ABSORBED, 5, 0): 1, (Reason.DROPPED_SUM, 5, 0): 1}
