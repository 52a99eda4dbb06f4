# SPDX-License-Identifier: Apache-2.0
"""Slices that are finished without some workers, because a contribution says that they may be missing."""

import pytest

from gradlane.wire import HEADER_BYTES, Kind
from tests.p4src.sums.sum_bench import (
    EPOCH,
    H1,
    H2,
    H3,
    SumBench,
    bits_of,
    contribution,
    datagram_of,
    everybody,
    member,
    words,
)
from tests.support.gradlane_packets import Host
from tests.support.sum_switch import Event, SumHeader

ABSORBED, RESULT = (Event.CONTRIBUTION,), (Event.CONTRIBUTION, Event.RESULT)
CLOSED = (Event.RESULT,)
ANSWER, DUPLICATE, STALE, LATE = (Event.ANSWER,), (Event.DUPLICATE,), (Event.STALE,), (Event.LATE,)


def closing(source: Host, *missing: Host, epoch: int = EPOCH, **fields: int) -> bytes:
    """What a closer sends when it lets some be missing."""
    more = {"kind": Kind.REPAIR, "members": bits_of(missing), **fields}
    return contribution(source, words(2, 50), epoch=epoch, **more)


def test_a_slice_is_finished_when_all_that_lack_may_be_missing(sums: SumBench) -> None:
    assert sums.send(H1, contribution(H1, words(2, 7))) == ABSORBED
    assert sums.send(H2, contribution(H2, words(2, 9))) == ABSORBED
    events, sent = sums.process(H1, closing(H1, H3))
    assert events == CLOSED
    payload = datagram_of(sent[0].frame)[HEADER_BYTES:]
    assert SumHeader.unpack(payload) == SumHeader(1, bits_of((H1, H2)), 0, -3, EPOCH)
    assert [int.from_bytes(payload[n : n + 4], "big") for n in (12, 16)] == [16, 18], (
        "and nothing of the closer's twice"
    )
    sums.check_counters()


def test_a_closer_that_is_not_in_is_added(sums: SumBench) -> None:
    assert sums.send(H2, contribution(H2, words(2, 9))) == ABSORBED
    assert sums.send(H1, closing(H1, H3)) == RESULT
    assert sums.send(H1, contribution(H1, number=1)) == ABSORBED


def test_a_closer_may_be_left_alone(sums: SumBench) -> None:
    _, sent = sums.process(H1, closing(H1, H2, H3))
    assert SumHeader.unpack(datagram_of(sent[0].frame)[HEADER_BYTES:]).members == member(H1)


@pytest.mark.parametrize("known", [False, True])
def test_as_long_as_others_lack_it_changes_nothing(sums: SumBench, known: bool) -> None:
    if known:
        sums.send(H1, contribution(H1, words(2)))
    assert sums.send(H1, closing(H1, H3)) == (DUPLICATE if known else ABSORBED)
    assert sums.send(H2, contribution(H2, words(2))) == ABSORBED, "h3 is still waited for"
    assert sums.send(H3, contribution(H3, words(2))) == RESULT
    sums.check_counters()


def test_who_lacks_may_be_fewer_than_may_be_missing(sums: SumBench) -> None:
    sums.send(H2, contribution(H2, words(2)))
    sums.send(H3, contribution(H3, words(2)))
    _, sent = sums.process(H1, closing(H1, H2, H3))
    assert SumHeader.unpack(datagram_of(sent[0].frame)[HEADER_BYTES:]).members == everybody(1)


def test_bits_of_nobody_mean_nothing(sums: SumBench) -> None:
    assert sums.send(H1, closing(H1, H3, members=0xFFFFFFFF & ~member(H2))) == ABSORBED
    assert sums.send(H1, closing(H1, members=0xFFFFFFFF)) == CLOSED


def test_who_comes_late_gets_the_sum_and_nobody_adds_to_it(sums: SumBench) -> None:
    sums.send(H2, contribution(H2, words(2)))
    assert sums.send(H1, closing(H1, H3)) == RESULT
    for _ in range(2):
        events, (answer,) = sums.process(H3, contribution(H3, words(2, 900), epoch=EPOCH))
        assert (events, answer.port) == (LATE, H3.port)
        assert not SumHeader.unpack(datagram_of(answer.frame)[HEADER_BYTES:]).members & member(H3)
    assert sums.send(H3, closing(H3, H1)) == LATE
    assert sums.send(H2, contribution(H2, words(2))) == ANSWER
    assert sums.of_tofino or sums.send(H3, contribution(H3, words(1))) == STALE, "of another length"
    assert sums.send(H3, contribution(H3, words(2), number=8)) == ABSORBED
    sums.check_counters()


@pytest.mark.parametrize("epoch", [0, EPOCH - 1, EPOCH + 1, 255])
def test_nobody_closes_who_does_not_know_the_epoch(sums: SumBench, epoch: int) -> None:
    sums.send(H1, contribution(H1, words(2)))
    sums.send(H2, contribution(H2, words(2)))
    assert sums.send(H1, closing(H1, H3, epoch=epoch)) == (STALE if epoch else DUPLICATE)
    assert sums.send(H3, contribution(H3, words(2))) == RESULT


@pytest.mark.parametrize("finished", [False, True])
def test_what_relies_on_another_epoch_changes_nothing(sums: SumBench, finished: bool) -> None:
    sums.send(H1, contribution(H1, words(2), epoch=EPOCH))
    if finished:
        assert sums.send(H2, closing(H2, H3)) == RESULT
    for source in (H1, H2, H3):
        for number in (0, 8):
            frame = contribution(source, words(2), number=number, epoch=EPOCH + 1, members=everybody(1))
            assert sums.send(source, frame) == STALE
    assert sums.send(H2, contribution(H2, words(2))) == (ANSWER if finished else ABSORBED)
    sums.check_counters()


def test_of_a_closed_slice_the_checksum_is_that_of_who_is_in_it(sums: SumBench) -> None:
    """By the model; also if one of them is wrong, or none."""
    for number, checksum in enumerate((None, 0, 0x1234)):
        sums.send(H2, contribution(H2, words(2), number=number, checksum=checksum))
        assert sums.send(H1, closing(H1, H3, number=number)) == RESULT
        assert sums.send(H3, contribution(H3, words(2), number=number, checksum=0x4321)) == LATE
