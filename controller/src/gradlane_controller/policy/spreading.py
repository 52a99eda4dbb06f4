# SPDX-License-Identifier: Apache-2.0
"""By which bits of its number a packet has already been spread when it enters a switch.

Every switch has the same number for a packet (of its flow, for slices counted on), and chooses by the number modulo the
size of its group. What it sends to the next switch therefore has the lowest bits in common, and would all leave that
one by the same port. So the next switch shifts these bits out.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache

from gradlane_controller.network.fabric import LinkPort
from gradlane_controller.network.topology import Topology

NUMBER_BITS = 16
LEFT_BITS = 4  # of the number, which the last of many switches has at least
SPARE_BITS = 2
"""A choice among a number that is no power of two depends on all bits a little: on those beyond these by less than a
quarter."""


def weights(ports: Sequence[LinkPort]) -> list[int]:
    """How often each is a member of their group: in proportion to the rates, in whole multiples of the smallest."""
    smallest = min((port.rate for port in ports), default=1)
    return [port.rate // smallest for port in ports]


@lru_cache(maxsize=4)
def chosen_bits(topology: Topology) -> Mapping[tuple[str, int], int]:
    """By switch and port: the bits by which all that enters there may have been spread, at most 12.

    That no two switches of a path share a bit holds where every path goes up and then down, as in trees of any number
    of tiers, and as long as the bits are enough.
    """
    entering: dict[tuple[str, int], int] = {}
    for destination in topology.with_hosts:
        used: dict[str, int] = {}
        for switch in topology.towards(destination):
            ports = topology.next_ports(switch, destination)
            bits = min(used.get(switch, 0) + _bits(sum(weights(ports))), NUMBER_BITS - LEFT_BITS)
            for port in ports:
                end = (port.peer, port.peer_number)
                entering[end] = max(entering.get(end, 0), bits)
                used[port.peer] = max(used.get(port.peer, 0), bits)
    return entering


def _bits(members: int) -> int:
    """Bits that a choice among so many takes."""
    bits = (members - 1).bit_length()
    return bits if members == 1 << bits else bits + SPARE_BITS
