# SPDX-License-Identifier: Apache-2.0
"""TCP in the simulator: DCTCP and Cubic do to a queue what is known of them, and PIAS puts short messages first."""

from typing import Any

from gradlane_sim.carriers import Rival
from gradlane_sim.specification import Queue
from tests.sim.rivals import CUBIC, DCTCP, MARK, MS, NO_MARK, PIAS, durations, fabric, port, run

LONG = 20_000_000  # bytes: 0.16 s alone
THRESHOLD = 30_000  # 20 packets: what DCTCP's paper has at 1 Gbit/s
BUFFER = 300_000
TWO_LONG = [(0, 0, 2, LONG), (0, 1, 2, LONG)]
SHORT = (50 * MS, 3, 2, 8_000)
# Of payload, in Ethernet frames of 1514 bytes.
PART = 1460 / 1514


def busy(result: dict[str, Any], size: int) -> float:
    """The part of a link of 1 Gbit/s that data had until the last flow was over."""
    ends = [flow[1] for flow in result["flows"]]
    return size * 8 / PART / max(ends)


def test_two_dctcp_flows_keep_the_queue_near_its_threshold_and_the_link_busy() -> None:
    result = run(fabric(4, MARK), flows=TWO_LONG, carrier=DCTCP)
    queue = port(result, 4, 2)
    assert busy(result, 2 * LONG) > 0.95
    assert THRESHOLD / 2 < queue["depth_mean"] < 1.5 * THRESHOLD
    assert queue["dropped"] == 0 < queue["marked"]


def test_two_cubic_flows_fill_the_buffer() -> None:
    result = run(fabric(4, NO_MARK), flows=TWO_LONG, carrier=CUBIC)
    queue = port(result, 4, 2)
    assert busy(result, 2 * LONG) > 0.9
    assert queue["depth_max"] > 0.99 * BUFFER
    assert queue["depth_mean"] > 0.4 * BUFFER
    assert queue["dropped"] > 0 == queue["marked"]


def test_queues_mark_dctcp_in_classes_of_their_own_too() -> None:
    """A Gradlane switch's queues, with marking."""
    result = run(fabric(4, Queue("priority", (("mark", THRESHOLD),))), flows=TWO_LONG, carrier=DCTCP)
    assert port(result, 4, 2)["depth_mean"] < 1.5 * THRESHOLD


def test_pias_lets_a_short_message_pass_long_ones() -> None:
    alone, behind, ahead = (
        durations(run(fabric(4, queue), flows=flows, carrier=DCTCP))[-1]
        for queue, flows in ((PIAS, [SHORT]), (MARK, [*TWO_LONG, SHORT]), (PIAS, [*TWO_LONG, SHORT]))
    )
    assert ahead < 1.3 * alone
    assert behind > 2 * alone


def test_pias_counts_anew_with_each_message_of_a_connection() -> None:
    """The second message goes over the connection of the first, which was long."""
    flows = [(0, 3, 2, 1_000_000), *((30 * MS, host, 2, LONG) for host in (0, 1)), (80 * MS, 3, 2, 8_000)]
    first, *_, last = durations(run(fabric(4, PIAS), flows=flows, carrier=DCTCP))
    assert first > 8 * last
    # In the lowest class it would wait for what is marked: 0.24 ms.
    assert last < 0.2 * MS / 1e9


def test_pooled_connections_carry_messages_side_by_side() -> None:
    pooled = Rival("tcp", (*DCTCP.settings, ("connections", "pooled")))
    flows = [(0, 0, 1, LONG // 10), (MS, 0, 1, 10_000)]
    for carrier, order in ((DCTCP, [0, 1]), (pooled, [1, 0])):
        result = run(fabric(2, MARK), flows=flows, carrier=carrier)
        ends = [end for _, end, *_ in result["flows"]]
        assert sorted(range(2), key=ends.__getitem__) == order
        assert result["background"]["connections"] == 1 + (carrier is pooled)


def test_no_dctcp_connection_falls_silent_after_many_marks() -> None:
    """47 flows into one port halve to windows of less than a segment, and what they send next must still go out."""
    flows = [(step * 80 * MS, worker, 47, 64_000) for step in range(4) for worker in range(47)]
    soon = Rival("tcp", (("congestion", "dctcp"), ("min_rto", MS // 5)))
    on = fabric(48, Queue("mark", (("threshold", 10_000),)), buffer=100_000)
    assert len(durations(run(on, flows=flows, carrier=soon, limit=1000 * MS))) == len(flows)


def test_dctcp_goes_on_where_links_lose_what_is_marked() -> None:
    """Duplicate ACKs of a window that was made smaller for marks end no run."""
    flows = [(0, host, 2, 1_500_000) for host in range(2)]
    on = fabric(3, Queue("mark", (("threshold", 15_000),)), loss=0.03)
    assert len(durations(run(on, flows=flows, carrier=DCTCP, limit=1000 * MS))) == 2
