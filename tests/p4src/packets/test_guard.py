# SPDX-License-Identifier: Apache-2.0
"""Which senders may send gradients of a job, what the guard tells of others, and what a job's number stands for."""

import pytest
from scapy.layers.inet import UDP

from gradlane.wire import Kind
from tests.p4src.packet_bench import Bench, Count, Reason
from tests.p4src.packet_targets import Violation
from tests.support.entries import GREEN, VIOLATIONS, congestion, fabric, job, sender, set_job, source
from tests.support.gradlane_packets import FAR, H1, H2, H3, H4, U5, Host, gradient, ip, source_key


@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize(
    ("port", "through", "source", "header"),
    [
        (H2.port, H2, H1, {}),
        (17, H1, H1, {}),
        (H1.port, H1, H2, {}),
        (H1.port, H1, H1, {"job": 2}),
        (H1.port, H1, H1, {"job": 0}),
        (H4.port, H4, H4, {}),
        (H1.port, H1, H1, {"job": 9, "kind": Kind.STOP}),
    ],
    ids=["another rank's port", "no port of the fabric", "another rank's source", "another job", "no job",
         "a host without a rank", "a control message"],
)  # fmt: skip
def test_a_gradient_packet_that_nobody_permitted_is_dropped_counted_and_reported(
    bench: Bench, port: int, through: Host, source: Host, header: dict[str, int], version: int
) -> None:
    bench.install(fabric(), job(), [VIOLATIONS])
    frame = gradient(source, H3, through=through, version=version, **header)
    assert bench.drops(port, frame)
    assert bench.decision_cells(0, 1) == {(0, Reason.DROPPED_GUARD, 0, 0): Count(1, len(frame))}
    address = source.address if version == 4 else source.address6
    assert bench.target.violations(1) == [Violation(port, header.get("job", 1), source_key(address))]


def test_what_is_permitted_or_no_gradient_is_not_reported(bench: Bench) -> None:
    bench.install(fabric(), job(), [VIOLATIONS])
    bench.forward(H1, gradient(H1, H2), H2)
    bench.forward(H1, bytes(ip(H1, H2.address) / UDP(dport=9)), H2)
    assert bench.drops(H3, bytes(ip(H1, H2.address, H3) / UDP(dport=9))), "of another's address"
    assert bench.drops(H4, gradient(H4, H2))
    assert bench.target.violations(1) == [Violation(4, 1, source_key(H4.address))]


def test_every_member_may_send_and_the_guard_counts_each_apart(bench: Bench) -> None:
    bench.install(fabric(), job(), job(2, (H1, H4), base=4096))
    frames = [(H1, gradient(H1, H2)), (H1, gradient(H1, H2)), (H2, gradient(H2, H3, frame_bytes=300))]
    frames += [(H1, gradient(H1, H4, job=2)), (H4, gradient(H4, H1, job=2, kind=Kind.PROBE))]
    frames += [(H2, gradient(H2, H3, frame_bytes=400, version=6))]
    for host, frame in frames:
        bench.forward(host, frame)
    assert bench.drops(H3, gradient(H3, H1, job=2))
    assert bench.sender(sender(1, H1.address, 1)) == Count(2, 2000)
    assert bench.sender(sender(2, H2.address, 1)) == Count(1, 300)
    assert bench.sender(sender(2, H2.address6, 1)) == Count(1, 400)
    assert bench.sender(sender(3, H3.address, 1)) == Count(0, 0)
    assert bench.sender(sender(1, H1.address, 2)) == Count(1, 1000)
    assert bench.sender(sender(4, H4.address, 2)) == Count(1, 1000)


def test_an_ipv4_address_and_its_mapped_ipv6_address_are_one_sender_and_no_other(bench: Bench) -> None:
    bench.install(fabric(), [set_job(), sender(1, H1.address, 1)], [source(1, H1.mac, f"::{H1.address}")])
    mapped = gradient(H1, H2, version=6, ip_fields={"src": f"::ffff:{H1.address}"})
    bench.forward(H1, mapped, H2)
    compatible = gradient(H1, H2, version=6, ip_fields={"src": f"::{H1.address}"})
    assert bench.drops(H1, compatible)


def test_a_gradient_from_another_switch_of_the_fabric_was_guarded_where_it_came_in(bench: Bench) -> None:
    bench.install(fabric(), job(hosts=()))
    bench.forward(U5, gradient(FAR, H2, through=U5), H2)
    assert bench.decisions(0) == {}
    assert bench.decisions(1) == {(Reason.FORWARDED, 0, 0): 1}


def test_a_permitted_gradient_of_a_job_that_is_not_listed_is_never_dropped_by_policy(bench: Bench) -> None:
    """As between the moment that the controller takes a job away and the moment that its hosts know."""
    listed = job()
    bench.install(fabric(), [it for it in listed if it != set_job()], congestion())
    assert len(bench.process(H1, *[gradient(layer=1, budget=100)] * 30)) == 30
    assert bench.decisions(0) == {
        (Reason.FORWARDED, 6, 3): GREEN,
        (Reason.BUDGET_SPENT, 6, 3): 30 - GREEN,
    }
    assert bench.decisions(1) == {}


def test_the_decisions_for_a_job_are_counted_at_its_index(bench: Bench) -> None:
    bench.install(fabric(), job(index=15), job(2, (H1, H4), index=3, base=4096))
    bench.forward(H1, gradient(layer=1), H2)
    bench.forward(H1, gradient(layer=50, job=2), H2)
    bench.forward(H1, gradient(layer=50, job=2), H2)
    assert bench.decisions(15) == {(Reason.FORWARDED, 6, 0): 1}
    assert bench.decisions(3) == {(Reason.FORWARDED, 5, 0): 2}
    assert bench.decisions(0, 1, 2) == {}
