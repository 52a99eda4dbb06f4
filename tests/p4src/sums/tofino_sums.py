# SPDX-License-Identifier: Apache-2.0
"""p4src/tna's profile for sums, with v1model's externs: slices of one size, over IPv4 alone, without UDP checksums."""

from dataclasses import replace

from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from scapy.packet import Raw

from gradlane import wire
from tests.p4src.packet_targets import InProcess, Sent, TnaInProcess
from tests.support.entries import multicast_mac
from tests.support.gradlane_packets import FAR, HOSTS

SLICE = wire.SUM_BYTES + wire.SUM_WORD  # bytes: header and lanes
# Of the datagrams that are as good over either version: addresses of IPv6, and their counterparts.
COUNTERPARTS = {host.address6: host.address for host in (*HOSTS, FAR)} | {"ff18::9": "239.1.0.9"}
# Events that v1model counts as two: a Tofino's counter counts a packet once.
BOTH = {9: (0, 1), 10: (0, 8)}


def fitted(frame: bytes) -> bytes:
    """A frame that fits: of a SUM of whole words the first word, over IPv4. Any other as it is."""
    packet = Ether(frame)
    if UDP not in packet or len(packet[UDP]) != packet[UDP].len or packet[UDP].dport != wire.UDP_PORT:
        return frame
    datagram = bytes(packet[UDP].payload)
    if len(datagram) < wire.HEADER_BYTES + SLICE:
        return frame
    header = wire.Header.unpack(datagram)
    words, rest = divmod(header.length - wire.SUM_BYTES, wire.SUM_WORD)
    whole = header.length == len(datagram) - wire.HEADER_BYTES and not rest and words <= wire.MAX_SUM_WORDS
    if not header.flags & wire.Flag.SUM or not whole or (words == 1 and IPv6 not in packet):
        return frame
    lanes = datagram[wire.HEADER_BYTES : wire.HEADER_BYTES + SLICE]
    cut = UDP(sport=packet[UDP].sport, dport=packet[UDP].dport) / Raw(replace(header, length=SLICE).pack() + lanes)
    if packet[UDP].chksum == 0:
        cut.chksum = 0
    if IPv6 in packet:
        outer = packet[IPv6]
        src, dst = (COUNTERPARTS.get(str(it)) for it in (outer.src, outer.dst))
        if src is None or dst is None:
            return frame
        mac = multicast_mac(dst) if packet.dst.startswith("33:33") else packet.dst
        return bytes(Ether(src=packet.src, dst=mac) / IP(src=src, dst=dst, ttl=outer.hlim, tos=outer.tc) / cut)
    outer = packet[IP]
    network = IP(src=outer.src, dst=outer.dst, ttl=outer.ttl, tos=outer.tos, id=outer.id, flags=outer.flags)
    return bytes(Ether(src=packet.src, dst=packet.dst) / network / cut)


class TofinoSums(TnaInProcess):
    """What is sent to it is cut to what fits; `as_it_is` sends anything."""

    name = "sums of tna on gradlane-switch"

    def process(self, port: int, *frames: bytes) -> list[Sent]:
        return super().process(port, *map(fitted, frames))

    def as_it_is(self, port: int, frame: bytes) -> list[Sent]:
        """What leaves."""
        return InProcess.process(self, port, frame)
