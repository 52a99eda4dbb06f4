# SPDX-License-Identifier: Apache-2.0
"""A step begins at all hosts at once: what they send meets evenly at each host, and between each two groups of them, as
below two leaf switches."""

from collections import Counter

import pytest

from gradlane.wire import Header, Kind
from tests.gradlane.core.protocol.fabric_model import Engine, Model, Tcp
from tests.gradlane.core.protocol.queued_port import Port

RATE = 1_000_000_000  # bit/s
SLICE = 1432  # bytes
FRAME = SLICE + 40 + 42
PARTS = 4  # of a round, in which each host sends a slice to each


class Counted(Model):
    """`met`: slices that came from hosts' links, by source, destination, and the part of the round since `begun`."""

    def __init__(self, hosts: int) -> None:
        super().__init__(hosts, RATE, 20 * FRAME)
        self.begun = 0
        self.part = (hosts - 1) * FRAME * 8e6 / RATE / PARTS  # us
        self.met: Counter[tuple[int, int, int]] = Counter()

    def _hop(self, now: float, to: Engine | Tcp, datagram: bytes, marked: bool, way: list[Port]) -> None:
        if len(way) == 1 and datagram[0] & 15 == Kind.DATA and isinstance(to, Engine):
            since = now - self.begun - way[0].delay
            self.met[Header.unpack(datagram).source, to.host, int(since / self.part)] += 1
        super()._hop(now, to, datagram, marked, way)


@pytest.mark.parametrize(("leaves", "hosts"), [(31, 1), (48, 1), (3, 8), (4, 8)])
def test_slices_of_hosts_that_begin_together_meet_evenly(leaves: int, hosts: int) -> None:
    """In each part of the first round of each step; where each leaf has one host, of all others together."""
    ranks = leaves * hosts
    model = Counted(ranks)
    job = model.job(list(range(ranks)), elements=6 * ranks * SLICE // 4)
    for step in range(2):
        model.met.clear()
        model.begun = model.now
        model.once(job)
        found: Counter[tuple[int, int, int]] = Counter()
        for (source, to, of), slices in model.met.items():
            found[source // hosts if hosts > 1 else -1, to // hosts, of] += slices
        for source, to in {pair[:2] for pair in found if pair[0] != pair[1]}:
            even = (hosts * hosts if hosts > 1 else ranks - 1) / PARTS
            parts = [found[source, to, of] for of in range(PARTS)]
            assert parts == pytest.approx([even] * PARTS, rel=0.35), (step, source, to)
