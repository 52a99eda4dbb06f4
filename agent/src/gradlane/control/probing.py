# SPDX-License-Identifier: Apache-2.0
"""What the paths between a job's hosts carry, found when the job is joined: path MTU, latency and rate.

Datagrams on UDP port 47401 of each agent, which the network treats as ordinary traffic:

- **Path MTU** by padded probes that are never fragmented and whose arrival is acknowledged (RFC 8899): no ICMP is
  needed, and a loss costs a repetition.
- **Latency**: half of the shortest round trip, less the time that the other agent took to answer.
- **Rate**: a train of packets sent at once; a bottleneck spaces them, and what came after the first, over the time
  since then, is its rate (packet-pair, Keshav, SIGCOMM 1991). The kernel notes the arrivals.

Later they are signs of life: unlike those on a TCP connection, they do not wait behind what is lost.
"""

import asyncio
import logging
import socket
import struct
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum

from gradlane import wire
from gradlane.errors import AgentError, cannot_bind
from gradlane.job import MAX_PACKET
from gradlane.toml_file import Address

log = logging.getLogger("gradlane")

BASE_PACKET = 1280  # every IPv6 path carries it, and every IPv4 path in use
PROBE_SECONDS = 3.0  # no answer to the smallest probe
ATTEMPTS = 3
SHORTEST_WAIT, _LONGEST_WAIT = 0.05, 0.5
TRAINS = 3
MAX_TRAIN = 32
_BETWEEN = 8  # sizes tried at once between one that gets through and one that does not
_ROUND_TRIPS = 2  # more samples of the latency
# Numbers of Linux that the socket module does not name.
_IP_MTU_DISCOVER, _IP_PMTUDISC_DO, _IP_MTU = 10, 2, 14
_IPV6_MTU_DISCOVER, _IPV6_MTU = 23, 24
_SO_TIMESTAMPNS = 35
_SOL_UDP, _UDP_SEGMENT = 17, 103
_MAX_SEGMENTED = 60_000

_HEADER = struct.Struct("!4sBxHHxxQIQQ")  # magic, kind, job, source rank, token, number, two values
_MAGIC = b"GLPR"
_UDP_AND_IP = {4: 28, 6: 48}
_BEAT_TOS = wire.CONTROL_DSCP << 2


class Kind(IntEnum):
    PROBE = 1  # padded to the size in question
    ECHO = 2  # value 1: ns from the arrival of the probe to this answer
    TRAIN = 3  # padded
    ASK = 4  # how did the train of that number arrive?
    RESULT = 5  # value 1: bytes after the first packet; value 2: ns from the first to the last
    BEAT = 6  # a sign of life, and nothing else


@dataclass(frozen=True)
class Path:
    """A path to a rank: it carries IP packets of up to `packet` bytes; `latency`: its one-way delay in seconds."""

    packet: int
    latency: float


@dataclass
class _Train:
    number: int
    first: int
    last: int
    size: int = 0  # UDP payload after the first packet


class Prober:
    """The socket of one address, for all of its jobs."""

    def __init__(self, address: Address) -> None:
        """Raises AgentError if the port can't be had."""
        self.address = address
        family, level, discover, self._mtu_option, self._tos_option = (
            (socket.AF_INET, socket.IPPROTO_IP, _IP_MTU_DISCOVER, _IP_MTU, socket.IP_TOS)
            if address.version == 4
            else (socket.AF_INET6, socket.IPPROTO_IPV6, _IPV6_MTU_DISCOVER, _IPV6_MTU, socket.IPV6_TCLASS)
        )
        self._family, self._level = family, level
        self._socket = socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        try:
            self._socket.setsockopt(level, discover, _IP_PMTUDISC_DO)
            self._socket.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
            self._socket.bind((str(address), wire.CONTROL_PORT))
        except OSError as error:
            self._socket.close()
            raise cannot_bind(f"UDP port {wire.CONTROL_PORT} of {address}", error) from error
        self._probes: dict[int, Probes] = {}
        asyncio.get_running_loop().add_reader(self._socket, self._readable)

    def add(
        self, job: int, rank: int, token: int, addresses: Sequence[Address], heard: Callable[[int], None]
    ) -> "Probes":
        """Answers that job's probes from now on, and can send some. `addresses`: of all ranks; `heard`
        gets the rank of each sender."""
        self._probes[job] = probes = Probes(self, job, rank, token, addresses, heard)
        return probes

    def beats(self, job: int) -> tuple[int, bytes, list[tuple[Address, int]], int]:
        """What `Probes.beat` sends for that job: by which descriptor, what, where to, with which TOS."""
        probes = self._probes[job]
        return self._socket.fileno(), probes.sign_of_life, probes.others, _BEAT_TOS

    def remove(self, job: int) -> None:
        """No more of that job."""
        self._probes.pop(job, None)

    def close(self) -> None:
        """Frees the port."""
        asyncio.get_running_loop().remove_reader(self._socket)
        self._socket.close()

    @property
    def headers(self) -> int:
        """Bytes of the IP and UDP headers."""
        return _UDP_AND_IP[self.address.version]

    def largest(self, address: Address) -> int:
        """The largest IP packet that this host itself would send there, at most MAX_PACKET bytes."""
        with socket.socket(self._family, socket.SOCK_DGRAM) as sock:
            try:
                sock.connect((str(address), wire.CONTROL_PORT))
            except OSError:  # no route: should there be one soon, the probes find out
                return BASE_PACKET
            return min(MAX_PACKET, sock.getsockopt(self._level, self._mtu_option))

    def send(self, datagram: bytes, address: Address, segment: int = 0, tos: int = 0) -> None:
        """Sends a datagram, or with `segment` as many of that size as it makes. One that can't be sent is lost."""
        control = [(_SOL_UDP, _UDP_SEGMENT, struct.pack("H", segment))] if segment else []
        if tos:
            control.append((self._level, self._tos_option, struct.pack("i", tos)))
        with suppress(OSError):
            self._socket.sendmsg([datagram], control, 0, (str(address), wire.CONTROL_PORT))

    def _readable(self) -> None:
        for _ in range(256):  # then other readers have their turn
            try:
                data, control, _, source = self._socket.recvmsg(MAX_PACKET, 64)
            except OSError:
                return
            if len(data) < _HEADER.size:
                continue
            magic, kind, job, rank, token, number, first, second = _HEADER.unpack_from(data)
            probes = self._probes.get(job)
            if magic != _MAGIC or probes is None or not probes.knows(token, rank, source[0]):
                continue
            arrival = time.clock_gettime_ns(time.CLOCK_REALTIME)
            for level, number_of, value in control:
                if level == socket.SOL_SOCKET and number_of == _SO_TIMESTAMPNS and len(value) == 16:
                    seconds, nanoseconds = struct.unpack("qq", value)
                    arrival = seconds * 1_000_000_000 + nanoseconds
            probes.take(kind, rank, number, (first, second), len(data), arrival)


class Probes:
    """The probes of one job."""

    def __init__(
        self,
        prober: Prober,
        job: int,
        rank: int,
        token: int,
        addresses: Sequence[Address],
        heard: Callable[[int], None],
    ) -> None:
        self._prober = prober
        self._heard = heard
        self._job = job
        self._rank = rank
        self._token = token
        self._addresses = addresses
        self._number = 0
        self._sent: dict[int, int] = {}  # when, by number
        self._answered: dict[int, tuple[int, int, int]] = {}  # arrival and values, by number
        self._trains: dict[int, _Train] = {}  # by rank
        self._news: dict[int, asyncio.Event] = {}  # an answer of that rank, which is waited for

    def knows(self, token: int, rank: int, address: str) -> bool:
        """Whether a datagram is of this job."""
        return token == self._token and rank < len(self._addresses) and str(self._addresses[rank]) == address

    def take(self, kind: int, rank: int, number: int, values: tuple[int, int], size: int, arrival: int) -> None:
        """One datagram. `arrival`: ns of the real-time clock, of which only differences count."""
        self._heard(rank)
        if kind == Kind.PROBE:
            self._send(Kind.ECHO, rank, number, max(0, time.clock_gettime_ns(time.CLOCK_REALTIME) - arrival))
        elif kind == Kind.TRAIN:
            train = self._trains.get(rank)
            if train is None or train.number != number:
                self._trains[rank] = _Train(number, arrival, arrival)
            else:
                train.size += size
                train.last = arrival
        elif kind == Kind.ASK:
            train = self._trains.get(rank)
            if train is None or train.number != number:
                train = _Train(number, 0, 0)  # all of it was lost
            self._send(Kind.RESULT, rank, number, train.size, max(0, train.last - train.first))
        elif kind in (Kind.ECHO, Kind.RESULT) and number in self._sent:
            self._answered.setdefault(number, (arrival, *values))
            if rank in self._news:
                self._news[rank].set()

    def _datagram(self, kind: Kind, number: int, first: int = 0, second: int = 0, packet: int = 0) -> bytes:
        header = _HEADER.pack(_MAGIC, kind, self._job, self._rank, self._token, number, first, second)
        return header.ljust(max(len(header), packet - self._prober.headers), b"\0")

    def _send(self, kind: Kind, rank: int, number: int, first: int = 0, second: int = 0, packet: int = 0) -> None:
        self._prober.send(self._datagram(kind, number, first, second, packet), self._addresses[rank])

    def beat(self, rank: int) -> None:
        """Sends a rank a sign of life, in the top queue class."""
        self._prober.send(self.sign_of_life, self._addresses[rank], tos=_BEAT_TOS)

    @property
    def sign_of_life(self) -> bytes:
        """A datagram that says no more."""
        return self._datagram(Kind.BEAT, 0)

    @property
    def others(self) -> list[tuple[Address, int]]:
        """The other ranks' address and port."""
        return [(to, wire.CONTROL_PORT) for rank, to in enumerate(self._addresses) if rank != self._rank]

    def _new(self) -> int:
        self._number += 1
        self._sent[self._number] = 0
        return self._number

    def _probe(self, rank: int, packet: int) -> int:
        number = self._new()
        self._sent[number] = time.clock_gettime_ns(time.CLOCK_REALTIME)
        self._send(Kind.PROBE, rank, number, packet=packet)
        return number

    async def _answers(self, rank: int, enough: Callable[[], bool], seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        news = self._news.setdefault(rank, asyncio.Event())
        while not enough():
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            news.clear()
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(news.wait(), left)
        return True

    async def path(self, rank: int, needed: int | None, name: str, lived: Callable[[], float]) -> Path:
        """Measures the path to a rank. `needed`: the largest packet size of interest; None: any.

        `lived`: the seconds for which that rank has run, by its control connection: a busy host is slow to answer.
        Raises AgentError with the rank's `name` if nothing comes back in PROBE_SECONDS of these.
        """
        most = min(needed or MAX_PACKET, self._prober.largest(self._addresses[rank]))
        low, high, sizes = min(BASE_PACKET, most), most + 1, {most}
        sent: dict[int, int] = {}
        while sizes:
            if not await self._send_each(rank, sizes, low, lived, sent):
                raise AgentError(
                    f"{name} does not answer datagrams on UDP port {wire.CONTROL_PORT}, though its control connection "
                    "is up: does a firewall, or the MTU of an interface, stop them?"
                )
            through = self._through(sent)
            low = max(through)
            high = min((size for size in sizes - through if size > low), default=high)
            sizes = {low + (high - low) * k // (_BETWEEN + 1) for k in range(1, _BETWEEN + 1)} - {low}
        for _ in range(_ROUND_TRIPS):
            number = self._probe(rank, 0)
            sent[number] = 0
            wait = max(SHORTEST_WAIT, 3 * self._round_trip(sent))
            await self._answers(rank, lambda number=number: number in self._answered, wait)
        return Path(low, self._round_trip(sent) / 2)

    async def _send_each(
        self, rank: int, sizes: set[int], known: int, lived: Callable[[], float], sent: dict[int, int]
    ) -> bool:
        """Sends packets of these sizes, up to ATTEMPTS times, and notes them in `sent`. False: nothing is answered.

        One of a size that gets through (`known`) follows: once it is answered, what is not was lost, however slow the
        other side is.
        """
        for _ in range(ATTEMPTS):
            for size in sorted(sizes - self._through(sent)):
                sent[self._probe(rank, size)] = size

            def follow() -> int:
                number = self._probe(rank, known)
                sent[number] = known
                return number

            if not await self._insist(rank, follow, lived):
                return False
            if sizes <= self._through(sent):
                break
        return True

    async def _insist(self, rank: int, send: Callable[[], int], lived: Callable[[], float]) -> bool:
        """Sends what is answered under the number that it returns, again and again; False: not in PROBE_SECONDS."""
        numbers: set[int] = set()
        wait, deadline = SHORTEST_WAIT, lived() + PROBE_SECONDS
        while lived() <= deadline:
            numbers.add(send())
            if await self._answers(rank, lambda: not numbers.isdisjoint(self._answered), wait):
                return True
            wait = min(2 * wait, _LONGEST_WAIT)
        return False

    def _through(self, sent: dict[int, int]) -> set[int]:
        return {size for number, size in sent.items() if number in self._answered}

    def _round_trip(self, sent: dict[int, int]) -> float:
        """The shortest of what was answered, in seconds; a clock that was set meanwhile makes no negative one."""
        answers = [(self._sent[n], self._answered[n]) for n in sent if n in self._answered]
        return max(0, min(arrival - held - begun for begun, (arrival, held, _) in answers)) / 1e9

    async def rate(self, rank: int, packet: int, most: int, lived: Callable[[], float]) -> float | None:
        """Rate to a rank in bit/s of IP packets, the best of some trains of at most `most` bytes; None: not known.

        `lived` as for `path`.
        """
        size = packet - self._prober.headers
        count = max(2, min(MAX_TRAIN, most // packet, _MAX_SEGMENTED // size))
        best = 0.0
        for _ in range(TRAINS):
            number = self._new()
            self._prober.send(self._datagram(Kind.TRAIN, number, packet=packet) * count, self._addresses[rank], size)

            def ask(number: int = number) -> int:
                self._send(Kind.ASK, rank, number)
                return number

            await self._insist(rank, ask, lived)
            _, arrived, nanoseconds = self._answered.get(number, (0, 0, 0))
            if arrived and nanoseconds:
                best = max(best, arrived * packet / size * 8e9 / nanoseconds)
        return best or None
