# SPDX-License-Identifier: Apache-2.0
"""Answers to the packets that a switch sends to the controller.

Addresses are resolved for every host, as the switches flood nothing: hosts of one subnet at one switch get each other's
Ethernet address and are bridged, all others get that of their gateway and are routed.
"""

from ipaddress import IPv4Address, IPv6Address

from gradlane_controller.data_plane import Reason
from gradlane_controller.network import frames
from gradlane_controller.network.fabric import Fabric, Port

Address = IPv4Address | IPv6Address


class Answers:
    """What one switch of a fabric says."""

    def __init__(self, fabric: Fabric, switch: str) -> None:
        self._switch = switch
        self._ports = {port.number: port for port in fabric.ports_at(switch)}
        self._hosts: dict[Address, Port] = {address: port for port in fabric.ports for address in port.addresses}

    def answer(self, reason: int, ingress_port: int, frame: bytes) -> bytes | None:
        """The frame to be sent by the port where this one came from; None if there is no answer."""
        port = self._ports.get(ingress_port)
        if reason == Reason.PUNTED_ARP:
            return self._answer_arp(port, frame)
        packet = frames.parse_packet(frame)
        if packet is None:
            return None
        if reason == Reason.PUNTED_ND:
            return self._answer_solicitation(port, packet)
        if reason == Reason.PUNTED_LOCAL:
            return frames.make_echo_reply(packet)
        if reason == Reason.PUNTED_TTL:
            own = self._own_address(port, packet.source.version)
            return None if own is None else frames.make_time_exceeded(packet, own)
        return None

    def _answer_arp(self, port: Port | None, frame: bytes) -> bytes | None:
        question = frames.parse_arp_request(frame)
        mac = self._mac_of(port, question.target) if question and port else None
        return frames.make_arp_reply(question, mac) if question and mac else None

    def _answer_solicitation(self, port: Port | None, packet: frames.Packet) -> bytes | None:
        question = frames.parse_solicitation(packet)
        mac = self._mac_of(port, question.target) if question and port else None
        if question is None or mac is None or port is None:
            return None
        return frames.make_advertisement(question, mac, router=question.target == port.gateway6)

    def _mac_of(self, asker: Port, target: Address) -> bytes | None:
        """Not of the asker's own address: it asks for that to see whether nobody else has it (RFC 5227, 4862)."""
        host = self._hosts.get(target)
        if target in (asker.gateway, asker.gateway6):
            mac = asker.mac
        elif host is None or host is asker:
            return None
        else:
            key = "prefix" if target.version == 4 else "prefix6"
            bridged = host.switch == self._switch and getattr(host, key) == getattr(asker, key)
            mac = host.host_mac if bridged else asker.mac
        return bytes.fromhex(mac.replace(":", ""))

    def _own_address(self, port: Port | None, version: int) -> Address | None:
        """The gateway of that port, else any of the switch; a switch without hosts has none."""
        for place in (*([port] if port else ()), *self._ports.values()):
            address = place.gateway if version == 4 else place.gateway6
            if address is not None:
                return address
        return None
