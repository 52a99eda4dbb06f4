# SPDX-License-Identifier: Apache-2.0
"""The model of the switch's slots, rule by rule: slices that are closed, epochs, and switches that make a tree."""

from dataclasses import replace

import pytest

from gradlane import wire
from tests.support.sum_switch import Contributor, Event, Outcome, SumHeader, SumSwitch, words_of

EPOCH, ALL = 3, 0b1111
ROOT = [Contributor(1 << n, ALL, 0, 7, epoch=EPOCH) for n in range(4)]
# A leaf with workers 0 and 1, and a root beneath which it is, with workers 2 and 3 at its own ports.
LEAF = [replace(row, here=0b11) for row in ROOT[:2]]
ABOVE, BELOW = (
    Contributor(0, ALL, 0, 7, here=0b11, epoch=EPOCH, fabric=True, above=True),
    replace(ROOT[0], member=0b11, fabric=True),
)


def datagram(value: int = 1, *, number: int = 9, members: int = 0, epoch: int = 0, flags: int = wire.Flag.SUM) -> bytes:
    payload = SumHeader(7, members, number, epoch=epoch).pack() + value.to_bytes(wire.SUM_WORD, "big")
    return wire.Header(wire.Kind.DATA, 1, 0, number, 1, flags=flags, length=len(payload)).pack() + payload


def made(outcome: Outcome) -> tuple[int, int, int]:
    """Members, epoch, and the word of what leaves."""
    assert outcome.datagram
    summed = SumHeader.unpack(outcome.datagram[wire.HEADER_BYTES :])
    return summed.members, summed.epoch, words_of(outcome.datagram)[0]


def result(value: int = 50, members: int = ALL, number: int = 9) -> bytes:
    return datagram(value, members=members, number=number, flags=wire.Flag.SUM | wire.Flag.PULL)


def test_a_closer_leaves_out_all_that_lack_once_they_may_be_missing():
    switch = SumSwitch()
    switch.take(ROOT[0], datagram(2))
    switch.take(ROOT[1], datagram(3))
    assert switch.take(ROOT[0], datagram(9, members=0b0100, epoch=EPOCH)).events == (Event.DUPLICATE,)
    outcome = switch.take(ROOT[0], datagram(9, members=0b1100, epoch=EPOCH))
    assert (outcome.events, outcome.to_all, made(outcome)) == ((Event.RESULT,), True, (0b0011, EPOCH, 5))
    late = switch.take(ROOT[2], datagram(7))
    assert (late.events, late.to_all, made(late)) == ((Event.LATE,), False, (0b0011, EPOCH, 5))
    assert switch.take(ROOT[1], datagram(7)).events == (Event.ANSWER,)


@pytest.mark.parametrize(("epoch", "event"), [(0, Event.CONTRIBUTION), (EPOCH + 1, Event.STALE)])
def test_who_does_not_know_the_epoch_closes_nothing(epoch: int, event: Event):
    switch = SumSwitch()
    assert switch.take(ROOT[0], datagram(members=ALL, epoch=epoch)).events == (event,)


def test_a_leaf_sends_its_sum_up_until_the_result_comes_down():
    switch = SumSwitch()
    assert switch.take(LEAF[0], datagram(2)).events == (Event.CONTRIBUTION,)
    for events in ((Event.CONTRIBUTION, Event.PARTIAL), (Event.PARTIAL,)):
        outcome = switch.take(LEAF[1], datagram(3))
        assert (outcome.events, outcome.up, outcome.to_all) == (events, True, False)
        assert made(outcome) == (0b0011, EPOCH, 5)
    down = switch.take(ABOVE, result())
    assert (down.events, down.to_all, made(down)) == ((Event.RESULT,), True, (ALL, EPOCH, 50))
    assert switch.take(ABOVE, result(51)).events == (Event.DUPLICATE,)
    answer = switch.take(LEAF[0], datagram(2))
    assert (answer.events, answer.up, made(answer)) == ((Event.ANSWER,), False, (ALL, EPOCH, 50))


def test_a_result_replaces_what_a_leaf_has_of_the_slice_but_nothing_newer():
    switch = SumSwitch()
    switch.take(LEAF[0], datagram(2))
    assert switch.take(ABOVE, result(number=1)).events == (Event.STALE,)
    assert made(switch.take(ABOVE, result())) == (ALL, EPOCH, 50)
    assert made(switch.take(ABOVE, result(number=17))) == (ALL, EPOCH, 50), "a slice that it knows nothing of"
    assert switch.take(LEAF[0], result(number=25)).events == (Event.REFUSED,), "of a host"


def test_a_root_takes_a_partial_for_all_beneath_its_port():
    switch = SumSwitch()
    for row, value in ((BELOW, 5), (ROOT[2], 1)):
        members = 0b01 if row is BELOW else 0
        assert switch.take(row, datagram(value, members=members)).events == (Event.CONTRIBUTION,)
    assert switch.take(BELOW, datagram(90, members=0b11)).events == (Event.DUPLICATE,)
    outcome = switch.take(ROOT[3], datagram(1))
    assert (outcome.events, made(outcome)) == ((Event.CONTRIBUTION, Event.RESULT), (0b1101, EPOCH, 7))
    assert switch.take(BELOW, datagram(90, members=0b11)).events == (Event.ANSWER,)


def test_a_partial_of_more_than_its_port_covers_is_of_another_tree():
    assert SumSwitch().take(BELOW, datagram(members=0b111)).events == (Event.STALE,)


# In a job of more workers than bits a switch has bits of its own.
EVERY = 0xFFFFFFFF
STANDING = Contributor(0b110, EVERY, 0, 7, epoch=EPOCH, fabric=True, stands_for=0b1011)


def test_a_partial_sum_counts_for_the_bits_that_its_port_stands_for_if_it_is_whole():
    switch = SumSwitch()
    for members in (0b1010, 0b1111, 0b110, 0, EVERY):
        assert switch.take(STANDING, datagram(members=members)).events == (Event.STALE,)
    assert not switch.slots
    assert switch.take(STANDING, datagram(5, members=0b1011)).events == (Event.CONTRIBUTION,)
    assert switch.take(STANDING, datagram(5, members=0b1011)).events == (Event.DUPLICATE,)
    assert switch.take(STANDING, datagram(5, members=0b1001)).events == (Event.STALE,)
    others = replace(STANDING, member=EVERY & ~0b110, stands_for=1)
    outcome = switch.take(others, datagram(7, members=1))
    assert (outcome.to_all, made(outcome)) == (True, (EVERY, EPOCH, 12))
    assert switch.take(STANDING, datagram(5, members=0b1011)).events == (Event.ANSWER,)


def test_a_result_names_all_whatever_its_port_stands_for():
    switch = SumSwitch()
    below = replace(STANDING, here=0xFF, above=True)
    outcome = switch.take(below, result(members=EVERY))
    assert (outcome.events, made(outcome)) == ((Event.RESULT,), (EVERY, EPOCH, 50))
    reminder = Contributor(0b1000, EVERY, 0, 7, here=0xFF, epoch=EPOCH)
    outcome = switch.take(reminder, datagram(members=EVERY))
    assert (outcome.events, outcome.up, made(outcome)) == ((Event.PARTIAL,), True, (EVERY, EPOCH, 50))
