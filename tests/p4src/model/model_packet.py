# SPDX-License-Identifier: Apache-2.0
"""A frame as the model sees it: what it is, byte by byte, and what it is when it leaves."""

from gradlane import wire


def ones_complement(data: bytes) -> int:
    """RFC 1071's checksum of an even number of bytes."""
    total = sum(int.from_bytes(data[n : n + 2], "big") for n in range(0, len(data), 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def continued(checksum: int, *, added: bytes = b"", gone: bytes = b"") -> int:
    """A UDP checksum after words came and went (RFC 1624); 0 says that there is none, and no sum is it."""
    words = (checksum ^ 0xFFFF).to_bytes(2, "big") + added + bytes(octet ^ 0xFF for octet in gone)
    return checksum and (ones_complement(words) or 0xFFFF)


def timeless(frame: bytes) -> bytes:
    """A trace whose newest record is without depth and wait, and its UDP checksum as if they had always been 0."""
    at = 34 + 44 if frame[12:14] == b"\x08\x00" else 54 + 44
    changed = bytearray(frame)
    changed[at + 7 : at + 16] = bytes(9)
    udp = at - 44
    checksum = continued(int.from_bytes(frame[udp + 6 : udp + 8], "big"), gone=bytes(1) + frame[at + 7 : at + 16])
    changed[udp + 6 : udp + 8] = checksum.to_bytes(2, "big")
    return bytes(changed)


def checksum_is_right(header: bytes) -> bool:
    """Of an IPv4 header without options."""
    return ones_complement(header[:10] + header[12:]) == int.from_bytes(header[10:12], "big")


class View:
    """What a frame says. `ip` is 4 or 6 by its EtherType; nothing behind `truncated` is meaningful."""

    def __init__(self, frame: bytes) -> None:
        self.frame = frame
        self.truncated = self.neighbour_discovery = self.hidden = False
        self.has_gradlane = self.unknown_version = self.short_gradlane = False
        self.gradlane = wire.Header(kind=0, job=0, source=0, message=0, token=0)
        self.ip: int | None = None
        self.source = 0
        self.transport = self.ethertype = self.ttl = self.dscp = self.ecn = self.udp_length = 0
        self._ports = bytes(4)
        self.truncated = not self._ethernet()

    def _ethernet(self) -> bool:
        """Whether the frame is long enough, as for the rest."""
        if len(self.frame) < 14:
            return False
        self.destination_mac, self.source_mac = self.frame[:6].hex(":"), self.frame[6:12].hex(":")
        self.ethertype = int.from_bytes(self.frame[12:14], "big")
        self.hidden = self.ethertype in (0x8100, 0x88A8, 0x9100)
        if self.ethertype == 0x0800:
            return self._ipv4()
        return self.ethertype != 0x86DD or self._ipv6()

    def _ipv4(self) -> bool:
        header = self.frame[14:34]
        if len(header) < 20:
            return False
        self.ip, self.transport = 4, 34
        self.ip_version, self.header_words = header[0] >> 4, header[0] & 15
        self.dscp, self.ecn, self.ttl = header[1] >> 2, header[1] & 3, header[8]
        self.source = 0xFFFF << 32 | int.from_bytes(header[12:16], "big")
        self.destination = int.from_bytes(header[16:20], "big")
        self._named = header[12:20] + header[9:10]
        fragment = int.from_bytes(header[6:8], "big") & 0x3FFF
        self.hidden = header[0] == 0x45 and fragment != 0 and header[9] == 17
        return header[0] != 0x45 or fragment != 0 or self._next(header[9])

    def _ipv6(self) -> bool:
        header = self.frame[14:54]
        if len(header) < 40:
            return False
        self.ip, self.transport = 6, 54
        first = int.from_bytes(header[:4], "big")
        self.ip_version, self.dscp, self.ecn = first >> 28, first >> 22 & 63, first >> 20 & 3
        self.ttl, self._label = header[7], first & 0xFFFFF
        self.source, self.destination = (int.from_bytes(header[n : n + 16], "big") for n in (8, 24))
        self._named = header[8:40] + header[6:7]
        if self.ip_version != 6:
            return True
        self.hidden = header[6] in (0, 43, 44, 60)
        if header[6] == 58:
            self.neighbour_discovery = self.frame[54:55] in [bytes((kind,)) for kind in range(133, 138)]
            return len(self.frame) > 54
        return self._next(header[6])

    def _next(self, protocol: int) -> bool:
        rest = self.frame[self.transport :]
        if protocol not in (6, 17):
            return True
        if len(rest) < (4 if protocol == 6 else 8):
            return False
        self._ports = rest[:4]
        return protocol == 6 or rest[2:4] != wire.UDP_PORT.to_bytes(2, "big") or self._gradlane(rest)

    def _gradlane(self, rest: bytes) -> bool:
        self.udp_length = int.from_bytes(rest[4:6], "big")
        if self.udp_length < 44:
            self.short_gradlane = True
            return True
        if len(rest) < 9:
            return False
        if rest[8] >> 4 != wire.VERSION:
            self.unknown_version = True
            return True
        if len(rest) < 44:
            return False
        self.has_gradlane, self.gradlane = True, wire.Header.unpack(rest[8:44])
        return True

    def flow(self) -> bytes:
        """What names a flow, for the hash that chooses its way."""
        if self.ip == 4:
            return self._named + self._ports
        # The flow label has 20 bits: what follows is half a byte further on.
        return self._named + ((self._label << 32 | int.from_bytes(self._ports, "big")) << 4).to_bytes(7, "big")


class Packet:
    """A frame that is forwarded."""

    def __init__(self, frame: bytes, it: View) -> None:
        self._it = it
        self._frame = bytearray(frame)

    def set_macs(self, destination: str, source: str) -> None:
        """Both addresses anew."""
        self._frame[:12] = bytes.fromhex((destination + source).replace(":", ""))

    def set_ttl(self, value: int) -> None:
        """TTL or hop limit."""
        self._frame[22 if self._it.ip == 4 else 21] = value

    def leaving(self, tags: int, hop: bytes | None, trimmed: bool) -> bytes:
        """The frame with DSCP and ECN; with another record in front of a trace's (its first 7 bytes), or trimmed."""
        frame, at = bytearray(self._frame), self._it.transport
        if trimmed:
            del frame[at + 44 :]
            frame[at + 8] = wire.VERSION << 4 | 2
        if hop is not None:
            frame[at + 44 : at + 44] = hop + bytes(9)
            _add(frame, at + 8 + 26, 16)
        if trimmed or hop is not None:
            length = 44 if trimmed else int.from_bytes(frame[at + 4 : at + 6], "big") + 16
            frame[at + 4 : at + 6] = (length % 65536).to_bytes(2, "big")
            frame[at + 6 : at + 8] = self._udp_checksum(frame, hop).to_bytes(2, "big")
            where = 16 if self._it.ip == 4 else 18
            if trimmed:
                frame[where : where + 2] = (64 if self._it.ip == 4 else 44).to_bytes(2, "big")
            else:
                _add(frame, where, 16)
        if self._it.ip == 4:
            frame[15] = tags
            frame[24:26] = ones_complement(bytes(frame[14:24] + frame[26:34])).to_bytes(2, "big")
        elif self._it.ip == 6:
            frame[14:16] = (int.from_bytes(frame[14:16], "big") & 0xF00F | tags << 4).to_bytes(2, "big")
        return bytes(frame)

    def _udp_checksum(self, frame: bytes, hop: bytes | None) -> int:
        """That of a datagram as it leaves, of which all is right but this: a trace's, else that of a trimmed slice."""
        at = self._it.transport
        if hop is not None:
            # Three lengths have grown by 16.
            return continued(int.from_bytes(frame[at + 6 : at + 8], "big"), added=hop + bytes(10) + b"\x30")
        if self._it.ip == 4:
            return 0
        pseudo = frame[22:54] + bytes((0, 44, 0, 17))
        return ones_complement(pseudo + frame[at : at + 6] + frame[at + 8 : at + 44]) or 0xFFFF


def _add(frame: bytearray, at: int, amount: int) -> None:
    value = (int.from_bytes(frame[at : at + 2], "big") + amount) % 65536
    frame[at : at + 2] = value.to_bytes(2, "big")
