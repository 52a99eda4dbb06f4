# SPDX-License-Identifier: Apache-2.0
"""pFabric in the simulator: what has least left goes first, what has most left gives way, and nothing starves."""

from gradlane_sim.carriers import Rival
from tests.sim.rivals import MS, PFABRIC, SMALLEST_FIRST, durations, fabric, port, run

BUFFER = 36_000
LONG = 10_000_000


def test_a_short_flow_preempts_long_ones() -> None:
    short = (20 * MS, 3, 2, 30_000)
    long = [(0, 0, 2, LONG), (0, 1, 2, LONG)]
    (alone,) = durations(run(fabric(4, SMALLEST_FIRST, BUFFER), flows=[short], carrier=PFABRIC))
    result = run(fabric(4, SMALLEST_FIRST, BUFFER), flows=[*long, short], carrier=PFABRIC)
    # A packet that has begun goes on.
    assert durations(result)[-1] < alone + 2 * 1514 * 8 / 1e9
    assert port(result, 4, 2)["dropped"] > 0


def test_the_flow_with_least_left_is_served_to_its_end_first() -> None:
    """Processor sharing would end both at about the same time."""
    result = run(fabric(3, SMALLEST_FIRST, BUFFER), flows=[(0, 0, 2, LONG), (0, 1, 2, LONG // 2)], carrier=PFABRIC)
    longer, shorter = durations(result)
    ideal = LONG / 2 * 8 / 1e9
    assert shorter < 1.1 * ideal
    assert longer < 1.1 * 3 * ideal


def test_of_a_flow_the_earliest_packet_goes_first() -> None:
    """The last has least left: if it went first, the earliest would wait for its timeout."""
    slow = fabric(2, SMALLEST_FIRST, BUFFER).with_link(1, 2, rate=100_000_000)
    carrier = Rival("pfabric", (("window", 18_000), ("rto", 3 * MS)))
    result = run(slow, flows=[(0, 0, 1, 1_000_000)], carrier=carrier)
    durations(result)
    assert result["background"]["timeouts"] == 0


def test_a_starved_flow_only_probes() -> None:
    """While the other flow has the link, full packets of the longer one would only be dropped."""
    result = run(fabric(3, SMALLEST_FIRST, 18_000), flows=[(0, 0, 2, LONG), (0, 1, 2, LONG // 2)], carrier=PFABRIC)
    durations(result)
    assert result["background"]["probes"] > 20
    assert result["background"]["timeouts"] < 10
