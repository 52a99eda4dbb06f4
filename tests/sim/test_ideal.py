# SPDX-License-Identifier: Apache-2.0
"""pFabric comes as near to the ideal of its paper as that says of it."""

from dataclasses import replace
from statistics import fmean

import pytest

from gradlane_sim.background import WEB_SEARCH, poisson
from gradlane_sim.carriers import Rival
from gradlane_sim.errors import SpecificationError
from gradlane_sim.fabrics import fat_tree, leaf_spine, single
from gradlane_sim.ideal import alone, shortest_first
from tests.sim.rivals import MS, SMALLEST_FIRST, durations, run

GBIT = 1_000_000_000
# The paper's: a window of a bandwidth-delay product, buffers of two, a timeout of three round trips.
PAPER = Rival("pfabric", (("window", 18_000), ("most_window", 22_500), ("rto", 45_000)))
PAPER_BUFFER = 36_864


@pytest.mark.parametrize("size", [1, 1456, 1457, 100_000])
@pytest.mark.parametrize("to", [1, 2])
def test_a_flow_alone_takes_little_more_than_its_packets_need(size: int, to: int) -> None:
    """`to`: at the same leaf, or at the other."""
    on = replace(leaf_spine(2, 2, 2, 10 * GBIT, 40 * GBIT, PAPER_BUFFER, 1000), queue=SMALLEST_FIRST)
    carrier = Rival("pfabric", (("window", 36_000), ("rto", MS)))
    flow = (0, 0, to, size)
    (took,) = durations(run(on, flows=[flow], carrier=carrier))
    # On the same way, a full packet of the core makes the last wait.
    assert -4e-9 - 1e-3 * took < took - alone(on, flow) < 1514 * 8 / 40e9


# Of a fat tree of 16 hosts, from host 0: to its neighbour, its pod, and another pod, over 2, 4 and 6 links.
TIERS = {1: 2, 2: 4, 15: 6}


@pytest.mark.parametrize("size", [1, 1457, 100_000])
@pytest.mark.parametrize("to", TIERS)
def test_over_three_tiers_a_flow_alone_takes_little_more_than_its_packets_need(size: int, to: int) -> None:
    on = replace(fat_tree(4, 10 * GBIT, PAPER_BUFFER, 1000), queue=SMALLEST_FIRST)
    flow = (0, 0, to, size)
    (took,) = durations(run(on, flows=[flow], carrier=Rival("pfabric", (("window", 36_000), ("rto", MS)))))
    # At each tier a packet may find another one on its way.
    assert -TIERS[to] * 1e-9 - 1e-3 * took < took - alone(on, flow) < TIERS[to] * 1514 * 8 / 10e9


def test_over_three_tiers_a_packet_is_on_every_link_of_the_fastest_way() -> None:
    on = fat_tree(4, 10 * GBIT, PAPER_BUFFER, 1000)
    slow = on.with_link(0, 16, rate=GBIT, delay=5000).with_link(16, 24, rate=GBIT).with_link(24, 32, rate=GBIT)
    # 59 bytes with its headers, of which the gap's 12 follow when it is there.
    link = (59 - 12) * 8 / 10e9 + 1e-6
    first = (59 - 12) * 8 / 1e9 + 5e-6
    for to, links in TIERS.items():
        assert alone(on, (0, 0, to, 1)) == pytest.approx(links * link, rel=1e-9)
        assert alone(slow, (0, 0, to, 1)) == pytest.approx((links - 1) * link + first, rel=1e-9)
    with pytest.raises(SpecificationError, match="hosts 0 and 3 are not connected"):
        alone(replace(on, links=on.links[:16]), (0, 0, 3, 1))


def test_the_ideal_serves_what_has_least_left() -> None:
    on = single(4, GBIT, PAPER_BUFFER, 0)
    second = 125_000_000 * 1456 // 1514
    flows = [(0, 0, 2, second), (0, 3, 1, second), (0, 1, 2, second // 4), (GBIT // 2, 3, 2, second * 6 // 10)]
    # The third, then the first has host 2; host 3 sends the second first, and waits for the first then.
    assert shortest_first(on, flows) == pytest.approx([1.25, 1.0, 0.25, 1.35], abs=0.001)


def test_flows_of_web_search_take_little_more_than_ideal() -> None:
    on = replace(single(8, 10 * GBIT, PAPER_BUFFER, 2_700), queue=SMALLEST_FIRST)
    flows = poisson(WEB_SEARCH, 0.6, 8, 10 * GBIT, 20 * MS, 3)
    assert len(flows) > 50
    least = [alone(on, flow) for flow in flows]
    took = durations(run(on, flows=flows, carrier=PAPER))
    # Times are whole ns, packet by packet.
    assert all(it > 0.995 * best for it, best in zip(took, least, strict=True))
    found, ideal = (
        fmean(it / best for it, best in zip(times, least, strict=True)) for times in (took, shortest_first(on, flows))
    )
    assert ideal > 1.05
    assert found < 1.15 * ideal
