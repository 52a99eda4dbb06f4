# SPDX-License-Identifier: Apache-2.0
"""Where the processor is the limit: control datagrams go behind slices to the same receiver, and less is in flight."""

from collections.abc import Sequence

import numpy as np
import pytest

from gradlane.wire import HEADER_BYTES, REPORT_FIELDS, Header, Kind
from tests.gradlane.core.protocol.fabric_model import Engine, Model, Tcp
from tests.gradlane.core.protocol.network import Cluster, Impairment
from tests.gradlane.core.protocol.queued_port import Port

FAST, SLOW = 100_000_000_000, 25_000_000_000
SLICES = {Kind.DATA, Kind.REPAIR}
MOST_BYTES = 65507  # of a packet
_NAMES = [name for name, _ in REPORT_FIELDS]
_ROOM = HEADER_BYTES + sum(bits for _, bits in REPORT_FIELDS[: _NAMES.index("room")]) // 8


class Batches(Cluster):
    """A cluster; `runs`: the kinds of each batch, host by host, each time that it had something to send."""

    def __init__(self, rate: int, slice_bytes: int = 1432, loss: float = 0.0) -> None:
        super().__init__(
            4, rate=rate, buffer=16_000_000, slice_bytes=slice_bytes, impairment=Impairment(delay=30, loss=loss)
        )
        self.runs: list[list[list[int]]] = []
        self.watch = self._note

    def _note(self, source: int, to: int, headers: Sequence[Header], length: int) -> None:
        self.runs[-1].append([header.kind for header in headers])
        if len(headers) > 1:
            assert length <= MOST_BYTES

    def _flush(self, rank: int) -> None:
        self.runs.append([])
        super()._flush(rank)

    def reduce(self, elements: int) -> None:
        """An all-reduce, with its result looked at."""
        results = [self.submit(rank, 0, 0, np.full(elements, rank + 1.0)) for rank in range(4)]
        self.run(until=lambda: self.all_completed(1))
        assert all((result == 2.5).all() for result in results)

    @property
    def batches(self) -> list[list[int]]:
        """All of them."""
        return [batch for run in self.runs for batch in run]


def mixed(batch: Sequence[int]) -> bool:
    return batch[0] in SLICES and batch[-1] not in SLICES


@pytest.mark.parametrize(("loss", "least"), [(0.0, 1.0), (0.02, 0.5)])
def test_where_the_processor_is_the_limit_a_control_goes_behind_slices(loss: float, least: float) -> None:
    cluster = Batches(FAST, loss=loss)
    cluster.reduce(400_000)
    behind = [batch for batch in cluster.batches if mixed(batch)]
    alone = [batch for batch in cluster.batches if batch[0] not in SLICES]
    assert len(behind) > least * len(alone) > 0  # what ends or repairs a message may have no slices to go behind
    assert all(batch[-2] in SLICES for batch in behind)
    assert max(map(len, behind)) == 45  # behind as many slices as a batch holds


def test_where_the_link_is_the_limit_controls_go_first() -> None:
    cluster = Batches(SLOW)
    cluster.reduce(400_000)
    assert not any(map(mixed, cluster.batches))
    for run in cluster.runs:
        kinds = [batch[0] in SLICES for batch in run]
        assert kinds == sorted(kinds)


@pytest.mark.parametrize("slice_bytes", [1432, 1328, 16])
def test_a_control_is_put_off_by_one_batch_at_most(slice_bytes: int) -> None:
    cluster = Batches(FAST, slice_bytes)
    cluster.reduce(400 * slice_bytes)
    assert any(map(mixed, cluster.batches)) == (slice_bytes == 1432)  # a full batch has no room, or a REPORT is longer
    for run in cluster.runs:
        told = [any(kind not in SLICES for kind in batch) for batch in run]
        last = max((i for i, controls in enumerate(told) if controls), default=0)
        assert all(told[i] or told[i + 1] for i in range(last)), run


class Rooms(Model):
    """Notes what REPORTs say of the room."""

    def __init__(self, hosts: int, rate: int, sockets: int) -> None:
        super().__init__(hosts, rate, 16_000_000, sockets=sockets)
        self.told: set[int] = set()

    def _hop(self, now: float, to: Engine | Tcp, datagram: bytes, marked: bool, way: list[Port]) -> None:
        if Header.unpack(datagram).kind == Kind.REPORT:
            self.told.add(int.from_bytes(datagram[_ROOM : _ROOM + 4], "big"))
        super()._hop(now, to, datagram, marked, way)


@pytest.mark.parametrize(
    ("hosts", "rate", "sockets", "room"),
    [
        (3, FAST, 2 << 20, 512 << 10),
        (3, FAST, 1 << 18, 1 << 18),  # they hold less
        (3, SLOW, 2 << 20, 2 << 20),
        (12, FAST, 2 << 20, 11 * (72 << 10)),  # a batch of each stream, and more
        (12, FAST, 1 << 19, 1 << 19),
        (12, SLOW, 2 << 20, 2 << 20),
    ],
)
def test_less_is_in_flight_than_sockets_hold(hosts: int, rate: int, sockets: int, room: int) -> None:
    model = Rooms(hosts, rate, sockets)
    model.once(model.job(list(range(hosts))))
    assert min(model.told) == room // (hosts - 1)


def test_what_sockets_hold_is_no_bound_where_nothing_is_said_of_it() -> None:
    model = Rooms(3, FAST, 0)
    model.once(model.job([0, 1, 2]))
    assert model.told == {(1 << 32) - 1}
