# SPDX-License-Identifier: Apache-2.0
"""The transport through the P4 program: what that drops, trims, tags and traces is what the engines take it for."""

import heapq

import numpy as np
import pytest
from finsy import P4MeterEntry, P4Schema
from finsy.proto import p4r
from gradlane._core import ffi, lib
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from gradlane.wire import Flag, Header, Kind
from gradlane_switch import Switch
from tests.gradlane.core.protocol.network import JOB, Cluster
from tests.support import entries
from tests.support.gradlane_packets import HOSTS
from tests.support.paths import P4INFO, PROGRAM

SCHEMA = P4Schema(P4INFO)
WORKERS, SERVER = HOSTS[:2], HOSTS[2]


class ThroughTheProgram(Cluster):
    """Two workers and a server at ports of one switch, whose port towards the server is always red."""

    def __init__(self, *, trim: bool, push_loss: float, **settings: object) -> None:
        super().__init__(2, servers=1, push_loss=push_loss, **settings)
        self.switch = Switch.load(PROGRAM, P4INFO)
        self.kinds: list[tuple[int, int]] = []  # (kind, queue) of what the switch has sent
        self.tos_behind: list[int] = []  # of what the switch has sent, in the order of `tags`
        wanted = [*entries.fabric(switch_id=7), *entries.job(JOB, HOSTS[:3], index=2, trim=int(trim))]
        wanted += [entries.port_policy(SERVER.port), entries.budget_share(0, 0, "whole")]
        wanted += [entries.virtual_queue(SERVER.port, entries.ALWAYS_RED)]
        for item in wanted:
            kind = p4r.Update.MODIFY if isinstance(item, P4MeterEntry) else p4r.Update.INSERT
            self.switch.write(p4r.Update(type=kind, entity=item.encode(SCHEMA)))

    def _deliver(self, source: int, to: int, datagram: bytes) -> None:
        sender, receiver = HOSTS[source], HOSTS[to]
        ip = IP(src=sender.address, dst=receiver.address, tos=1 << 2 | 1) / UDP(sport=47400, dport=47400) / datagram
        sent = self.switch.process_queued(sender.port, bytes(Ether(src=sender.mac, dst=sender.gateway) / ip))
        self.tos_behind.append(Ether(sent[0][2])[IP].tos if sent else -1)
        for port, queue, frame in sent:
            udp = Ether(frame)[UDP]
            data = bytes(udp.payload)[: udp.len - 8]
            assert len(bytes(udp)) == udp.len, "the length is right, and nothing follows"
            self.kinds.append((Header.unpack(data).kind, queue))
            # What is in a lower queue waits.
            at = self.now + 100 + 100 * (7 - queue)
            self.counter += 1
            heapq.heappush(self.queue, (at, self.counter, port - 1, data))

    def train(self, elements: int = 64 * 16) -> np.ndarray:
        """One all-reduce of ones at the first worker and threes at the second: the result."""
        values = [np.full(elements, value, np.float32) for value in (1, 3)]
        results = [self.submit(rank, 0, 0, values[rank]) for rank in range(2)]
        self.run(until=lambda: self.all_completed(1))
        np.testing.assert_array_equal(*results)
        return results[0]


@pytest.mark.parametrize("trim", [False, True])
def test_what_the_policy_takes_stays_within_the_budget_and_is_not_repaired(trim: bool) -> None:
    cluster = ThroughTheProgram(trim=trim, push_loss=0.25)
    result = cluster.train()
    server = cluster.statistics(2)
    # 64 slices a message; the smallest quarter of the magnitudes has drop precedence 3, so the budget is used up.
    assert server.slices_lost == server.budget_total == 2 * 16
    assert server.trimmed == (2 * 16 if trim else 0)
    assert server.budget_violations == server.bad_length == server.bad_header == 0
    assert [cluster.statistics(rank).slices_repaired for rank in range(2)] == [0, 0]
    assert [cluster.statistics(rank).probes_sent for rank in range(2)] == [0, 0]
    assert {queue for kind, queue in cluster.kinds if kind == Kind.TRIMMED} == ({7} if trim else set())
    assert set(result[16 * 16 :]) == {2.0}
    assert np.isin(result, [0, 1, 2, 3]).all(), "of what arrived, the mean"


def test_a_job_without_tolerance_loses_nothing_at_a_red_port() -> None:
    cluster = ThroughTheProgram(trim=True, push_loss=0.0)
    assert set(cluster.train()) == {2.0}
    assert cluster.statistics(2).trimmed == cluster.statistics(2).slices_lost == 0


def test_traces_tell_the_senders_what_the_switch_wrote() -> None:
    cluster = ThroughTheProgram(trim=False, push_loss=0.0, trace_every=1)
    cluster.train()
    cluster.run()
    assert cluster.paths(0, 2) == cluster.paths(1, 2) == [(1, [7])]
    assert cluster.paths(2, 0) == cluster.paths(2, 1) == [(1, [7])]
    found = ffi.new("gl_path[]", lib.GL_PATHS)
    assert lib.gl_paths(cluster.engines[0], 2, found) == 1
    hop = found[0].hop[0]
    assert (hop.ingress_port, hop.egress_port) == (WORKERS[0].port, SERVER.port)
    assert (hop.queue_class, hop.color) == (5, 2)  # of the middle slice's layer, at a red port
    assert sum(cluster.statistics(rank).bad_trace for rank in range(3)) == 0


def test_hosts_that_tag_write_what_the_program_writes() -> None:
    classes = [(*layers, 0, 255, value) for layers, value in entries.CLASSES]
    precedences = [(*layers, *magnitudes, value) for layers, magnitudes, value in entries.PRECEDENCES]
    cluster = ThroughTheProgram(trim=False, push_loss=0.25, trace_every=1, classes=classes, precedences=precedences)
    cluster.train()
    compared = 0
    for (header, tos), behind in zip(cluster.tags, cluster.tos_behind, strict=True):
        if behind == -1:
            assert header.kind == Kind.DATA
            assert tos >> 2 & 7, "only what may be dropped was dropped"
            continue
        marked = tos & 2 and behind & 3 == 3  # the red port has marked what is ECN-capable
        assert behind == (tos | 3 if marked else tos), header
        compared += 1
    assert compared > 100
    assert {header.kind for header, _ in cluster.tags} >= {Kind.DATA, Kind.STOP, Kind.REPORT, Kind.TRACE}
    assert any(header.flags & Flag.RETURNED for header, _ in cluster.tags)
