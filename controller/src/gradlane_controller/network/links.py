# SPDX-License-Identifier: Apache-2.0
"""Whether links work: each end announces itself every half second (LLDP, IEEE 802.1AB), and the other end listens.

A switch sees only its own ports go down; a link that fails elsewhere is found here. A frame counts as missing only if
at the same time others of the same sender arrived, and others arrived at the same receiver: when everything there falls
silent, the likeliest cause is the path to the controller, or the controller itself, and a switch's last link is better
used than not. A lost session says nothing about links either, because switches forward without the controller. A switch
without a session is checked by probes that it routes back to its neighbour; if it has no hosts and no longer does so,
it is avoided. One that has closed its session is examined at once, by probes that follow one another faster: its
process has probably ended.

Both carry a seal, which only this controller can make and which holds for two rounds: nobody else, on whatever port,
can say that a link works or where it leads.
"""

import hmac
import logging
import secrets
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from ipaddress import IPv4Address, IPv4Network
from typing import Any

from gradlane_controller.network.fabric import Fabric, LinkPort, SwitchAddress
from gradlane_controller.network.frames import make_lldp, make_probe, parse_lldp, parse_probe

INTERVAL = 0.5  # seconds between two frames
ENOUGH = 3  # frames in a row: so many missing, and a link is down; so many arrived, and it works
EXAMINED = 0.05  # seconds between two frames while a switch is examined,
EXAMINATION = 40  # at most so many times
PROBES = IPv4Network("240.0.0.0/16")
"""Of no host (RFC 1112, section 4): switches have addresses of it by their index, for probes."""
_TTL = 2
_SEAL_BYTES = 16

_LOG = logging.getLogger(__name__)

End = tuple[str, int]


@dataclass
class _Direction:
    """Towards one end: how many frames in a row have arrived, or are missing."""

    arrived: int = 0
    missing: int = 0
    heard: bool = False
    works: bool = True

    def judge(self, missing: bool, counts: bool) -> None:
        """A round is over; `counts`: whether what has arrived counts, `missing`: whether what has not does."""
        self.arrived = self.arrived + 1 if counts and self.heard else 0
        self.missing = self.missing + 1 if missing and not self.heard else 0
        if self.missing >= ENOUGH:
            self.works = False
        elif self.arrived >= ENOUGH:
            self.works = True
        self.heard = False


def probe_address(switch: SwitchAddress) -> IPv4Address:
    """Where probes of that switch come from and go to."""
    return PROBES[switch.index]


def _now() -> datetime:
    return datetime.now(timezone.utc)


@dataclass
class _Link:
    ends: tuple[LinkPort, LinkPort]
    directions: dict[End, _Direction]
    probes: dict[End, _Direction]
    up: bool = True
    since: datetime = field(default_factory=_now)

    def peer_of(self, end: End) -> End:
        """The other end."""
        first, second = self.directions
        return second if end == first else first

    @property
    def deaf(self) -> list[str]:
        """The ends at which nothing arrives."""
        return [
            f"{switch}:{number}"
            for directions in (self.directions, self.probes)
            for (switch, number), it in directions.items()
            if not it.works
        ]

    def __str__(self) -> str:
        return " - ".join(f"{end.switch}:{end.number}" for end in self.ends)


class Links:
    """The links of a fabric; they count as working until they are found not to."""

    def __init__(self, fabric: Fabric) -> None:
        self._links: dict[End, _Link] = {}
        self._strangers: dict[End, tuple[str, int]] = {}
        self._arrived = Counter[str]()  # all these frames, by the switch that they came to
        self._came_back = Counter[str]()  # probes, by the switch that has routed them back
        self._key = secrets.token_bytes(32)
        self._round = 0
        self.follow(fabric)

    @property
    def down(self) -> frozenset[End]:
        """Both ends of every link that does not work."""
        return frozenset(end for end, link in self._links.items() if not link.up)

    def follow(self, fabric: Fabric) -> None:
        """The fabric has changed; links that are as before keep their state."""
        links: dict[End, _Link] = {}
        for ends in zip(fabric.link_ports[::2], fabric.link_ports[1::2], strict=True):
            names = [(end.switch, end.number) for end in ends]
            link = self._links.get(names[0])
            if link is None or link.ends != ends:
                link = _Link(ends, {name: _Direction() for name in names}, {})
            links |= dict.fromkeys(names, link)
        self._links = links
        self._addresses = {it.name: probe_address(it) for it in fabric.switches if fabric.has_hosts(it.name)}

    def frames(self, switch: str) -> Iterator[tuple[int, bytes]]:
        """What a switch is to send now, as (port, frame)."""
        for (name, number), link in self._links.items():
            if name == switch:
                own = next(end for end in link.ends if (end.switch, end.number) == (name, number))
                mac, peer_mac = (bytes.fromhex(it.replace(":", "")) for it in (own.mac, own.peer_mac))
                yield number, make_lldp(mac, name, number, _TTL, self._seal("lldp", name, number))
                if name in self._addresses and own.peer not in self._addresses:
                    seal = self._seal("probe", name, number)
                    yield number, make_probe(peer_mac, mac, self._addresses[name], number, seal)

    def hear_probe(self, switch: str, port: int, frame: bytes) -> bool:
        """Something for a probe's address has arrived there; whether it is one that has come back."""
        found = parse_probe(frame) if (switch, port) in self._links else None
        if found is None or not self._is_sealed("probe", switch, *found):
            return False
        number, _ = found
        link = self._links.get((switch, number))
        if link is not None:
            link.probes.setdefault((switch, number), _Direction()).heard = True
            self._came_back[link.peer_of((switch, number))[0]] += 1
            self._arrived[switch] += 1
        return link is not None

    def hear(self, switch: str, port: int, frame: bytes) -> None:
        """An LLDP frame has arrived there."""
        link, found = self._links.get((switch, port)), parse_lldp(frame)
        if link is None or found is None or not self._is_sealed("lldp", *found):
            return  # at a host's port, or not of this controller
        neighbour = found[:2]
        expected = link.peer_of((switch, port))
        if neighbour == expected:
            link.directions[switch, port].heard = True
            self._arrived[switch] += 1
            self._strangers.pop((switch, port), None)
        elif self._strangers.get((switch, port)) != neighbour:
            self._strangers[switch, port] = neighbour
            _LOG.error(
                "port %d of %r is connected to port %d of %r, not to port %d of %r as the fabric file says",
                *(port, switch, neighbour[1], neighbour[0], expected[1], expected[0]),
            )

    def tick(self, present: Collection[str]) -> bool:
        """Half a second is over; `present` are the switches that could send and listen. Whether a link changed."""
        changed = False
        self._round += 1
        links = list({id(link): link for link in self._links.values()}.values())
        heard = [(link.peer_of(end), end) for link in links for end, it in link.directions.items() if it.heard]
        spoke, listened = {peer[0] for peer, _ in heard}, {end[0] for _, end in heard}
        for link in links:
            both = all(end.switch in present for end in link.ends)
            for end, direction in link.directions.items():
                direction.judge(both and link.peer_of(end)[0] in spoke and end[0] in listened, counts=both)
            for end, probe in link.probes.items():
                alone = end[0] in listened and link.peer_of(end)[0] not in present
                probe.judge(alone, counts=True)
                if both and all(it.arrived >= ENOUGH for it in link.directions.values()):
                    probe.works = True
            changed |= self._conclude(link)
        return changed

    def neighbours(self, switch: str) -> frozenset[str]:
        """Those to which it has routed probes back."""
        return frozenset(end[0] for end, link in self._links.items() if self._asks(link, end, switch))

    def silence(self, switch: str) -> bool:
        """It routes no probes back any more: its links to these neighbours are down. Whether one has changed."""
        changed = False
        for end, link in self._links.items():
            if self._asks(link, end, switch):
                link.probes[end] = _Direction(missing=ENOUGH, works=False)
                changed |= self._conclude(link)
        return changed

    @staticmethod
    def _asks(link: _Link, end: End, switch: str) -> bool:
        return end in link.probes and link.peer_of(end)[0] == switch

    def heard(self, switch: str, neighbours: Collection[str]) -> tuple[int, dict[str, int]]:
        """How many probes a switch has routed back so far, and how many frames have come to each of its neighbours."""
        return self._came_back[switch], {name: self._arrived[name] for name in neighbours}

    def _conclude(self, link: _Link) -> bool:
        """Whether it has changed."""
        up = not link.deaf
        if up == link.up:
            return False
        link.up, link.since = up, _now()
        what = "works" if up else f"is down: nothing arrives at {' and '.join(link.deaf)}"
        _LOG.warning("link %s %s", link, what)
        return True

    def _seal(self, kind: str, switch: str, port: int, age: int = 0) -> bytes:
        text = f"{kind} {switch} {port} {self._round - age}".encode()
        return hmac.digest(self._key, text, "sha256")[:_SEAL_BYTES]

    def _is_sealed(self, kind: str, switch: str, port: int, seal: bytes) -> bool:
        return any(hmac.compare_digest(seal, self._seal(kind, switch, port, age)) for age in (0, 1))

    def to_json(self, loads: Mapping[End, float], **more: Callable[[End], Any]) -> list[dict[str, Any]]:
        """Every link, with its state, the ends at which nothing arrives, since when it has that state, the load of
        what each end sends, None where that is not known, and what `more` there is to say of each end."""
        return [
            {
                "ends": [f"{end.switch}:{end.number}" for end in link.ends],
                "up": link.up,
                "deaf": link.deaf,
                "since": link.since.isoformat(timespec="milliseconds"),
                "load": [loads.get((end.switch, end.number)) for end in link.ends],
                **{name: [of((end.switch, end.number)) for end in link.ends] for name, of in more.items()},
            }
            for link in {id(link): link for link in self._links.values()}.values()
        ]


class Examination:
    """Of a switch that has closed its session: does it still forward?

    It does if any probe comes back that was not under way before. It does not if none has, and in three rounds other
    frames have come to all its neighbours: what keeps probes on a busy machine keeps these as well. Other rounds say
    nothing.
    """

    def __init__(self, links: Links, switch: str) -> None:
        self.neighbours = links.neighbours(switch)
        self._links, self._switch = links, switch
        self._rounds = self._silent = 0
        self._before = links.heard(switch, self.neighbours)

    def round_over(self, timely: bool) -> bool | None:
        """Whether it forwards, None: not yet known; `timely`: the round was as short as it should be."""
        (back, arrived), (back_before, arrived_before) = self._links.heard(self._switch, self.neighbours), self._before
        self._before = back, arrived
        self._rounds += 1
        if back > back_before and self._rounds > 1:
            return True
        listened = all(count > arrived_before[name] for name, count in arrived.items())
        if back > back_before:
            self._silent = 0
        elif listened and timely:
            self._silent += 1
        return False if self._silent >= ENOUGH else None
