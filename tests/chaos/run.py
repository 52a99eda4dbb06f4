# SPDX-License-Identifier: Apache-2.0
"""A chaos run: random events happen to controllers, switches, their store and all connections between them, while jobs
come and go and packets flow; again and again all is mended, and has to come to what it should be.

    python -m tests.chaos.run --seed 7 --events 200 --store postgresql

What is true is found out past the controllers: entries are read from the switches, jobs are what clients were told,
writes are seen on the connections, and packets are counted where they arrive.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import grpc

from gradlane.job import JobError
from tests.chaos import entries, events, written
from tests.chaos.clients import Client
from tests.chaos.patience import Patience
from tests.chaos.ports import dropped
from tests.chaos.traffic import SETTLE_SECONDS
from tests.chaos.world import SWITCHES, World

RECOVERY_SECONDS = 60.0
"""In which all is as it should be, after the last event: the longest lease (10 s); a session that has fallen silent is
found (a heartbeat after 2 s, no answer in 4), its next one fails once more (4 s) and is tried again after the longest
pause (8 s); then a round of reading, within which what strangers have done is found (half a minute): 58 s.
docs/controller.md has each."""

MOST_TIMES = 3  # as long, where processes have to wait for a processor: then nothing can be said
CLIENTS = 2
_ROUND = (5, 9)  # events before all is mended
_TURN = 0.1
_LOOK = 0.5  # seconds between two; each reads some thousand entities
_SHOWN = 400  # lines of a failure


class TooBusyError(Exception):
    """The machine has had no time for the run, which says nothing then."""


class ChaosError(AssertionError):
    """Something has happened that must not, with what is needed to see it again."""


class Run:
    """`events` of them, drawn from `seed`, in a world that is not started yet."""

    def __init__(self, world: World, seed: int, count: int, only: str = "") -> None:
        """`only`: events whose name has that in it."""
        self._world, self._seed, self._count, self._only = world, seed, count, only
        self._random = random.Random(seed)
        self._begun = time.monotonic()
        self._timeline: list[tuple[float, str]] = []
        self._clients: list[Client] = []
        self._ends: list[tuple[float, int, str, Callable[[], None]]] = []
        self._order = itertools.count()
        self.kinds: Counter[str] = Counter()
        self.recoveries: list[float] = []  # seconds

    def run(self) -> None:
        """All of it. Raises ChaosError."""
        world = self._world
        world.start()
        for name in SWITCHES:  # until all of them have their entries
            world.excused.begin(name)
        world.traffic.start()
        ports = [world.to_http[name].port for name in world.controllers]
        self._clients = [Client(n, ports, world.token, world.jobs, self._seed) for n in range(1, CLIENTS + 1)]
        for each in self._clients:
            each.start()
        try:
            self._settle()
            while self._count > 0:
                self._round(min(self._count, self._random.randrange(*_ROUND)))
        finally:
            for each in self._clients:
                each.end()
        world.traffic.stop()
        self._judge(time.monotonic())

    def _round(self, count: int) -> None:
        """Some events, and then all is mended."""
        rough = self._random.random() < 0.5
        drawn = [events.draw(self._random, self._world, rough=rough, only=self._only) for _ in range(count)]
        self._note(f"a round of {count} events" + (", also at switches" if rough else ""))
        for each in self._clients:
            each.resume()
        for each in drawn:
            self._wait(each.after)
            self._note(str(each))
            self.kinds[each.kind] += 1
            undo = events.begin(each, self._world)
            if undo is not None:
                heapq.heappush(self._ends, (time.monotonic() + each.seconds, next(self._order), each.kind, undo))
            self._count -= 1
        while self._ends:
            self._wait(max(self._ends[0][0] - time.monotonic(), 0))
        self._heal()
        self._settle()

    def _wait(self, seconds: float) -> None:
        """Ends what is due meanwhile."""
        end = time.monotonic() + seconds
        while True:
            now = time.monotonic()
            while self._ends and self._ends[0][0] <= now:
                _, _, kind, undo = heapq.heappop(self._ends)
                undo()
                self._note(f"over: {kind}")
            self._tend()
            if now >= end:
                return
            time.sleep(min(_TURN, end - now))

    def _tend(self) -> None:
        for it in self._world.controllers.values():
            last = it.tend()
            if last is not None:
                self._note(f"controller {it.name} has ended by itself: {last}")
                # Without the store none can begin, nor before it has begun can it take SIGHUP.
                if "store " not in last and f"exit code -{signal.SIGHUP.value}:" not in last:
                    self._fail(f"controller {it.name} has ended by itself: {last}")

    def _heal(self) -> None:
        """Nothing is broken any more."""
        world = self._world
        if world.server is not None:
            world.start_store()
            world.pause_store(resume=True)
        if world.disk is not None:
            world.empty_disk()
        for relay in world.all_relays():
            world.relays.heal(relay)
        for name in SWITCHES:
            world.switches[name].signal(signal.SIGCONT)
            world.start_switch(name)
        for it in world.controllers.values():
            it.signal(signal.SIGCONT)
            it.start()
        self._note("all is mended")

    def _settle(self) -> None:
        """Waits until all is as it should be, and no longer than that may take."""
        world, begun = self._world, time.monotonic()
        deadline = Patience(RECOVERY_SECONDS, world.pids)
        for each in self._clients:
            each.rest()
        while asking := [it.doing for it in self._clients if it.doing]:
            self._check_deadline(deadline, "; ".join(asking))
        while world.in_background:
            self._check_deadline(deadline, "what was asked for in the background has no answer")
        drained = self.kinds["drain a spine"] > 0
        while drained and not events.undrain_all(world):
            self._check_deadline(deadline, "a spine is not undrained")
        while problem := self._difference():
            self._check_deadline(deadline, problem)
        since = time.monotonic()
        self.recoveries.append(since - begun)
        while stuck := [str(it) for it in world.flows if it not in world.traffic.flowing()]:
            self._check_deadline(deadline, f"packets do not get through: {', '.join(stuck)}")
        world.excused.end()
        self._note(f"all is as it should be after {since - begun:.1f} s; {world.jobs.describe()}")
        self._judge(time.monotonic() - SETTLE_SECONDS)

    def _check_deadline(self, deadline: Patience, problem: str) -> None:
        self._tend()
        time.sleep(_LOOK)
        if deadline.taken > MOST_TIMES * RECOVERY_SECONDS:
            raise TooBusyError(f"after {deadline.taken:.0f} s, most of which others had the processors: {problem}")
        if deadline.is_over():
            self._fail(f"{RECOVERY_SECONDS:g} s after the last event: {problem}")

    def _difference(self) -> str:
        """How switches differ from what clients were told. Empty: not at all."""
        world = self._world
        found: dict[str, entries.State] = {}
        known: dict[str, dict[int, int]] = {}
        for name, reader in world.readers.items():
            try:
                read = reader.read()
            except grpc.RpcError as problem:
                return f"{name} can't be read: {problem}"
            found[name], known[name] = entries.state(read), entries.indices(world.schema, read)
        numbers = known[SWITCHES[0]]
        if any(it != numbers for it in known.values()):
            return f"switches know different jobs: {known}"
        nearest = f"jobs {sorted(numbers)} are there; clients were told: {world.jobs.describe()}"
        fewest = sys.maxsize
        for jobs in world.jobs.possible(numbers):
            try:
                wanted = entries.wanted(world.schema, world.fabric, jobs.values(), numbers)
            except JobError:
                continue
            wrong = [
                f"{name} {what} {entries.describe(world.schema, key)}"
                for name in SWITCHES
                for what, key in compare(found[name], wanted[name])
            ]
            if not wrong and {it.id for it in jobs.values()} == numbers.keys():
                world.jobs.settle(jobs)
                return ""
            if 0 < len(wrong) < fewest:
                fewest = len(wrong)
                nearest = f"{len(wrong)} differences: {'; '.join(wrong[:10])}; clients: {world.jobs.describe()}"
        return nearest

    def _judge(self, until: float) -> None:
        """What must not have happened until then. Raises ChaosError."""
        world = self._world
        broken = [*world.jobs.broken, *written.broken(world.writes.writes)]
        lost = world.excused.unexplained(world.traffic.lost(until))
        if 0 < len(lost) <= dropped():
            self._note(f"{len(lost)} packets are lost to a machine that is too busy")
            lost = []
        for flow in {it.flow for it in lost}:
            times = [it.sent for it in lost if it.flow == flow]
            span = f"{min(times) - self._begun:.2f} to {max(times) - self._begun:.2f} s"
            broken.append(f"{flow}: {len(times)} packets are lost, of those sent from {span}")
        if broken:
            self._fail("; ".join(broken))

    def _note(self, what: str) -> None:
        self._timeline.append((time.monotonic(), f"--- {what}"))

    @property
    def timeline(self) -> list[str]:
        """What has happened, and what controllers have said of it, in seconds since the beginning."""
        said = [(at, f"{it.name}: {line}") for it in self._world.controllers.values() for at, line in it.log]
        return [f"{at - self._begun:8.3f} {line}" for at, line in sorted((*self._timeline, *said))]

    def _again(self, count: int) -> str:
        world = self._world
        options = f"--seed {self._seed} --events {count} --store {world.store} --controllers {len(world.controllers)}"
        return f"python -m tests.chaos.run {options}" + (f' --only "{self._only}"' if self._only else "")

    def _fail(self, what: str) -> None:
        count = sum(self.kinds.values()) + self._count
        again = f"again: {self._again(count)}"
        raise ChaosError("\n".join([what, again, *self.timeline[-_SHOWN:], what]))


def compare(found: entries.State, wanted: entries.State) -> list[tuple[str, entries.Key]]:
    """What is wrong with the first, by the second: in what way, and where."""
    lacking = [("lacks", key) for key in wanted.keys() - found.keys()]
    more = [("has", key) for key in found.keys() - wanted.keys()]
    return [
        *lacking,
        *more,
        *(("has another value in", key) for key in found.keys() & wanted if found[key] != wanted[key]),
    ]


def chaos(
    seed: int, count: int, store: str, folder: Path, controllers: int = 3, *, with_bmv2: bool = False, only: str = ""
) -> None:
    """A run, which prints all of its timeline and what it has seen, in a line. Raises ChaosError."""
    world = World(folder, store, controllers, with_bmv2=with_bmv2)
    try:
        run = Run(world, seed, count, only)
        run.run()
    finally:
        world.close()
    print("\n".join(run.timeline))
    writers = len({it.election_id for it in world.writes.writes if it.taken})
    print(
        f"seed {seed}: {sum(run.kinds.values())} events; {world.jobs.acknowledged} changes of jobs; "
        f"{len(world.writes.writes)} writes by {writers} leaders; {world.traffic.sent} packets; "
        f"{len(run.recoveries)} recoveries, {max(run.recoveries):.1f} s at most"
    )


def main() -> int:
    """As the module says; exit code 1 if something has happened that must not, 2 if the machine was too busy."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.run", description=(__doc__ or "").partition("\n\n")[0])
    add = parser.add_argument
    add("--seed", type=int, default=None, metavar="N", help="of the events (default: drawn)")
    add("--events", type=int, default=200, metavar="N", help="how many (default: %(default)s)")
    add("--store", choices=("sqlite", "postgresql"), default="postgresql", help="(default: %(default)s)")
    add("--controllers", type=int, choices=(2, 3), default=3, metavar="N", help="how many (default: %(default)s)")
    add("--only", default="", metavar="TEXT", help='events with that in their name, e.g. "pause"')
    options = parser.parse_args()
    seed = random.randrange(1 << 32) if options.seed is None else options.seed
    print(f"chaos: seed {seed}, {options.events} events", flush=True)
    with tempfile.TemporaryDirectory(prefix="gradlane-chaos-") as folder:
        try:
            chaos(
                *(seed, options.events, options.store, Path(folder), options.controllers),
                with_bmv2=True,
                only=options.only,
            )
        except (ChaosError, TooBusyError) as problem:
            print(problem, file=sys.stderr)
            return 1 if isinstance(problem, ChaosError) else 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
