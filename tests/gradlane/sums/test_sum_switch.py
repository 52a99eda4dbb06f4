# SPDX-License-Identifier: Apache-2.0
"""The model of the switch's slots, rule by rule."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradlane import wire
from tests.support.sum_switch import Contributor, Event, Outcome, SumHeader, SumSwitch, serial_difference, words_of

FIRST, SECOND = (Contributor(member=1 << n, all=3, slot_base=256, slot_mask=127) for n in range(2))


def contribution(
    number: int, *, generation: int = 7, words: tuple[int, ...] = (5,), job: int = 1, **header: int
) -> bytes:
    summed = SumHeader(generation, slot=number & 0xFFFF)
    payload = summed.pack() + b"".join(word.to_bytes(wire.SUM_WORD, "big") for word in words)
    fields = {"kind": wire.Kind.DATA, "source": 0, "flags": wire.Flag.SUM, "length": len(payload)} | header
    return wire.Header(**fields, job=job, message=number, token=1).pack() + payload


def events(*outcomes: Outcome) -> list[Event]:
    return [event for outcome in outcomes for event in outcome.events]


def test_the_last_contribution_becomes_the_result_for_all_and_the_slot_answers_who_asks_again():
    switch = SumSwitch()
    assert switch.take(FIRST, contribution(9, words=(5, 6))) == Outcome((Event.CONTRIBUTION,))
    outcome = switch.take(SECOND, contribution(9, words=(30, 40), source=1, layer=4))
    assert outcome.events == (Event.CONTRIBUTION, Event.RESULT)
    assert outcome.to_all
    assert outcome.datagram
    header = wire.Header.unpack(outcome.datagram)
    assert (header.flags, header.layer) == (wire.Flag.SUM | wire.Flag.PULL, 4)
    assert SumHeader.unpack(outcome.datagram[wire.HEADER_BYTES :]) == SumHeader(7, members=3, slot=9)
    assert words_of(outcome.datagram) == (35, 46)
    answer = switch.take(FIRST, contribution(9, words=(5, 6), kind=wire.Kind.REPAIR))
    assert (answer.events, answer.to_all) == ((Event.ANSWER,), False)
    assert answer.datagram
    assert words_of(answer.datagram) == (35, 46)


def test_a_contribution_counts_once():
    switch = SumSwitch()
    first, again, second = (switch.take(row, contribution(9)) for row in (FIRST, FIRST, SECOND))
    assert events(first, again) == [Event.CONTRIBUTION, Event.DUPLICATE]
    assert second.datagram
    assert words_of(second.datagram) == (10,)


@pytest.mark.parametrize(
    ("number", "generation"), [(9 + 128, 7), (9 - 128 & 0xFFFFFFFF, 8), (9, 8)], ids=["number", "generation", "both"]
)
def test_what_is_newer_takes_the_slot_and_what_is_older_changes_nothing(number: int, generation: int):
    switch = SumSwitch()
    switch.take(FIRST, contribution(9))
    assert events(switch.take(FIRST, contribution(number, generation=generation))) == [Event.CONTRIBUTION]
    assert events(switch.take(SECOND, contribution(9))) == [Event.STALE]
    outcome = switch.take(SECOND, contribution(number, generation=generation, words=(8,)))
    assert outcome.datagram
    assert words_of(outcome.datagram) == (13,)


def test_what_another_job_left_in_the_slots_counts_as_nothing():
    switch = SumSwitch()
    switch.take(FIRST, contribution(9, generation=0x7FFFFFFF, job=2))
    assert events(switch.take(FIRST, contribution(1 + 8 + 128, generation=1))) == [Event.CONTRIBUTION]


def test_slices_of_different_sizes_are_not_added():
    switch = SumSwitch()
    switch.take(FIRST, contribution(9, words=(5, 6)))
    assert events(switch.take(SECOND, contribution(9, words=(5,)))) == [Event.STALE]


def test_a_restart_forgets_and_repairs_fill_the_slot_again():
    switch = SumSwitch()
    switch.take(FIRST, contribution(9))
    switch.restart()
    assert events(switch.take(SECOND, contribution(9)), switch.take(FIRST, contribution(9))) == [
        Event.CONTRIBUTION,
        Event.CONTRIBUTION,
        Event.RESULT,
    ]


def test_a_slot_lies_within_the_jobs_own():
    switch = SumSwitch()
    for number in (0, 127, 128, 0xFFFF):
        switch.take(FIRST, contribution(number))
    assert set(switch.slots) == {256, 256 + 127}


@pytest.mark.parametrize(
    "changed",
    [
        {"kind": wire.Kind.PROBE},
        {"kind": wire.Kind.TRIMMED},
        {"flags": wire.Flag.SUM | wire.Flag.PULL},
        {"flags": 0},
        {"budget": 1},
        {"length": 12},
        {"length": 12 + 256},
        {"words": ()},
        {"words": (0,) * 12},
    ],
    ids=str,
)
def test_bad_forms_change_nothing(changed: dict[str, int]):
    switch = SumSwitch()
    assert events(switch.take(FIRST, contribution(9, **changed))) == [Event.REFUSED]  # pyright: ignore
    assert not switch.slots


def test_a_stranger_has_no_slots():
    switch = SumSwitch()
    assert events(switch.take(None, contribution(9))) == [Event.NO_SLOTS]
    assert not switch.slots


@given(st.integers(0, 0xFFFFFFFF), st.integers(1, 0x7FFFFFFF))
def test_serial_numbers_wrap(number: int, ahead: int):
    assert serial_difference(number + ahead & 0xFFFFFFFF, number) == ahead
    assert serial_difference(number, number + ahead & 0xFFFFFFFF) == -ahead


def test_a_wrong_checksum_makes_that_of_the_result_wrong_and_none_makes_it_none():
    for defects, expected in (((0, 0), 0), ((3, 0xFFFE), 2), ((None, 4), None), ((4, None), None)):
        switch = SumSwitch()
        switch.take(FIRST, contribution(9), defects[0])
        assert switch.take(SECOND, contribution(9), defects[1]).defect == expected
