# SPDX-License-Identifier: Apache-2.0
"""Trimming in the simulator: no header is lost, just what was cut is repaired, and pulls come as fast as the link."""

from gradlane_sim.carriers import Rival
from tests.sim.rivals import MS, TRIM, TRIMMING, durations, fabric, port, run

SENDERS, SIZE, WINDOW = 8, 400_000, 12
PACKETS = -(-SIZE // (1500 - 44))
INCAST = [(0, host, SENDERS, SIZE) for host in range(SENDERS)]


def test_what_was_cut_is_repaired_and_nothing_else() -> None:
    result = run(fabric(SENDERS + 1, TRIM, 100_000), flows=INCAST, carrier=TRIMMING)
    durations(result)
    told = result["background"]
    assert told["trimmed"] > 0
    assert told["repeated"] == told["trimmed"]
    assert told["packets"] == SENDERS * PACKETS + told["trimmed"]
    assert told["timeouts"] == 0
    assert all(link["dropped"] == 0 for link in result["links"])


def test_pulls_come_as_fast_as_the_receivers_link_and_no_faster() -> None:
    """After the first windows packets come one by one: hardly any has to be cut."""
    result = run(fabric(SENDERS + 1, TRIM, 100_000), flows=INCAST, carrier=TRIMMING)
    ends = max(durations(result))
    assert result["background"]["trimmed"] < SENDERS * WINDOW
    assert ends < 1.1 * SENDERS * PACKETS * 1514 * 8 / 1e9


def test_flows_to_one_receiver_share_its_pulls() -> None:
    times = durations(run(fabric(SENDERS + 1, TRIM, 100_000), flows=INCAST, carrier=TRIMMING))
    assert min(times) > 0.8 * max(times)


def test_headers_that_find_no_room_are_made_good() -> None:
    """Seven frames leave no room for one."""
    result = run(fabric(SENDERS + 1, TRIM, 7 * 1514 + 50), flows=INCAST, carrier=TRIMMING)
    durations(result)
    assert port(result, SENDERS + 1, SENDERS)["dropped"] > 0


def test_a_flow_of_one_packet_needs_no_pull() -> None:
    (time,) = durations(run(fabric(2, TRIM, delay=5_000), flows=[(0, 0, 1, 1000)], carrier=TRIMMING))
    assert time < 0.05 * MS / 1e9


def test_larger_packets() -> None:
    jumbo = Rival("trimming", (*TRIMMING.settings, ("mtu", 9000)))
    told = run(fabric(2, TRIM, 100_000), flows=[(0, 0, 1, SIZE)], carrier=jumbo)["background"]
    assert told["packets"] - told["repeated"] == -(-SIZE // (9000 - 44))
