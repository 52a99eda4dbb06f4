# SPDX-License-Identifier: Apache-2.0
"""Who leads: at most one at any time, whatever is late, paused, lost or started anew."""

import asyncio
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from sqlalchemy import text

from gradlane_controller import leadership
from gradlane_controller.errors import StoreError
from gradlane_controller.leadership import LEASE_SECONDS, LONE_SECONDS, MARGIN_SECONDS, REST_SECONDS, Held, Leadership
from gradlane_controller.store import Store, lease
from tests.support.effort import tries


class World:
    """The time, and a store whose answers take some of it, or don't come."""

    def __init__(self, store: Store) -> None:
        self.now = 1000.0
        self.store = store
        self.before = self.after = 0.0  # seconds that the next operation takes until it is done, and until it says so
        self.fails: str | None = None  # "before" it is done, or "after"
        self.at_work: Callable[[], None] = lambda: None  # what others do while one waits
        self.skip = 0  # operations before the one to which all that applies

    def clock(self) -> float:
        return self.now

    def read(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return self._do(self.store.read, function, arguments)

    def update(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return self._do(self.store.update, function, arguments)

    def renew(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return self._do(self.store.renew, function, arguments)

    def _do(self, how: Callable[..., Any], function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        if self.skip:
            self.skip -= 1
            return how(function, *arguments)
        before, after, fails, at_work = self.before, self.after, self.fails, self.at_work
        self.before, self.after, self.fails, self.at_work = 0.0, 0.0, None, lambda: None
        self.now += before
        at_work()
        if fails == "before":
            raise StoreError("gone")
        result = how(function, *arguments)
        self.now += after
        if fails == "after":
            raise StoreError("gone", unsure=True)
        return result


@pytest.fixture(scope="module")
def opened() -> Iterator[Store]:
    memory = Path("/dev/shm")  # what is in it need not be written to a disk
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        store = Store.open(f"sqlite:///{folder}/store.db")
        yield store
        store.close()


def begin(store: Store, monkeypatch: pytest.MonkeyPatch) -> World:
    world = World(store)
    monkeypatch.setattr(lease, "_now", lambda _session: (world.now, "this boot"))
    with store.engine.begin() as connection:
        connection.execute(text("UPDATE leadership SET number = 0, holder = NULL, expires = 0"))
        connection.execute(text("DELETE FROM controllers"))
    return world


@pytest.fixture
def world(opened: Store, monkeypatch: pytest.MonkeyPatch) -> World:
    return begin(opened, monkeypatch)


def controller(world: World, name: str = "a") -> Leadership:
    it = Leadership(world, name, world.clock)  # pyright: ignore[reportArgumentType]
    it._loop_at = float("inf")  # its loop never hangs
    return it


def step(it: Leadership) -> Held | None:
    it.step()
    return it.held


class Machine(RuleBasedStateMachine):
    """Controllers take their steps in any order, at any time; answers come late or never; processes die and return."""

    store: Store
    monkeypatch: pytest.MonkeyPatch
    COUNT = 3

    @initialize()
    def start(self) -> None:
        self.world = begin(self.store, self.monkeypatch)
        self.controllers = [controller(self.world, str(n)) for n in range(self.COUNT)]
        self.terms: dict[int, Leadership] = {}
        self.numbers: list[tuple[int, Leadership]] = []

    @rule(who=st.integers(0, COUNT - 1))
    def look(self, who: int) -> None:
        self.controllers[who].step()

    @rule(seconds=st.floats(0, 3))
    def wait(self, seconds: float) -> None:
        self.world.now += seconds

    @rule(
        who=st.integers(0, COUNT - 1),
        skip=st.integers(0, 2),
        others=st.lists(st.integers(0, COUNT - 1), max_size=4),
        before=st.floats(0, 4),
        after=st.floats(0, 4),
        fails=st.sampled_from([None, None, "before", "after"]),
    )
    def look_slowly(
        self, who: int, skip: int, others: list[int], before: float, after: float, fails: str | None
    ) -> None:
        """It is held up (or paused) in the middle; meanwhile others take steps."""

        def meanwhile() -> None:
            self.world.skip = 0
            for other in others:
                if other != who:
                    self.controllers[other].step()
                    self.check()

        self.world.before, self.world.after, self.world.fails, self.world.at_work = before, after, fails, meanwhile
        self.world.skip = skip
        self.controllers[who].step()
        self.world.before = self.world.after = self.world.skip = 0
        self.world.fails, self.world.at_work = None, lambda: None

    @rule(who=st.integers(0, COUNT - 1))
    def resign(self, who: int) -> None:
        self.controllers[who].resign()
        assert self.controllers[who].held is None

    @rule(who=st.integers(0, COUNT - 1), least=st.integers(0, 100))
    def outgrow(self, who: int, least: int) -> None:
        self.controllers[who].outgrow(least)

    @rule(who=st.integers(0, COUNT - 1))
    def die(self, who: int) -> None:
        self.controllers[who] = controller(self.world, str(who))

    @invariant()
    def check(self) -> None:
        leaders = [(it.held, it) for it in self.controllers if it.held is not None]
        assert len(leaders) <= 1
        for held, it in leaders:
            assert held is not None
            stored = self.world.store.read(lease.leader)
            assert stored.until > 0, "the lease has run out, and this one still leads"
            # An answer that was lost may have told of a greater number: this one renews its lease no more.
            assert stored.number >= held.number
            assert stored.name == it.name
            if not self.numbers or self.numbers[-1] != (held.number, it):
                assert all(number < held.number for number, _ in self.numbers)
                self.numbers.append((held.number, it))


def test_at_most_one_leads_in_any_interleaving(opened: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    Machine.store, Machine.monkeypatch = opened, monkeypatch
    run_state_machine_as_test(Machine, settings=settings(max_examples=tries(60), stateful_step_count=30))


def test_a_leader_stops_before_another_one_can_begin(world: World) -> None:
    first, second = controller(world, "a"), controller(world, "b")
    held = step(first)
    assert held is not None
    assert held.number == held.term == 1
    assert step(second) is None
    assert second.describe() == "a leads"
    world.now += LEASE_SECONDS - MARGIN_SECONDS - 0.01
    assert first.held is not None
    assert step(second) is None
    world.now += 0.02
    assert first.held is None
    assert step(second) is None, "not yet"
    world.now += MARGIN_SECONDS
    held = step(second)
    assert held is not None
    assert held.number == 2
    assert step(first) is None


def test_who_renews_goes_on_and_who_can_not_stops_in_time(world: World) -> None:
    it = controller(world)
    for _ in range(20):
        assert step(it) is not None
        world.now += 1.0
    world.fails = "before"
    assert step(it) is not None, "one failure does not matter"
    assert "gone" in it.to_json()["store"]
    world.now += LONE_SECONDS - MARGIN_SECONDS - 0.9
    assert it.held is None
    assert step(it) is None, "its own lease is still there, by another number"
    world.now += 1.0
    held = step(it)
    assert held is not None
    assert held.number == 2
    assert it.to_json() == {"name": "a", "leader": True, "number": 2, "who": "a leads", "store": ""}


def test_where_looks_at_the_store_are_slow_leases_are_longer_for_a_while(world: World) -> None:
    it, other = controller(world), controller(world, "b")
    assert step(it) is not None
    lengths: list[float] = []
    for wait in (0.4, 0.4, 1.5, *[0.4] * 200):
        world.now += wait
        step(other)
        step(it)
        held = step(it)
        assert held is not None
        lengths.append(round(held.until + MARGIN_SECONDS - world.now, 6))
    assert lengths[:2] == pytest.approx([LEASE_SECONDS] * 2)
    assert 0.9 * leadership.LOOKS * 1.5 < lengths[2] <= leadership.LOOKS * 1.5
    assert lengths[2:] == sorted(lengths[2:], reverse=True)
    assert lengths[-1] == pytest.approx(LEASE_SECONDS)
    world.now += 100.0
    step(it)
    held = step(it)
    assert held is not None
    assert held.until - world.now == pytest.approx(leadership.MOST_SECONDS - MARGIN_SECONDS)


def test_a_lease_is_believed_in_from_before_it_was_asked_for(world: World) -> None:
    """Not from the answer, and not from when the store did it: it may have taken the time before that."""
    it = controller(world)
    for seconds in (LEASE_SECONDS, LONE_SECONDS, LONE_SECONDS):  # it is taken, and then renewed
        world.before, world.after, world.skip = 0.5, 0.25, 1  # what is read first
        asked = world.now
        held = step(it)
        assert held is not None
        assert (held.until, world.now) == (asked + seconds - MARGIN_SECONDS, asked + 0.75)


def test_an_answer_that_comes_too_late_is_no_lease(world: World) -> None:
    it = controller(world)
    world.after, world.skip = LEASE_SECONDS, 1
    assert step(it) is None
    world.now += 0.1
    held = step(it)
    assert held is not None
    assert held.number == 2


def test_an_answer_that_comes_after_it_has_given_up_is_no_lease(world: World) -> None:
    it = controller(world)
    assert step(it) is not None
    world.at_work = it.resign
    assert step(it) is None
    other = controller(world, "b")
    assert step(other) is None
    it.step()  # tells the store
    assert step(other) is not None
    assert step(it) is None


def test_who_gives_up_lets_others_lead_first(world: World) -> None:
    first, second = controller(world, "a"), controller(world, "b")
    step(first)
    first.resign()
    assert step(first) is None
    assert step(first) is None
    world.now += REST_SECONDS + 0.1
    assert step(second) is not None, "the store knows at once"


def test_a_loop_that_hangs_loses_the_lease(world: World) -> None:
    first, second = controller(world, "a"), controller(world, "b")
    first._loop_at = world.now
    for _ in range(int(leadership.LOOP_SECONDS)):
        assert step(first) is not None
        world.now += 0.99
    world.now += 0.5
    step(first)
    assert step(second) is None
    world.now += LONE_SECONDS
    assert step(first) is None
    assert step(second) is not None


def test_a_controller_that_is_cut_off_from_most_switches_makes_room_for_one_that_is_not(world: World) -> None:
    first, second, third = (controller(world, name) for name in "abc")
    for it in (first, second, third):
        it.needed, it.reach = 3, 4
    second.reach = 2
    assert step(first) is not None
    world.now += 1
    step(second)
    first.reach = 2
    assert step(first) is not None, "nobody else is better off"
    world.now += 1
    step(third)
    assert step(first) is None
    step(first)
    assert step(third) is not None


def test_who_sees_a_stranger_lead_does_not(world: World) -> None:
    it = controller(world)
    it.eligible = False
    assert step(it) is None
    world.now += 10
    assert step(it) is None
    it.eligible = True
    assert step(it) is not None


def test_the_number_grows_beyond_what_a_switch_has_seen(world: World) -> None:
    it = controller(world)
    step(it)
    it.outgrow(500)
    held = step(it)
    assert held is not None
    assert (held.term, held.number) == (1, 500)
    it.outgrow(20)
    assert step(it) == Held(1, 500, world.now + LONE_SECONDS - MARGIN_SECONDS)


def test_the_lease_is_short_once_another_one_stands_by_and_nobody_believes_in_the_long_one(world: World) -> None:
    first, second = controller(world, "a"), controller(world, "b")
    step(first)
    held = step(first)
    assert held is not None
    assert held.until == world.now + LONE_SECONDS - MARGIN_SECONDS
    assert step(second) is None
    believed: list[float | None] = []
    world.skip, world.at_work = 1, lambda: believed.append(first.held and first.held.until)
    held = step(first)
    assert held is not None
    assert held.until == world.now + LEASE_SECONDS - MARGIN_SECONDS
    assert believed[-1] == held.until, "before the store has it"


def test_changes_are_told_and_a_clean_stop_gives_up_at_once(tmp_path: Path) -> None:
    store = Store.open(f"sqlite:///{tmp_path}/store.db")
    told: list[int | None] = []
    it = Leadership(store, "a")

    async def run() -> None:
        task = asyncio.create_task(it.watch(lambda held: told.append(held and held.number)))
        await until(lambda: told == [1])
        it.outgrow(7)
        await until(lambda: told == [1, 7])
        it.resign()
        await until(lambda: told == [1, 7, None])
        await until(lambda: told == [1, 7, None, 8])
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(run())
    assert it.held is None
    assert store.read(lease.leader).until <= 0
    assert not store.read(lease.accompanied, "")  # nor does it stand by, as it did when it had resigned
    assert not [each for each in threading.enumerate() if each.name == "leadership"]
    store.close()


async def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        await asyncio.sleep(0.01)


def test_the_lease_is_renewed_from_the_first_look_on(tmp_path: Path) -> None:
    store = Store.open(f"sqlite:///{tmp_path}/store.db")
    it = Leadership(store, "a")

    async def run() -> None:
        it._loop_at -= 3600  # files and a plan took long to be made
        await it.start()
        held = it.held
        assert held is not None
        await until(lambda: it.held is not None and it.held.until > held.until)
        it.stop()
        assert it.held is None
        await asyncio.to_thread(it._thread.join, 60)

    asyncio.run(run())
    assert store.read(lease.leader).until <= 0
    store.close()
