# SPDX-License-Identifier: Apache-2.0
"""A switch that sums, as a process: the model of sum_switch.py at the ports of a bridge, which carries all else.

    python -m tests.support.sum_relay GROUP SLOTS EPOCH LOSS KIND PORT...   inside the bridge's namespace

KIND is "whole" or "tofino", which takes slices of one word alone, and whose sums have no UDP checksum (docs/tofino.md).
Worker k is behind the k-th PORT; of the first one's contributions it loses LOSS of all, at random. A bridge floods:
contributions come to the other workers, too, as by no switch.
"""

import contextlib
import os
import random
import select
import socket
import subprocess
import sys
from collections.abc import Iterator
from ipaddress import IPv4Address

from gradlane import wire
from tests.support.lan import Lan
from tests.support.sum_switch import Contributor, SumSwitch

OWN = IPv4Address("10.77.0.250")  # the switch's: a host takes nothing that comes from its own address
_ETHERTYPE_ALL, _OUTGOING = 3, 4
_IP, _UDP = 14, 14 + 20  # where these headers begin
_PAYLOAD = _UDP + 8
ONE_WORD = wire.SUM_BYTES + wire.SUM_WORD


def checksum(data: bytes) -> int:
    """Of the Internet: one's complement, 16 bits."""
    total = sum(int.from_bytes(data[k : k + 2].ljust(2, b"\0"), "big") for k in range(0, len(data), 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


class OneWord(SumSwitch):
    """Slices have one word."""

    def well_formed(self, datagram: bytes, *, fabric: bool = False) -> bool:
        return super().well_formed(datagram, fabric=fabric) and len(datagram) == wire.HEADER_BYTES + ONE_WORD


def result_frame(frame: bytes, datagram: bytes, *, checked: bool) -> bytes:
    """As a contribution's frame, with the result in the place of the contribution. `checked`: with a UDP checksum."""
    head = bytearray(frame[:_PAYLOAD])
    head[_IP + 12 : _IP + 16] = OWN.packed
    head[_IP + 10 : _IP + 12] = bytes(2)
    head[_IP + 10 : _IP + 12] = checksum(bytes(head[_IP:_UDP])).to_bytes(2, "big")
    head[_UDP + 6 : _UDP + 8] = bytes(2)
    if not checked:
        return bytes(head) + datagram
    pseudo = bytes(head[_IP + 12 : _IP + 20]) + bytes([0, 17]) + head[_UDP + 4 : _UDP + 6]
    head[_UDP + 6 : _UDP + 8] = (checksum(pseudo + bytes(head[_UDP:]) + datagram) or 0xFFFF).to_bytes(2, "big")
    return bytes(head) + datagram


def is_contribution(frame: bytes, group: IPv4Address) -> bool:
    """Whether the frame is of the kind that a switch sums; the bytes between the headers and its end are padding."""
    return (
        len(frame) >= _PAYLOAD + wire.HEADER_BYTES
        and frame[12:14] == b"\x08\x00"
        and frame[_IP] == 0x45
        and frame[_IP + 9] == 17
        and frame[_IP + 16 : _IP + 20] == group.packed
        and bool(wire.Header.unpack(frame[_PAYLOAD:]).flags & wire.Flag.SUM)
    )


def serve(group: IPv4Address, slots: int, epoch: int, loss: float, kind: str, ports: list[str]) -> None:
    """Until it is killed. Says "ready" when it is."""
    sockets: list[socket.socket] = []
    for port in ports:
        sockets.append(made := socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ETHERTYPE_ALL)))
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
        made.bind((port, _ETHERTYPE_ALL))
    everybody = (1 << len(ports)) - 1
    tofino = kind == "tofino"
    switch, chance = OneWord() if tofino else SumSwitch(), random.Random(1)
    os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))  # as the agents' transport
    print("ready", flush=True)
    while True:
        for readable in select.select(sockets, [], [])[0]:
            worker = sockets.index(readable)
            frame, (_, _, way, *_) = readable.recvfrom(65536)
            if way == _OUTGOING or not is_contribution(frame, group):
                continue
            if worker == 0 and chance.random() < loss:
                continue
            length = int.from_bytes(frame[_IP + 2 : _IP + 4], "big") - (_PAYLOAD - _IP)
            row = Contributor(1 << worker, everybody, 0, slots - 1, epoch=epoch)
            outcome = switch.take(row, frame[_PAYLOAD : _PAYLOAD + length])
            if outcome.datagram is None:
                continue
            answer = result_frame(frame, outcome.datagram, checked=not tofino)
            for to in sockets if outcome.to_all else [readable]:
                with contextlib.suppress(OSError):  # the port's queue is full: it is lost
                    to.send(answer)


class SumLan(Lan):
    """Hosts whose NICs segment nothing and compute no checksums, as the switch takes frames as they are."""

    epoch = 0

    def _build(self) -> None:
        super()._build()
        for k in range(len(self.addresses)):
            offloads = [word for what in ("tx", "sg", "tso", "gso") for word in (what, "off")]
            self.run(self.space(k), "ethtool", "-K", "eth0", *offloads)

    @contextlib.contextmanager
    def switch(
        self, group: IPv4Address, slots: int = 1024, loss: float = 0.0, kind: str = "whole"
    ) -> Iterator["subprocess.Popen[str]"]:
        """The process, from when it is ready until the end of the block, unless it is killed before. It has another
        epoch than the one before it."""
        self.epoch = self.epoch % 255 + 1
        ports = [f"p{k}" for k in range(len(self.addresses))]
        argv = map(str, (group, slots, self.epoch, loss, kind, *ports))
        relay = (sys.executable, "-m", "tests.support.sum_relay", *argv)
        process = subprocess.Popen([*self.inside(self.bridge), *relay], stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()


if __name__ == "__main__":
    serve(IPv4Address(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]), sys.argv[5], sys.argv[6:])
