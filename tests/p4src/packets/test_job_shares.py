# SPDX-License-Identifier: Apache-2.0
"""Where several jobs meet: a job within its share of a port loses nothing, one beyond it gives way."""

import pytest
from finsy import P4MeterConfig

from gradlane.wire import Kind
from tests.p4src.packet_bench import Bench, Reason
from tests.p4src.packet_targets import InProcess
from tests.support.entries import GREEN, YELLOW, congestion, fabric, job, job_share, port_policy
from tests.support.gradlane_packets import FAR, H1, H2, H3, U5, Host, gradient, tags

MASK = 4095
# The share's meter counts the whole frames of a job towards the port: 20 of 1000 bytes, then none.
SHARE = 20
CONFIG = P4MeterConfig(cir=0, cburst=1000 * SHARE, pir=0, pburst=1000 * SHARE)


@pytest.fixture
def shared(bench: Bench) -> Bench:
    """Jobs 1 and 2 of h1 and h3, both with a share of the port of h2, which is red."""
    bench.install(
        fabric(),
        job(),
        job(2, (H1, H2, H3), base=MASK + 1),
        congestion(),
        [job_share(1, 2, CONFIG), job_share(2, 2, CONFIG)],
    )
    bench.congest(H1, gradient(kind=Kind.REPAIR, layer=1), GREEN + YELLOW)
    return bench


def droppable(job: int, source: Host = H1, **header: int) -> bytes:
    return gradient(source, H2, job=job, layer=1, magnitude=0, budget=100, **header)


def test_a_job_within_its_share_loses_nothing_although_the_port_is_red(shared: Bench) -> None:
    assert len(shared.process(H3, *[droppable(2, H3)] * SHARE)) == SHARE
    assert shared.decisions(2) == {(Reason.WITHIN_SHARE, 6, 3): SHARE}


def test_beyond_its_share_a_job_loses_slices_within_their_budget(shared: Bench) -> None:
    shared.process(H3, *[droppable(2, H3)] * SHARE)
    assert shared.process(H3, *[droppable(2, H3)] * 10) == []
    assert shared.decisions(2) == {(Reason.WITHIN_SHARE, 6, 3): SHARE, (Reason.DROPPED_RED, 1, 3): 10}


def test_a_job_beyond_its_share_does_not_cost_another_one_its_own(shared: Bench) -> None:
    shared.process(H1, *[droppable(1)] * (SHARE + 10))
    assert len(shared.process(H1, *[droppable(2)] * SHARE)) == SHARE
    assert shared.reasons()[Reason.WITHIN_SHARE] == SHARE - GREEN - YELLOW + SHARE


def test_what_is_protected_beyond_the_share_waits_behind_the_others(shared: Bench) -> None:
    spent = SHARE - GREEN - YELLOW  # what is left of job 1's
    protected = gradient(layer=1, magnitude=255, budget=9)
    for number in range(spent + 3):
        sent = shared.forward(H1, protected, H2)
        queue_class = 6 if number < spent else 1
        assert tags(sent.frame) == (queue_class, 0, 3), "the DSCP says so to the switches behind"
        assert sent.queue in (None, queue_class)
    assert tags(shared.forward(H3, droppable(2, H3), H2).frame)[0] == 6


@pytest.mark.parametrize("kind", [Kind.PROBE, Kind.BITMAP, Kind.STOP, Kind.REPORT])
def test_control_messages_keep_the_top_class_beyond_the_share(shared: Bench, kind: Kind) -> None:
    shared.process(H1, *[droppable(1)] * (SHARE + 10))
    assert tags(shared.forward(H1, gradient(kind=kind, layer=1), H2).frame)[0] == 7


def test_a_job_beyond_its_share_keeps_its_class_where_nobody_waits(bench: Bench) -> None:
    bench.install(fabric(), job(), congestion(), [job_share(1, 2, P4MeterConfig(cir=0, cburst=1, pir=0, pburst=1))])
    assert tags(bench.forward(H1, gradient(layer=1), H2).frame) == (6, 0, 2), "the port is green"


def test_what_is_below_the_class_of_excess_is_not_promoted(bench: Bench) -> None:
    nothing_left = P4MeterConfig(cir=0, cburst=1, pir=0, pburst=1)
    metered = [port_policy(2, metered=0) if it == port_policy(2) else it for it in congestion()]
    for excess_class in (5, 1):
        bench.install(fabric(), job(), metered, [job_share(1, 2, nothing_left, excess_class)])
        bench.congest(H1, gradient(kind=Kind.STOP), GREEN)
        found = [tags(bench.forward(H1, gradient(layer=layer), H2).frame)[0] for layer in (1, 50, 200)]
        assert found == [excess_class, excess_class, 0]


def test_a_share_is_of_one_port(shared: Bench) -> None:
    shared.process(H1, *[droppable(1)] * (SHARE + 10))
    shared.congest(H1, gradient(H1, H3, layer=1), GREEN)
    assert tags(shared.forward(H1, gradient(H1, H3, layer=1), H3).frame) == (6, 0, 3)
    assert shared.drops(H1, gradient(H1, H3, layer=1, magnitude=0, budget=9, message=1)), "a port without a share"


def test_a_share_counts_for_what_comes_from_the_fabric_too(shared: Bench) -> None:
    frame = gradient(FAR, H2, through=U5, job=2, layer=1, magnitude=0, budget=9, ip_fields={"tos": 0b110_011_00})
    assert len(shared.process(U5, *[frame] * SHARE)) == SHARE
    assert shared.drops(U5, frame)


def test_a_share_without_a_rate_is_never_exceeded(bench: Bench) -> None:
    bench.install(fabric(), job(), congestion(), [job_share(1, 2, None)])
    assert len(bench.process(H1, *[droppable(1)] * 50)) == 50
    assert bench.reasons() == {Reason.FORWARDED: GREEN, Reason.WITHIN_SHARE: 50 - GREEN}


def test_a_share_comes_back_at_its_rate(in_process: InProcess, schema) -> None:
    """On the target whose clock the test holds: 1000 bytes each second, of a port that stays red."""
    bench = Bench(in_process, schema)
    config = P4MeterConfig(cir=1000, cburst=2000, pir=1000, pburst=2000)
    bench.install(fabric(), job(), congestion(), [job_share(1, 2, config)])
    bench.congest(H1, gradient(kind=Kind.REPAIR, layer=1), GREEN + YELLOW)
    in_process.switch.now += 2_000_000_000
    assert len(bench.process(H1, *[droppable(1)] * 9)) == 2
    in_process.switch.now += 1_000_000_000
    assert len(bench.process(H1, *[droppable(1)] * 9)) == 1
