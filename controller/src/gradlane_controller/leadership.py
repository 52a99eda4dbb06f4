# SPDX-License-Identifier: Apache-2.0
"""Which of several controllers leads: a lease in the store (Gray and Cheriton, SOSP 1989) with a fencing number.

The leader renews its lease from a thread of its own, as the event loop may be busy. Whether it leads it knows by its
own clock, from before it asked: so it stops before anybody else can begin, whatever holds up the store, its answer or
this process. A loop that hangs loses the lease. Where looks at the store are slow, as the machine is busy, leases are
longer: else each leader would lose its own before it has done anything, and so would the next one.
"""

import asyncio
import logging
import math
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from gradlane_controller.errors import StoreError
from gradlane_controller.store import Store, lease
from gradlane_controller.store.lease import Leader

LEASE_SECONDS = 2.0
LONE_SECONDS = 5.0  # of the lease while nobody stands by: a busy machine costs no leadership then
MOST_SECONDS = 10.0  # of a lease, and as long as so many looks at the store take, if they are slow:
LOOKS = 3
FADING = 0.98  # of the slowest one, from each to the next
MARGIN_SECONDS = 0.3  # before its end the leader stops
RENEW_SECONDS = 0.4
LOOK_SECONDS = 0.25  # between two looks of those who stand by
PRESENCE_SECONDS = 1.0  # between two times that they say so
LOOP_SECONDS = 5.0  # that the event loop may be silent
REST_SECONDS = 1.0  # before who has given up leads again, so that another one can
SILENT_SECONDS = 1.0  # after which an answer of the store is late
STOP_SECONDS = 3.0  # that the store may take to hear that nobody leads
_TURN_SECONDS = 0.05

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Held:
    """The leadership: `number` fences off those before, and may grow during a `term`, which is its first one; `until`
    when it lasts, by this process's own clock."""

    term: int
    number: int
    until: float


class Leadership:
    """`held` is what this controller has while it leads, None while it does not.

    `reach` and `needed` are told by who has the sessions with switches: with how many it can work, and how many are
    their majority. `eligible`: whether it may lead, or somebody of another store already does.
    """

    def __init__(self, store: Store, name: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.name = name
        self.holder = uuid.uuid4().hex
        self.reach = self.needed = 0
        self.eligible = True
        self.known: Leader | None = None  # as the store had it last
        self._problem = ""
        self._asked_at: float | None = None  # the store, which has not answered yet
        self._store, self._clock = store, clock
        self._held: Held | None = None
        self._given_up: int | None = None  # what the store does not know yet
        self._least = 0  # that the number has to be
        self._rest_until = self._present_at = clock() - REST_SECONDS
        self._slowest, self._looked_at = 0.0, math.inf  # from the end of one look to that of the next; when that was
        self._loop_at = clock()
        self._guard = threading.Lock()  # of `_held`
        self._wake = threading.Event()
        self._ended = False
        self._thread = threading.Thread(target=self._run, name="leadership", daemon=True)

    @property
    def held(self) -> Held | None:
        """Asked before each write to a switch, from any thread."""
        held = self._held
        return held if held is not None and self._clock() < held.until else None

    def describe(self) -> str:
        """Who leads, for people."""
        if self.held is not None:
            return f"{self.name} leads"
        if self.problem:
            return f"nobody is known to lead, as the store can't be used: {self.problem}"
        if self.known is None or self.known.until <= 0:
            return "nobody leads yet"
        return f"{self.known.name} leads"

    def to_json(self) -> dict[str, Any]:
        """What the status says of it."""
        held = self.held
        number = held.number if held else self.known.number if self.known else 0
        said = {"who": self.describe(), "store": self.problem}
        return {"name": self.name, "leader": held is not None, "number": number, **said}

    def resign(self) -> None:
        """Gives up at once, and rests before it leads again."""
        with self._guard:
            if self._held is not None:
                self._given_up = self._held.number
                self._held = None
        self._rest_until = self._clock() + REST_SECONDS
        self._wake.set()

    def outgrow(self, least: int) -> None:
        """Has the number grow to `least` at least: a switch has seen others."""
        self._least = max(self._least, least)
        self._wake.set()

    @property
    def problem(self) -> str:
        """What is wrong with the store."""
        asked_at = self._asked_at
        if asked_at is not None and (silent := self._clock() - asked_at) > SILENT_SECONDS:
            return f"{self._store.name}: no answer for {silent:.0f} s"
        return self._problem

    def step(self) -> None:
        """One look at the store: renews the lease, or takes it if it is free. Blocks."""
        self._asked_at = self._clock()
        try:
            self._step()
            self._problem = ""
        except StoreError as problem:
            self._problem = str(problem)
        self._asked_at = None
        now = self._clock()
        self._slowest = max(now - self._looked_at, FADING * self._slowest)
        self._looked_at = now

    async def start(self) -> None:
        """A first look at the store; from then on the lease is renewed, until `stop` or the end of `watch`."""
        self._loop_at = self._clock()
        await asyncio.to_thread(self.step)
        self._thread.start()

    def stop(self) -> None:
        """Leads no more, and looks no more."""
        self._ended = True
        self.resign()

    async def watch(self, on_change: Callable[[Held | None], None]) -> None:
        """Tells each change of term or number, soon after it, until cancelled; then this one leads no more. Between
        two terms it always tells None."""
        told: tuple[int, int] | None = None
        if self._thread.ident is None:
            self._thread.start()
        try:
            while True:
                self._loop_at = self._clock()
                held = self.held
                now = held and (held.term, held.number)
                if told is not None and (now is None or now[0] != told[0]):
                    on_change(None)
                if held is not None and now != told:
                    on_change(held)
                told = now
                await asyncio.sleep(_TURN_SECONDS)
        finally:
            self.stop()
            await asyncio.to_thread(self._thread.join, STOP_SECONDS)

    def _run(self) -> None:
        while not self._ended:
            self.step()
            self._wake.wait(LOOK_SECONDS if self.held is None else RENEW_SECONDS)
            self._wake.clear()
        with suppress(StoreError):
            self._tell()
            self._store.renew(lease.stand_down, self.holder)

    def _step(self) -> None:
        with self._guard:
            held = self._held
            if held is not None and self._clock() >= held.until:
                held = self._held = None
        lively = self._clock() - self._loop_at < LOOP_SECONDS
        if held is None:
            self._tell()
            self._stand_by(lively=lively)
        elif lively:
            self._keep(held)

    def _tell(self) -> None:
        """What was given up is free for others."""
        if (number := self._given_up) is not None:
            self._store.renew(lease.release, self.holder, number)
            self._given_up = None

    def _keep(self, held: Held) -> None:
        seconds = self._seconds(LEASE_SECONDS if self._store.read(lease.accompanied, self.holder) else LONE_SECONDS)
        asked = self._clock()
        until = asked + seconds - MARGIN_SECONDS
        with self._guard:  # before the store has a lease that ends earlier
            if self._held is held and until < held.until:
                held = self._held = replace(held, until=until)
        number: int | None = held.number
        if self._least > held.number:
            number = self._store.update(lease.outgrow, self.holder, held.number, seconds, self._least)
        elif not self._store.renew(lease.renew, self.holder, held.number, seconds):
            number = None
        with self._guard:
            if number is None or (self._held is held and self._clock() >= held.until):
                self._held, self._given_up = None, number  # it has stopped meanwhile
            elif self._held is held:
                self._held = Held(held.term, number, until)
            else:
                self._given_up = number  # which it was meanwhile
        if self.reach < self.needed and self._store.read(lease.most_reach, self.holder) >= self.needed:
            _LOG.warning("another controller can work with most switches, and this one with %d: gives up", self.reach)
            self.resign()

    def _seconds(self, least: float) -> float:
        """Of a lease, on this machine now."""
        return max(least, min(LOOKS * self._slowest, MOST_SECONDS))

    def _stand_by(self, *, lively: bool) -> None:
        self.known = self._store.read(lease.leader)
        asked = self._clock()
        if self.known.until <= 0 and self.eligible and lively and asked >= self._rest_until and not self._ended:
            seconds = self._seconds(LEASE_SECONDS)
            number = self._store.update(lease.acquire, self.holder, self.name, seconds)
            if number is not None:
                self.known = Leader(self.name, number, seconds, self.known.revision)
                with self._guard:
                    self._held = Held(number, number, asked + seconds - MARGIN_SECONDS)
        elif asked >= self._present_at + PRESENCE_SECONDS:
            self._present_at = asked
            reach = self.reach if self.eligible else 0
            self._store.renew(lease.stand_by, self.holder, self.name, reach)
