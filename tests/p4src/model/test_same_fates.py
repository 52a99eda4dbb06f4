# SPDX-License-Identifier: Apache-2.0
"""The same schedule on gradlane-switch and on BMv2 has the same fates: thresholds, drops, trims, marks, counters.

Nothing depends on time: the meters of both have no rate. Strict priority needs a queue that
waits: gradlane-switch shows it on its own clock here; BMv2 shows it only behind a slower link, in the emulation.
"""

from random import Random

import pytest
from finsy import P4MeterConfig
from scapy.layers.inet import UDP
from scapy.packet import Raw

from gradlane.wire import Kind
from tests.p4src.model.model_packet import timeless
from tests.p4src.model.random_policies import frames, incast
from tests.p4src.packet_bench import Bench
from tests.p4src.packet_targets import Bmv2, InProcess, Sent
from tests.support.entries import VIOLATIONS, congestion, dscp_class, fabric, job, job_share, multicast, rewrite
from tests.support.gradlane_packets import H1, H2, H3, gradient, ip, ip6, tags

SHARE = P4MeterConfig(cir=0, cburst=8025, pir=0, pburst=8025)


def fate(sent: Sent) -> tuple[int, bytes, int | None]:
    """What is the same on both; a trace's newest record without depth and wait."""
    at = 78 if sent.frame[12:14] == b"\x08\x00" else 98
    traced = len(sent.frame) > at and sent.frame[at - 36] == 1 << 4 | Kind.TRACE
    return sent.port, timeless(sent.frame) if traced else sent.frame, sent.reason


def install(bench: Bench) -> None:
    bench.install(
        fabric(),
        job(mask=7),
        job(2, (H1, H2, H3), base=8, mask=3, trim=True),
        job(3, (H1, H2, H3), base=12, mask=0, spray=False),
        congestion(),
        multicast("239.1.0.1", 1, 1, 2, 3, 5),
        [job_share(2, 2, SHARE), job_share(3, 2, SHARE), dscp_class(46, 5), rewrite(2, 46, 8), VIOLATIONS],
    )


@pytest.mark.parametrize("seed", range(2))
def test_the_same_schedule_has_the_same_fates_on_both_switches(
    in_process: InProcess, bmv2: Bmv2, schema, seed: int
) -> None:
    random = Random(seed)
    benches = [Bench(in_process, schema), Bench(bmv2, schema)]
    for bench in benches:
        install(bench)
    for number in range(100):
        port, frame = (incast if number % 3 else frames)(random)
        fates = [sorted(map(fate, bench.process(port, frame)), key=repr) for bench in benches]
        assert fates[0] == fates[1], (number, port, frame.hex())
    one, other = ([bench.decision_cells(0, 1, 2, 3), bench.drop_map()] for bench in benches)
    assert one == other
    assert len(one[0]) > 20, "the schedule must reach many decisions"


def burst() -> list[bytes]:
    """Frames of every class towards h2, the lowest ones first."""
    best_effort = bytes(ip(H1, H2) / UDP(dport=9) / Raw(bytes(958)))
    return [
        *[best_effort] * 3,
        bytes(ip6(H1, H2, tc=46 << 2) / UDP(dport=9) / Raw(bytes(938))),
        *[gradient(layer=50, message=n) for n in range(3)],
        *[gradient(layer=1, message=n) for n in range(3)],
        gradient(kind=Kind.STOP, layer=50, frame_bytes=100),
        *[gradient(layer=1, magnitude=0, budget=9, message=n) for n in range(3)],
    ]


def test_what_waits_leaves_in_strict_order_of_its_class(in_process: InProcess, schema) -> None:
    bench = Bench(in_process, schema)
    install(bench)
    schedule = [(0, H1.port, frame) for frame in burst()]
    result = in_process.switch.replay(schedule, {1: "", 2: "rate=8mbit,buffer=64kB"})
    left = [tags(frame)[0] if frame[12:14] == b"\x08\x00" else 5 for _, port, frame in result.sent if port == 2]
    assert left[0] == 0, "the link was free for the first one"
    assert left[1:] == sorted(left[1:], reverse=True)
    assert len(left) == len(burst()) - 3, "the droppable ones met a port that was no longer green"
