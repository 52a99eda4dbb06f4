# SPDX-License-Identifier: Apache-2.0
"""What Gradlane is compared with, each on a fabric set as its paper asks for, and by what a sweep found best."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from gradlane_sim.carriers import Rival
from gradlane_sim.specification import SECOND, Fabric, Queue

_FRAME = 1514
# pFabric's and PIAS's papers and DCTCP's guideline are for 10 Gbit/s; what they state grows with the rate.
_STATED_RATE = 10_000_000_000
# DCTCP (SIGCOMM 2010) marks above 65 packets.
_MARK_FRAMES = 65
# PIAS (NSDI 2015) has eight classes; those of its web-search workload at a load of 0.8, in packets of 1,460 bytes.
_PIAS_PACKETS = (759, 1132, 1456, 1737, 2010, 2199, 2325)
# NDP (SIGCOMM 2017) keeps eight packets, and trims what finds them there.
_TRIM_FRAMES = 8
_MIN_RTO = 1_000_000
# pFabric's buffer is two bandwidth-delay products, its timeout about three round trips.
_PFABRIC_BUFFERS, _PFABRIC_ROUND_TRIPS = 2, 3


@dataclass(frozen=True)
class Setting:
    """The fabric with the queues that a rival asks for, and the rival."""

    fabric: Fabric
    carrier: Rival


def round_trip(fabric: Fabric) -> int:
    """ns, of a full frame and the answer to it, between hosts that are furthest apart, where nothing else is sent."""
    host = fabric.links[0]
    links = 2 * len(fabric.tiers)
    return round(2 * links * host.delay + links * _FRAME * 8 * SECOND / host.rate)


def product(fabric: Fabric) -> int:
    """Bytes that fill a host's link for a round trip."""
    return max(_FRAME, round(fabric.links[0].rate * round_trip(fabric) / (8 * SECOND)))


def mark_threshold(fabric: Fabric) -> int:
    """Bytes above which a port marks: DCTCP's, but no more than half of the buffer."""
    host = fabric.links[0]
    return min(round(_MARK_FRAMES * _FRAME * max(1.0, host.rate / _STATED_RATE)), host.buffer // 2)


def _tcp(congestion: str, connections: str = "one") -> Rival:
    return Rival(
        "tcp",
        (("congestion", congestion), ("min_rto", _MIN_RTO), ("initial_window", 10), ("connections", connections)),
    )


def dctcp(fabric: Fabric) -> Setting:
    return Setting(replace(fabric, queue=Queue("mark", (("threshold", mark_threshold(fabric)),))), _tcp("dctcp"))


def cubic(fabric: Fabric) -> Setting:
    """Ports drop what finds no room, and mark nothing."""
    never = 1 << 40
    return Setting(replace(fabric, queue=Queue("mark", (("threshold", never),))), _tcp("cubic"))


def pias(fabric: Fabric) -> Setting:
    thresholds = tuple(1460 * packets for packets in _PIAS_PACKETS)
    queue = Queue("pias", (("thresholds", thresholds), ("mark", mark_threshold(fabric))))
    return Setting(replace(fabric, queue=queue), _tcp("dctcp"))


def pfabric(fabric: Fabric) -> Setting:
    """Its ports have small buffers, whatever the fabric's are: two bandwidth-delay products."""
    buffer = _PFABRIC_BUFFERS * product(fabric)
    links = tuple(replace(link, buffer=max(3 * _FRAME, buffer)) for link in fabric.links)
    rto = _PFABRIC_ROUND_TRIPS * round_trip(fabric)
    carrier = Rival("pfabric", (("window", product(fabric)), ("rto", rto)))
    return Setting(replace(fabric, links=links, queue=Queue("pfabric")), carrier)


def trimming(fabric: Fabric) -> Setting:
    queue = Queue("trim", (("threshold", _TRIM_FRAMES * _FRAME),))
    carrier = Rival("trimming", (("window", product(fabric)), ("rto", _MIN_RTO)))
    return Setting(replace(fabric, queue=queue), carrier)


# name -> (what it is, how it is set)
RIVALS: dict[str, tuple[str, Callable[[Fabric], Setting]]] = {
    "dctcp": ("DCTCP: senders slow down by how much of what they send is marked", dctcp),
    "cubic": ("TCP Cubic over ports that drop what finds no room", cubic),
    "pias": ("DCTCP, and messages lose priority with what they have sent", pias),
    "pfabric": ("pFabric: what has least left goes first, in ports of two bandwidth-delay products", pfabric),
    "trimming": ("Trimming and selective repair, as NDP and Ultra Ethernet have it", trimming),
}
