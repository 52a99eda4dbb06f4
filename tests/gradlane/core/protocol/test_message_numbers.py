# SPDX-License-Identifier: Apache-2.0
"""Messages of which the receiver remembers one in place of another, RING numbers later."""

import numpy as np
import pytest

from gradlane.wire import Flag, Header, Kind
from tests.gradlane.core.protocol.network import JOB, MEAN_FLOAT32, TOKEN, Cluster

RING = 4096  # of core/job/job.h


def push(
    cluster: Cluster,
    number: int,
    part: int = 0,
    slices: int = 1,
    source: int = 0,
    kind: Kind = Kind.DATA,
    step: int = -1,
) -> None:
    """A slice of ones comes to the last rank, the server."""
    stride = 1 << (cluster.ranks - 1).bit_length()
    message = (0xFFFFFF00 + number * stride + source) & 0xFFFFFFFF
    header = Header(
        kind, JOB, source, message, TOKEN, step=number if step < 0 else step, slice=part, slices=slices, length=64,
        flags=Flag.END if part + 1 == slices else 0, element_type=MEAN_FLOAT32,
    )  # fmt: skip
    cluster.receive(cluster.ranks - 1, header.pack() + np.ones(16, np.float32).tobytes())


def counts(cluster: Cluster) -> tuple[int, int, int]:
    """Of the server: messages, and datagrams that were taken for none or came too late."""
    found = cluster.statistics(cluster.ranks - 1)
    return found.messages_received, found.bad_message, found.slices_late


def test_a_duplicate_that_comes_after_all_these_messages_begins_nothing() -> None:
    cluster = Cluster(1, servers=1)
    push(cluster, 0)
    with pytest.raises(TimeoutError):
        cluster.run(until=lambda: False, limit=50_000)  # its result is stopped, and its operation over
    push(cluster, RING)
    assert counts(cluster) == (2, 0, 0)
    with pytest.raises(TimeoutError):
        cluster.run(until=lambda: False, limit=50_000)
    push(cluster, 0)
    assert counts(cluster) == (2, 0, 1)


def test_a_message_that_is_not_complete_keeps_its_place() -> None:
    cluster = Cluster(1, servers=1)
    push(cluster, 0, slices=2)
    push(cluster, RING)
    assert counts(cluster) == (0, 1, 0)
    push(cluster, 0, part=1, slices=2)
    assert counts(cluster) == (1, 1, 0)


def test_a_message_whose_operation_waits_for_others_keeps_its_place() -> None:
    cluster = Cluster(2, servers=1)
    push(cluster, 0)
    push(cluster, RING)
    assert counts(cluster) == (1, 1, 0)
    push(cluster, 0, source=1)
    assert counts(cluster) == (2, 1, 0)


def test_a_second_message_of_the_same_contribution_is_refused() -> None:
    cluster = Cluster(2, servers=1)
    push(cluster, 0, slices=2)
    push(cluster, 1, slices=2, part=1, step=0)
    assert cluster.statistics(2).bad_range == 1
    push(cluster, 0, slices=2, part=1)
    assert counts(cluster) == (1, 0, 0)


def test_a_repair_of_a_complete_message_is_answered_at_once() -> None:
    """Its sender has not seen the STOP. A duplicate of the first pass says nothing of that."""
    cluster = Cluster(1, servers=1)
    for kind, stops in ((Kind.DATA, 1), (Kind.DATA, 1), (Kind.REPAIR, 2)):
        push(cluster, 0, kind=kind)
        assert cluster.statistics(1).stops_sent == stops
