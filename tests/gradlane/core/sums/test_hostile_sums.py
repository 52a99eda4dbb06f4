# SPDX-License-Identifier: Apache-2.0
"""What is not the awaited sum is counted, and changes nothing."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from gradlane._core import lib

from gradlane.wire import HEADER_BYTES, SUM_BYTES, ElementType, Flag, Header, Kind
from tests.gradlane.core.protocol.network import TOKEN, Cluster
from tests.gradlane.core.sums.summing import Summed, Tensor
from tests.gradlane.core.sums.test_fall_back import Training
from tests.support.sum_switch import SumHeader

Change = Callable[[Header, SumHeader, bytes], tuple[Header, SumHeader, bytes]]


def header(**values: int) -> Change:
    return lambda h, s, lanes: (replace(h, **values), s, lanes)


def summed(**values: int) -> Change:
    return lambda h, s, lanes: (h, replace(s, **values), lanes)


def lanes_of(change: Callable[[bytes], bytes]) -> Change:
    def changed(h: Header, s: SumHeader, lanes: bytes) -> tuple[Header, SumHeader, bytes]:
        lanes = change(lanes)
        return replace(h, length=SUM_BYTES + len(lanes)), s, lanes

    return changed


# What is changed of a sum that is awaited, and which count tells of it; "": one of two.
CHANGES: dict[str, tuple[Change, str]] = {
    "another job": (header(job=4), "bad_job"),
    "another token": (header(token=TOKEN + 1), "bad_token"),
    "a contribution": (header(flags=Flag.SUM), "sums_refused"),
    "a flag more": (header(flags=Flag.SUM | Flag.PULL | Flag.END), "sums_refused"),
    "a flag that there is not": (header(flags=Flag.SUM | Flag.PULL | 128), "sums_refused"),
    "a STOP": (header(kind=Kind.STOP), "sums_refused"),
    "a slice without its payload": (header(kind=Kind.TRIMMED), "sums_refused"),
    "a budget": (header(budget=1), "sums_refused"),
    "a rank that there is not": (header(source=3), "sums_refused"),
    "other lanes": (header(element_type=10 | 3 << 4), "sums_refused"),
    "a maximum": (header(element_type=9 | 5 << 4), "sums_refused"),
    "elements": (header(element_type=ElementType.FLOAT32 | 3 << 4), "sums_refused"),
    "another length": (lambda h, s, lanes: (replace(h, length=h.length + 128), s, lanes), "sums_refused"),
    "another tensor": (lambda h, s, lanes: (replace(h, tensor=h.tensor ^ 16), s, lanes), ""),
    "a tensor without a stream": (header(tensor=0xEFFF), "sums_refused"),
    "a group's": (header(tensor=0xF000), "sums_refused"),
    "a partition that there is not": (header(tensor=15), "sums_refused"),
    "another partition": (lambda h, s, lanes: (replace(h, tensor=h.tensor ^ 1), s, lanes), "sums_refused"),
    "another step": (header(step=3), "sums_refused"),
    "another slice": (header(slice=0), "sums_refused"),
    "more slices": (header(slices=900), "sums_refused"),
    "a number before": (lambda h, s, lanes: (replace(h, message=h.message - 4), s, lanes), "sums_duplicate"),
    "a number to come": (lambda h, s, lanes: (replace(h, message=h.message + 4), s, lanes), "sums_refused"),
    "a generation before": (lambda h, s, lanes: (h, replace(s, generation=s.generation - 1), lanes), "sums_refused"),
    "somebody lacks": (summed(members=0b011), "sums_refused"),
    "somebody more": (summed(members=0b1111), "sums_refused"),
    "another slot": (lambda h, s, lanes: (h, replace(s, slot=s.slot + 1), lanes), "sums_refused"),
    "another exponent": (lambda h, s, lanes: (h, replace(s, exponent=s.exponent + 1), lanes), "sums_refused"),
    "a word less": (lanes_of(lambda lanes: lanes[:-128]), "sums_refused"),
    "a word more": (lanes_of(lambda lanes: lanes + bytes(128)), "sums_refused"),
    "half a word": (lanes_of(lambda lanes: lanes[:-64]), "sums_refused"),
    "no lanes": (lanes_of(lambda lanes: b""), "sums_refused"),
    "a lane that is no sum": (lanes_of(lambda lanes: b"\xff\xff" + lanes[2:]), "sums_refused"),
}


class Forger(Summed):
    """Before a sum reaches rank 0, the same comes there with a change."""

    change: Change | None = None
    keeps: int | None = None  # or so many bytes of it
    forged = 0

    def receive(self, rank: int, datagram: bytes, congested: bool = False) -> None:
        its = Header.unpack(datagram) if rank == 0 else None
        if its is not None and its.flags & Flag.SUM and its.slice > 0:
            forged = datagram[: self.keeps]
            if self.change:
                s = SumHeader.unpack(datagram[HEADER_BYTES:])
                h, s, lanes = self.change(its, s, datagram[HEADER_BYTES + SUM_BYTES :])
                forged = h.pack() + s.pack() + lanes
            self.forged += 1
            lib.gl_receive(self.engines[0], forged, len(forged), False, self.now)
        super().receive(rank, datagram, congested)


@pytest.mark.parametrize("name", CHANGES)
def test_what_is_not_the_awaited_sum_is_counted_and_changes_nothing(name: str) -> None:
    cluster = Forger(3, slice_bytes=144)
    training = Training(cluster, [Tensor(0, [130, 70]), Tensor(1, [130])], 2)
    change, count = CHANGES[name]
    cluster.change = change
    cluster.run(training.go_on)
    training.check([2])
    counts = cluster.statistics(0)
    assert cluster.forged >= 3
    assert not count or getattr(counts, count) == cluster.forged
    every = ("sums_refused", "sums_duplicate", "bad_job", "bad_token")
    assert sum(getattr(counts, name) for name in every) == cluster.forged
    assert cluster.statistics(1).sums_refused == 0


def test_a_sum_that_may_lack_others_does_not_lack_its_closer() -> None:
    def without(h: Header, s: SumHeader, lanes: bytes) -> tuple[Header, SumHeader, bytes]:
        closer = (h.tensor // 16 + h.step) % 3
        return h, replace(s, members=0b111 & ~(1 << closer)), bytes(len(lanes))

    cluster = Forger(3, slice_bytes=144, loss=0.9)
    training = Training(cluster, [Tensor(0, [300]), Tensor(1, [200])], 2)
    cluster.change = without
    cluster.run(training.go_on)
    training.check([2])
    assert cluster.forged >= 3
    assert cluster.statistics(0).sums_refused == cluster.forged


@pytest.mark.parametrize("length", [HEADER_BYTES, HEADER_BYTES + SUM_BYTES - 1, HEADER_BYTES + SUM_BYTES, 100])
def test_a_datagram_that_ends_early_is_none(length: int) -> None:
    cluster = Forger(3, slice_bytes=144)
    training = Training(cluster, [Tensor(0, [300])], 2)
    cluster.keeps = length
    cluster.run(training.go_on)
    training.check([2])
    assert cluster.forged >= 3
    assert cluster.statistics(0).sums_refused == cluster.forged


def test_a_job_without_sums_knows_no_such_flag() -> None:
    cluster = Cluster(2)
    datagram = Header(kind=Kind.DATA, job=3, source=1, message=1, token=TOKEN, flags=Flag.SUM | Flag.PULL).pack()
    cluster.receive(0, datagram)
    assert cluster.statistics(0).bad_header == 1
    assert cluster.statistics(0).sums_refused == 0
