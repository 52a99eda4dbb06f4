# SPDX-License-Identifier: Apache-2.0
"""What Gradlane is compared with, each on a fabric set as its paper asks for, and by what a sweep found best."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from gradlane_sim.carriers import Rival
from gradlane_sim.specification import SECOND, Fabric, Queue

_FRAME = 1514
# pFabric's and PIAS's papers and DCTCP's guideline are for 10 Gbit/s; what they state grows with the rate.
_STATED_RATE = 10_000_000_000
MILLISECOND = 1_000_000
# What the sweep found best (docs/simulation.md). DCTCP (SIGCOMM 2010) marks above 65 packets; NDP (SIGCOMM 2017)
# keeps eight packets, and trims what finds them there; pFabric has ports of two bandwidth-delay products and timeouts
# of three round trips.
MIN_RTO, MARK_FRAMES = MILLISECOND, 65
CUBIC_MIN_RTO = MILLISECOND // 5
TRIMMING_RTO, TRIM_FRAMES = 20 * MILLISECOND, 32
PFABRIC_ROUND_TRIPS, PFABRIC_BUFFERS = 10, 4
# PIAS (NSDI 2015) has eight classes; those of its web-search workload at a load of 0.9, in packets of 1,460 bytes.
_PIAS_PACKETS = (759, 1132, 1456, 1737, 2010, 2199, 2325)


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


def mark_threshold(fabric: Fabric, frames: int = MARK_FRAMES) -> int:
    """Bytes above which a port marks: DCTCP's, but no more than half of the buffer."""
    host = fabric.links[0]
    return min(round(frames * _FRAME * max(1.0, host.rate / _STATED_RATE)), host.buffer // 2)


def _tcp(congestion: str, min_rto: int) -> Rival:
    settings = (("congestion", congestion), ("min_rto", min_rto), ("initial_window", 10), ("connections", "one"))
    return Rival("tcp", settings)


def dctcp(fabric: Fabric, *, min_rto: int = MIN_RTO, frames: int = MARK_FRAMES) -> Setting:
    queue = Queue("mark", (("threshold", mark_threshold(fabric, frames)),))
    return Setting(replace(fabric, queue=queue), _tcp("dctcp", min_rto))


def cubic(fabric: Fabric, *, min_rto: int = CUBIC_MIN_RTO) -> Setting:
    """Ports drop what finds no room, and mark nothing."""
    never = 1 << 40
    return Setting(replace(fabric, queue=Queue("mark", (("threshold", never),))), _tcp("cubic", min_rto))


def pias(fabric: Fabric, *, min_rto: int = MIN_RTO) -> Setting:
    thresholds = tuple(1460 * packets for packets in _PIAS_PACKETS)
    queue = Queue("pias", (("thresholds", thresholds), ("mark", mark_threshold(fabric))))
    return Setting(replace(fabric, queue=queue), _tcp("dctcp", min_rto))


def pfabric(fabric: Fabric, *, round_trips: float = PFABRIC_ROUND_TRIPS, buffers: float = PFABRIC_BUFFERS) -> Setting:
    """Its ports have small buffers, whatever the fabric's are: some bandwidth-delay products."""
    buffer = max(3 * _FRAME, round(buffers * product(fabric)))
    links = tuple(replace(link, buffer=buffer) for link in fabric.links)
    carrier = Rival("pfabric", (("window", product(fabric)), ("rto", round(round_trips * round_trip(fabric)))))
    return Setting(replace(fabric, links=links, queue=Queue("pfabric")), carrier)


def trimming(fabric: Fabric, *, rto: int = TRIMMING_RTO, frames: int = TRIM_FRAMES) -> Setting:
    queue = Queue("trim", (("threshold", frames * _FRAME),))
    return Setting(replace(fabric, queue=queue), Rival("trimming", (("window", product(fabric)), ("rto", rto))))


# name -> (what it is, how it is set)
RIVALS: dict[str, tuple[str, Callable[[Fabric], Setting]]] = {
    "dctcp": ("DCTCP: senders slow down by how much of what they send is marked", dctcp),
    "cubic": ("TCP Cubic over ports that drop what finds no room", cubic),
    "pias": ("DCTCP, and messages lose priority with what they have sent", pias),
    "pfabric": ("pFabric: what has least left goes first, in ports of four bandwidth-delay products", pfabric),
    "trimming": ("Trimming and selective repair, as NDP and Ultra Ethernet have it", trimming),
}


# By scenario, those of the sweep that a rival has there, as its own take over 5 % longer. What was not swept has those
# of the scenario that is most like it: other models ResNet-50's, loads and losses those of 0.4 and 1 %, by racks those
# of 1 MB.
_DCTCP, _CUBIC, _TRIMMING = {"dctcp": "dctcp-200us-65"}, {"cubic": "cubic-1000us"}, {"trimming": "trimming-1ms-32"}
BETTER: dict[str, dict[str, str]] = {
    **dict.fromkeys(("direct-32", "growth-32", "oversubscribed-1"), _DCTCP),
    **dict.fromkeys(("deep-4", "fat-tree-128", "jobs-2", "jobs-4"), _TRIMMING),
    **dict.fromkeys(("racks-grid-4", "racks-4MB-32-grid-4", "racks-1MB-144-grid-4"), _TRIMMING),
    **dict.fromkeys(("jobs-grid-2", "jobs-grid-4"), _TRIMMING),
    **dict.fromkeys(("oversubscribed-4", "slow-link"), _CUBIC | _TRIMMING),
    **dict.fromkeys(("racks-4MB-32-direct-4", "racks-1MB-144-direct-4"), _CUBIC | _TRIMMING),
    **dict.fromkeys(("resnet50", "vgg16", "bert-large", "gpt2-xl"), _DCTCP | _TRIMMING),
    **dict.fromkeys(("oversubscribed-2", "racks-4MB-32-direct-2", "dying-spine"), _DCTCP | _TRIMMING),
    **{f"loss-{loss:g}": _DCTCP | _TRIMMING for loss in (0.0001, 0.001, 0.01, 0.1)},
    **{f"{flows}-{load}": _CUBIC for flows in ("web-search", "data-mining") for load in (0.2, 0.4, 0.6, 0.8)},
    "incast-144-100G": {"trimming": "trimming-5ms-32"},
}


def sweep() -> dict[str, tuple[str, Callable[[Fabric], Setting]]]:
    """The settings among which the rivals' were chosen."""
    found: dict[str, tuple[str, Callable[[Fabric], Setting]]] = {}
    for rto in (200, 1000, 5000):
        for frames in (20, 65):
            make = partial(dctcp, min_rto=rto * 1000, frames=frames)
            found[f"dctcp-{rto}us-{frames}"] = (f"DCTCP: timeouts from {rto} µs, marks above {frames} frames", make)
        found[f"pias-{rto}us"] = (f"PIAS: timeouts from {rto} µs", partial(pias, min_rto=rto * 1000))
        found[f"cubic-{rto}us"] = (f"Cubic: timeouts from {rto} µs", partial(cubic, min_rto=rto * 1000))
    for times in (3, 10, 30):
        for buffers in (2, 4):
            make = partial(pfabric, round_trips=times, buffers=buffers)
            summary = f"pFabric: timeouts of {times} round trips, ports of {buffers} products"
            found[f"pfabric-{times}-{buffers}"] = (summary, make)
    for rto in (1, 5, 20):
        for frames in (8, 32):
            make = partial(trimming, rto=rto * MILLISECOND, frames=frames)
            found[f"trimming-{rto}ms-{frames}"] = (f"Trimming above {frames} frames, timeouts of {rto} ms", make)
    return found
