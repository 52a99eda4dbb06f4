# SPDX-License-Identifier: Apache-2.0
"""Whether links work: cheap probes watch them, and one that is in doubt is examined closely before it counts as down.

A switch sees only its own ports go down; a link that fails elsewhere, or a switch that hangs, is found here. Where a
switch without hosts has a single link to a neighbour with hosts, one probe that it routes back shows that both
directions work, whether or not there is a session with it. Other links, those that are down and those whose probes do
not come back yet are announced at both ends (LLDP, IEEE 802.1AB). What does not arrive puts a link in doubt: it is
then sent probe and announcements in each round of 50 ms, or of half of that while few links are in doubt. It proves
itself if the probe comes back or both announcements arrive. It is down if at one end nothing has arrived for eight
such rounds, as of a link that loses a tenth of all frames is not to be expected. If it does not prove itself in the
first one, the other links of its switches are looked at, as one of these may have failed.

Such a round counts only if meanwhile other frames of the same sender arrived, and others arrived at the same receiver:
when everything there falls silent, the likeliest cause is the path to the controller, or the controller itself, and a
switch's last link is better used than not. So each end also sends by another link, its witness. Of a switch that says
nothing at all itself, as it hangs or its session is lost, only probes count.

Both carry a seal, which only this controller can make and which holds for two intervals: nobody else, on whatever port,
can say that a link works or where it leads.
"""

import hmac
import logging
import secrets
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from ipaddress import IPv4Address, IPv4Network
from itertools import pairwise
from typing import Any

from gradlane_controller.network.fabric import Fabric, LinkPort, SwitchAddress
from gradlane_controller.network.frames import make_lldp, make_probe, parse_lldp, parse_probe

ROUND = 0.05  # seconds; in each some of the links are looked at, and those in doubt once, or
OFTEN = 2  # times, while so few are in doubt that their frames are no load:
FEW = 8
ENOUGH = 8  # rounds in a row without a proof, and it is down
RETURN = 6  # times in a row that a link which is down has proved itself, and it works
EXAMINATION = 40  # rounds; a link of which nothing can be said in so many is then only looked at like others
AT_ONCE = 64  # links that are examined
WATCHED_PER_SECOND = 1600  # links, in fabrics of many: each probe costs the controller 0.1 to 0.2 ms
MIN_INTERVAL = 0.25  # seconds from one look at a link to the next, in fabrics of few
PROBES = IPv4Network("240.0.0.0/16")
"""Of no host (RFC 1112, section 4): switches have addresses of it by their index, for probes."""
_TTL = 2
_SEAL_BYTES = 16

_LOG = logging.getLogger(__name__)

End = tuple[str, int]


def probe_address(switch: SwitchAddress) -> IPv4Address:
    """Where probes of that switch come from and go to."""
    return PROBES[switch.index]


def _octets(mac: str) -> bytes:
    return bytes.fromhex(mac.replace(":", ""))


def _now() -> datetime:
    return datetime.now(timezone.utc)


@dataclass(eq=False)
class _Link:
    """`asker`: the end whose probes the other routes back; None: none does. `single`: of these two switches.

    `heard` are the ends at which the other's announcement has arrived, `back` is whether the probe has come back, since
    it was last judged. `unanswered`: how many times in a row it has proved itself without its probe. `missing`: in how
    many rounds nothing arrived at each end. `settled`: all that can be said of it has been found out.
    """

    ends: tuple[LinkPort, LinkPort]
    asker: LinkPort | None
    single: bool
    up: bool = True
    since: datetime = field(default_factory=_now)
    heard: set[End] = field(default_factory=set[End])
    back: bool = False
    unanswered: int = ENOUGH
    rounds: int = 0  # of its examination; 0: it is not in doubt
    missing: Counter[End] = field(default_factory=Counter[End])
    arrived: int = 0
    settled: bool = False

    @property
    def quiet(self) -> bool:
        """Whether a probe is enough."""
        return self.up and not self.unanswered and self.single and not self.rounds

    @property
    def proved(self) -> bool:
        """Whether it has proved itself in this round."""
        return self.back or len(self.heard) == len(self.ends)

    @property
    def deaf(self) -> list[End]:
        """The ends at which nothing arrives."""
        if not self.missing or max(self.missing.values()) < ENOUGH:
            return []
        return [name for name in self.names() if 2 * self.missing[name] >= ENOUGH]

    def forget(self) -> None:
        """The next round begins."""
        self.back = False
        self.heard.clear()

    def doubt(self, rounds: int) -> None:
        """An examination begins, or (0) it is over."""
        self.rounds = rounds
        self.missing.clear()

    def names(self) -> tuple[End, End]:
        """Its ends."""
        one, other = self.ends
        return (one.switch, one.number), (other.switch, other.number)

    def __str__(self) -> str:
        return " - ".join(f"{switch}:{number}" for switch, number in self.names())


class Links:
    """The links of a fabric; they count as working until they are found not to.

    Time goes in rounds: `begin` says what is to be sent, `hear` and `hear_probe` take what arrives, `judge` concludes.
    """

    def __init__(self, fabric: Fabric) -> None:
        self._links: dict[End, _Link] = {}
        self._strangers: dict[End, End] = {}
        self._spoke, self._listened, self._alive = set[str](), set[str](), set[str]()
        self._key = secrets.token_bytes(32)
        self._round = 0
        self._turn = 0  # whole rounds
        self._beside: dict[_Link, None] = {}  # those to be looked at next, as links beside them have failed
        self._looked_at: list[_Link] = []  # in this round
        self.follow(fabric)

    @property
    def down(self) -> frozenset[End]:
        """Both ends of every link that does not work."""
        return frozenset(end for end, link in self._links.items() if not link.up)

    @property
    def settled(self) -> bool:
        """Whether all links have been looked at, and examined where in doubt, since `begin_anew`."""
        return all(link.settled for link in self._all)

    def begin_anew(self) -> None:
        """What is known of the links may be old."""
        for link in self._all:
            link.settled = False

    @property
    def rounds(self) -> int:
        """From one look at a link to the next; so many times `ROUND` in seconds."""
        return len(self._turns)

    @property
    def often(self) -> bool:
        """Whether few links are in doubt, and some."""
        return 0 < sum(1 for link in self._all if 0 < link.rounds <= EXAMINATION) <= FEW

    def follow(self, fabric: Fabric, *, assumed: bool = True, moved: Collection[str] = ()) -> None:
        """The fabric has changed; links that are as before keep their state, but for those of switches that have
        `moved`. Others count as working if that is `assumed`, or once they have proved themselves."""
        self._addresses = {it.name: probe_address(it) for it in fabric.switches if fabric.has_hosts(it.name)}
        pairs = list(zip(fabric.link_ports[::2], fabric.link_ports[1::2], strict=True))
        between: dict[frozenset[str], int] = defaultdict(int)
        for one, other in pairs:
            between[frozenset((one.switch, other.switch))] += 1
        links: dict[End, _Link] = {}
        self._all = list[_Link]()
        self._at: dict[str, list[_Link]] = defaultdict(list)
        for ends in pairs:
            single = between[frozenset(end.switch for end in ends)] == 1
            asker = next((it for it in ends if it.switch in self._addresses and it.peer not in self._addresses), None)
            known = self._links.get((ends[0].switch, ends[0].number))
            if known is None or known.ends != ends or not {end.switch for end in ends}.isdisjoint(moved):
                known = _Link(ends, asker, single, up=assumed)
            elif (known.asker, known.single) != (asker, single):
                known = _Link(ends, asker, single, up=known.up, since=known.since)
            self._all.append(known)
            for name in known.names():
                links[name] = known
                self._at[name[0]].append(known)
        self._links = links
        self._beside = {}
        rounds, count = round(max(MIN_INTERVAL, len(pairs) / WATCHED_PER_SECOND) / ROUND), len(pairs)
        # Those that one switch asks are looked at together: many frames to one take less time than one to each of many.
        # So each round also sees something of most other switches.
        ordered = sorted(self._all, key=lambda link: (link.asker or link.ends[0]).switch)
        first = [-(-turn * count // rounds) for turn in range(rounds + 1)]
        self._turns = [ordered[begin:end] for begin, end in pairwise(first)]

    def doubt(self, switch: str) -> None:
        """There is a reason to examine the links of that switch at once."""
        for link in self._at[switch]:
            if link.up and not link.rounds:
                link.doubt(1)

    def begin(self, *, whole: bool = True) -> dict[str, list[tuple[int, bytes]]]:
        """A round begins: what each switch is to send now, as (port, frame). If it is not a `whole` one, only of links
        in doubt, and of those beside them."""
        self._round += 1
        self._turn += whole
        self._spoke, self._listened, self._alive = set(), set(), set()
        due = dict.fromkeys(self._turns[self._turn % self.rounds] if whole else ()) | self._beside
        self._beside = {}
        examined = [link for link in self._all if link.rounds and (link in due or link.rounds <= EXAMINATION)][:AT_ONCE]
        self._looked_at = list(due | dict.fromkeys(examined))
        frames: dict[str, list[tuple[int, bytes]]] = defaultdict(list)
        for link in self._looked_at:
            if link.up and not link.rounds:
                link.forget()  # what came late is of an earlier round
        witnesses = {witness: None for link in examined for end in link.ends for witness in self._witnesses(end)}
        for link in dict.fromkeys(self._looked_at) | witnesses:
            self._add_frames(link, frames, quiet=link.quiet and link not in witnesses)
        return frames

    def hear_probe(self, switch: str, port: int, frame: bytes) -> bool:
        """Something for a probe's address has arrived there; whether it is one that has come back."""
        found = parse_probe(frame) if (switch, port) in self._links else None
        if found is None or not self._is_sealed("probe", switch, *found):
            return False
        link = self._links.get((switch, found[0]))
        if link is not None:
            link.back = True
            self._spoke.add(switch)
            self._listened.add(switch)
        return link is not None

    def hear(self, switch: str, port: int, frame: bytes) -> None:
        """An LLDP frame has arrived there."""
        link, found = self._links.get((switch, port)), parse_lldp(frame)
        if link is None or found is None or not self._is_sealed("lldp", *found):
            return  # at a host's port, or not of this controller
        neighbour = found[:2]
        one, other = link.names()
        expected = one if other == (switch, port) else other
        if neighbour == expected:
            link.heard.add((switch, port))
            self._spoke.add(neighbour[0])
            self._listened.add(switch)
            self._alive |= {switch, neighbour[0]}
            self._strangers.pop((switch, port), None)
        elif self._strangers.get((switch, port)) != neighbour:
            self._strangers[switch, port] = neighbour
            _LOG.error(
                "port %d of %r is connected to port %d of %r, not to port %d of %r as the fabric file says",
                *(port, switch, neighbour[1], neighbour[0], expected[1], expected[0]),
            )

    def judge(self, present: Collection[str], punctual: Collection[str]) -> bool:
        """The round is over; whether a link has changed. `present` are the switches that could send and listen, and
        `punctual` those that have sent all within the round: on a busy machine that may be none."""
        changed = False
        for link in self._looked_at:
            changed |= self._judge(link, present, punctual)
        return changed

    def _judge(self, link: _Link, present: Collection[str], punctual: Collection[str]) -> bool:
        both = all(end.switch in present for end in link.ends)
        asks = link.asker is not None and link.unanswered < ENOUGH and link.asker.switch in present
        # What was sent late may be on its way. Nor does a busy machine get more to do.
        senders = [link.asker] if asks and link.asker is not None else [it for it in link.ends if it.switch in present]
        sent = all(end.switch in punctual for end in senders)
        link.arrived += link.proved
        if not link.proved and sent:
            link.arrived = 0
        if link.proved:
            # Its probes are not waited for when they don't come back, as when nothing is routed over it.
            link.unanswered = 0 if link.back else min(link.unanswered + 1, ENOUGH)
        if not link.up:
            link.settled |= sent
            link.forget()
            return link.arrived >= RETURN and self._conclude(link, up=True)
        if link.proved or not (both or asks):
            link.doubt(0)
            link.settled = True
        elif not link.rounds:
            link.doubt(int(sent))
        else:
            link.rounds += 1
            if link.rounds == 2:
                self._beside |= {it: None for end in link.ends for it in self._at[end.switch]}
            for end in link.heard:
                link.missing[end] = 0
            link.missing.update(self._deaf(link, punctual, both, asks))
            link.settled |= link.rounds > EXAMINATION
        link.forget()
        return bool(link.deaf) and self._conclude(link, up=False)

    def _deaf(self, link: _Link, punctual: Collection[str], both: bool, asks: bool) -> Iterator[End]:
        """The ends at which something should have arrived and has not, and it is not the path to the controller."""
        names = link.names()
        if asks and link.asker is not None and link.asker.peer not in self._alive:
            own = link.asker.switch
            if own in self._spoke and own in self._listened and own in punctual:
                yield own, link.asker.number
        elif both:
            for (there, _), end in (names, names[::-1]):
                if end not in link.heard and there in self._spoke and there in punctual and end[0] in self._listened:
                    yield end

    def _witnesses(self, end: LinkPort) -> Iterable[_Link]:
        """Another link of that end's switch, which leads elsewhere; in each round another one."""
        others = [it for it in self._at[end.switch] if it.up and end.peer not in (it.ends[0].switch, it.ends[1].switch)]
        return others[self._round % len(others) :][:1] if others else ()

    def _add_frames(self, link: _Link, frames: dict[str, list[tuple[int, bytes]]], *, quiet: bool) -> None:
        for end in link.ends:
            if not quiet:
                frames[end.switch].append((end.number, self.announcement(end)))
            if end == link.asker:
                frames[end.switch].append((end.number, self.probe(end)))

    def announcement(self, end: LinkPort) -> bytes:
        """What that end says of itself now."""
        seal = self._seal("lldp", end.switch, end.number)
        return make_lldp(_octets(end.mac), end.switch, end.number, _TTL, seal)

    def probe(self, end: LinkPort) -> bytes:
        """What that end, of a switch with hosts, asks the other to route back now."""
        seal = self._seal("probe", end.switch, end.number)
        return make_probe(_octets(end.peer_mac), _octets(end.mac), self._addresses[end.switch], end.number, seal)

    def _conclude(self, link: _Link, *, up: bool) -> bool:
        link.up, link.since, link.arrived = up, _now(), 0
        where = " and ".join(f"{switch}:{number}" for switch, number in link.deaf)
        _LOG.warning("link %s %s", link, "works" if up else f"is down: nothing arrives at {where}")
        if up:
            link.doubt(0)
        # Once it is used its probes come back, and if they don't, a switch has failed again meanwhile.
        link.rounds, link.unanswered, link.settled = 0, 1 if up else ENOUGH, True
        return True

    def _seal(self, kind: str, switch: str, port: int, age: int = 0) -> bytes:
        text = f"{kind} {switch} {port} {self._turn // self.rounds - age}".encode()
        return hmac.digest(self._key, text, "sha256")[:_SEAL_BYTES]

    def _is_sealed(self, kind: str, switch: str, port: int, seal: bytes) -> bool:
        return any(hmac.compare_digest(seal, self._seal(kind, switch, port, age)) for age in (0, 1))

    def to_json(self, loads: Mapping[End, float], **more: Callable[[End], Any]) -> list[dict[str, Any]]:
        """Every link, with its state, the ends at which nothing arrives, since when it has that state, the load of
        what each end sends, None where that is not known, and what `more` there is to say of each end."""
        return [
            {
                "ends": [f"{switch}:{number}" for switch, number in link.names()],
                "up": link.up,
                "deaf": [f"{switch}:{number}" for switch, number in link.deaf],
                "since": link.since.isoformat(timespec="milliseconds"),
                "load": [loads.get(name) for name in link.names()],
                **{what: [of(name) for name in link.names()] for what, of in more.items()},
            }
            for link in self._all
        ]
