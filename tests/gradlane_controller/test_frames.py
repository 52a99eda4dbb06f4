# SPDX-License-Identifier: Apache-2.0
"""What links are announced with is LLDP, and nothing else is taken for it."""

from scapy.contrib.lldp import LLDPDU, LLDPDUChassisID, LLDPDUPortID, LLDPDUTimeToLive
from scapy.layers.l2 import Ether

from gradlane_controller.network.frames import make_lldp, parse_lldp


def test_what_is_sent_is_lldp() -> None:
    frame = make_lldp(bytes.fromhex("020100010005"), "leaf1", 5, 2, b"seal")
    assert parse_lldp(frame) == ("leaf1", 5, b"seal")
    packet = Ether(frame)
    assert (packet.dst, packet.src, packet.type) == ("01:80:c2:00:00:0e", "02:01:00:01:00:05", 0x88CC)
    assert LLDPDU in packet
    assert (packet[LLDPDUChassisID].subtype, packet[LLDPDUChassisID].id) == (7, b"leaf1")
    assert (packet[LLDPDUPortID].subtype, packet[LLDPDUPortID].id) == (7, b"5")
    assert packet[LLDPDUTimeToLive].ttl == 2


def test_what_is_cut_short_or_nothing_that_a_controller_says_is_nothing() -> None:
    seal = bytes(range(1, 17))
    frame = make_lldp(bytes(6), "leaf1", 5, 2, seal)
    for end in range(frame.index(seal) + len(seal)):
        assert parse_lldp(frame[:end]) is None
    for before, after in ((b"leaf1", b"leaf\xe9"), (b"\x075", b"\x07x"), (b"\x075", b"\x07 ")):
        assert frame.count(before) == 1
        assert parse_lldp(frame.replace(before, after)) is None
