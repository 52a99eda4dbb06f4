# SPDX-License-Identifier: Apache-2.0
"""What no transport can do better than, flow by flow: the yardsticks of pFabric's paper (SIGCOMM 2013)."""

import functools
import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gradlane_sim.errors import SpecificationError
from gradlane_sim.specification import FRAMING, SECOND, Fabric, Flow

_PACKET = 1500
_PAYLOAD = 1456
# The simulator's links deliver a frame when its IPv4 packet and two bytes are there; what is left of it is a gap.
_GAP = FRAMING - 2


@dataclass
class _Active:
    index: int
    a: int
    b: int
    left: float  # s, at full rate


def alone(fabric: Fabric, flow: Flow) -> float:
    """Seconds of a flow that is the only one, at least: its packets on the sender's link, and the way of the last two
    from there, apart until the receiver's link, as each packet may take another."""
    _, a, b, size = flow
    header = _PACKET - _PAYLOAD + FRAMING
    packets = -(-size // _PAYLOAD)
    last = size - (packets - 1) * _PAYLOAD + header
    sent = (size + packets * header) * 8
    (rate, delay), *core, (last_rate, last_delay) = _way(fabric, a, b)
    arrivals: list[tuple[float, float]] = []  # at the receiver's link, with the time that each takes there
    for left, frame in ((sent / rate, last), ((sent - 8 * last) / rate, _PACKET + FRAMING))[: min(packets, 2)]:
        way = sum((frame - _GAP) * 8 / it + its_delay / SECOND for it, its_delay in core)
        arrivals.append((left - _GAP * 8 / rate + delay / SECOND + way, frame * 8 / last_rate))
    over = 0.0
    for arrival, takes in sorted(arrivals):
        over = max(over, arrival) + takes
    return over - _GAP * 8 / last_rate + last_delay / SECOND


def shortest_first(fabric: Fabric, flows: Sequence[Flow]) -> list[float]:
    """Seconds of each flow if a central scheduler always let those with least left have the links of their hosts,
    greedily, at no cost (Algorithm 1 of the paper): between hosts there is no bottleneck."""
    took = [0.0] * len(flows)
    active: list[_Active] = []
    now, next_flow = 0.0, 0
    while active or next_flow < len(flows):
        active.sort(key=lambda it: it.left)
        running = list(_matched(active))
        arrival = flows[next_flow][0] / SECOND if next_flow < len(flows) else float("inf")
        until = min(arrival, now + running[0].left) if running else arrival
        for it in running:
            it.left -= until - now
        now = until
        for it in [it for it in running if it.left <= 1e-12]:
            active.remove(it)
            took[it.index] += now - flows[it.index][0] / SECOND
        while next_flow < len(flows) and flows[next_flow][0] / SECOND <= now:
            _, a, b, size = flows[next_flow]
            full = (size + -(-size // _PAYLOAD) * (_PACKET - _PAYLOAD + FRAMING)) * 8 / fabric.links[a].rate
            took[next_flow] = alone(fabric, flows[next_flow]) - full
            active.append(_Active(next_flow, a, b, full))
            next_flow += 1
    return took


def _matched(by_left: Iterable[_Active]) -> Iterable[_Active]:
    senders: set[int] = set()
    receivers: set[int] = set()
    for it in by_left:
        if it.a not in senders and it.b not in receivers:
            senders.add(it.a)
            receivers.add(it.b)
            yield it


@functools.lru_cache(maxsize=1 << 16)
def _way(fabric: Fabric, a: int, b: int) -> tuple[tuple[int, int], ...]:
    """Rate and delay of each link of the way from host to host that a full packet takes least time on (Dijkstra)."""
    links = _links(fabric)
    waiting: list[tuple[float, int, tuple[tuple[int, int], ...]]] = [(0.0, a, ())]
    seen: set[int] = set()
    while waiting:
        time, node, way = heapq.heappop(waiting)
        if node == b:
            return way
        if node in seen:
            continue
        seen.add(node)
        for peer, rate, delay in links[node]:
            takes = (_PACKET + FRAMING) * 8 / rate + delay / SECOND
            heapq.heappush(waiting, (time + takes, peer, (*way, (rate, delay))))
    raise SpecificationError(f"hosts {a} and {b} are not connected")


@functools.lru_cache(maxsize=4)
def _links(fabric: Fabric) -> list[list[tuple[int, int, int]]]:
    """By node: peer, rate and delay of its links."""
    found: list[list[tuple[int, int, int]]] = [[] for _ in range(fabric.nodes)]
    for it in fabric.links:
        found[it.a].append((it.b, it.rate, it.delay))
        found[it.b].append((it.a, it.rate, it.delay))
    return found
