# SPDX-License-Identifier: Apache-2.0
"""Results of a switch that do not belong change nothing and are counted, whatever is wrong with them."""

from collections.abc import Iterator
from dataclasses import fields, replace

import pytest
from gradlane._core import lib

from gradlane.wire import HEADER_BYTES, SUM_BYTES, Flag, Header, Kind, Lanes
from tests.gradlane.core.sums.summing import Summed, Tensor
from tests.gradlane.core.sums.test_sums import train
from tests.support.sum_switch import SumHeader

# What a receiver need not look at: where the switch queued it, how often the switch was restarted.
FREE = {"layer", "magnitude", "epoch"}
COUNTS = (
    "sums_refused", "sums_duplicate", "bad_header", "bad_job", "bad_token", "bad_source", "bad_length", "bad_range",
    "bad_budget", "bad_message",
)  # fmt: skip


def forged(datagram: bytes, workers: int, lanes: Lanes) -> Iterator[tuple[str, bytes]]:
    """The result with something wrong, and what."""
    header, rest = Header.unpack(datagram), datagram[HEADER_BYTES:]
    summed, words = SumHeader.unpack(rest), rest[SUM_BYTES:]
    for name in [field.name for field in fields(header) if field.name not in FREE | {"source", "kind", "flags"}]:
        yield name, replace(header, **{name: getattr(header, name) ^ 1}).pack() + rest
    for source in (workers, 0xFF):
        yield "source", replace(header, source=source).pack() + rest
    for kind in (Kind.TRIMMED, Kind.REPORT, 9):
        yield "kind", replace(header, kind=kind).pack() + rest
    for flags in (Flag.SUM, Flag.PULL, Flag.SUM | Flag.PULL | Flag.END, Flag.SUM | Flag.PULL | 64):
        yield f"flags {flags}", replace(header, flags=flags).pack() + rest
    for name in [field.name for field in fields(summed) if field.name not in FREE]:
        yield name, header.pack() + replace(summed, **{name: getattr(summed, name) ^ 1}).pack() + words
    yield "members", header.pack() + replace(summed, members=summed.members | 1 << workers).pack() + words
    yield "a lane", header.pack() + summed.pack() + b"\xff" * len(words)
    for cut in (HEADER_BYTES - 1, HEADER_BYTES, HEADER_BYTES + SUM_BYTES, len(datagram) - 1):
        yield f"{cut} bytes", datagram[:cut]
    yield "a longer one", datagram + b"\0"
    short = replace(header, length=SUM_BYTES + len(words) - 128)
    yield "a word less", short.pack() + rest[:-128]


class Forging(Summed):
    """Before each result comes, all that is wrong with it does; afterwards it comes again."""

    def receive(self, rank: int, datagram: bytes, congested: bool = False) -> None:
        is_sum = 0 <= rank < self.workers and Header.unpack(datagram).flags & Flag.SUM
        if is_sum:
            for wrong, data in forged(datagram, self.workers, self.numbers.lanes):
                before = self._counts(rank)
                lib.gl_receive(self.engines[rank], data, len(data), False, self.now)
                received, refused = self._counts(rank)
                assert received == before[0], f"{wrong} is wrong, and it is taken"
                assert refused == before[1] + 1, f"{wrong} is wrong, and nobody counts it"
        super().receive(rank, datagram, congested)
        if is_sum:
            before = self._counts(rank)
            super().receive(rank, datagram, congested)
            assert self._counts(rank)[0] == before[0]

    def _counts(self, rank: int) -> tuple[int, int]:
        statistics = self.statistics(rank)
        return statistics.sums_received, sum(getattr(statistics, name) for name in COUNTS)


@pytest.mark.parametrize("lanes", Lanes)
def test_a_result_that_does_not_belong_changes_nothing_and_is_counted(lanes: Lanes) -> None:
    # Three workers of 32-bit lanes use all but two values of a lane, so a lane of all ones is too large.
    train(Forging(3, lanes=lanes), [Tensor(0, [200, 70]), Tensor(1, [5])], 3)
