# SPDX-License-Identifier: Apache-2.0
"""What the controller does in time, and what not: which of its rounds say something about links."""

import asyncio
from collections.abc import Callable, Collection, Sequence
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gradlane_controller.network.links import ROUND, Links
from gradlane_controller.session.link_checks import LinkChecks
from tests.gradlane_controller.link_world import ALL, CUT, World
from tests.gradlane_controller.texts import leafspine_text
from tests.support.virtual_time import Clock, run


class Switch:
    """Takes what it is sent at once; of frames by a port of `stuck` it takes none, and never says that it is ready."""

    def __init__(self, world: World, name: str, clock: Clock) -> None:
        self.where = SimpleNamespace(name=name)
        self.connection = SimpleNamespace(connected=True, primary=True)
        self.late = False
        self.stuck: Collection[int] = ()
        self.deaf: Collection[tuple[str, int]] = ()
        self.stall = 0.0  # seconds for which the controller has no turn, in each of
        self.stalls = 0  # so many rounds
        self.rounds = 0
        self.clock = clock
        self._world = world

    def send(self, frames: Sequence[tuple[int, bytes]]) -> "asyncio.Future[None] | None":
        self.rounds += 1
        self.clock.now += self.stall if self.rounds <= self.stalls else 0.0
        taken = asyncio.get_running_loop().create_future()
        if not self.stuck:
            taken.set_result(None)
        going = [it for it in frames if it[0] not in self.stuck]
        for where, frame in self._world.cross(self.where.name, going, deaf=self.deaf):
            self._world.arrive(where, frame)
        return taken if frames else None


def fabric(deaf: Collection[tuple[str, int]] = ()) -> tuple[World, list[Switch]]:
    """Links and switches of which all are in time; at those ends nothing arrives."""
    world, clock = World(leafspine_text()), Clock()
    switches = [Switch(world, name, clock) for name in ALL]
    for switch in switches:
        switch.deaf = deaf
    return world, switches


def check(world: World, switches: Sequence[Switch], until: Callable[[LinkChecks], bool]) -> None:
    """Checks the links until that is so."""

    async def main() -> None:
        checks = LinkChecks(world.links, cast(Any, switches), lambda: None)
        task = asyncio.create_task(checks.run())
        while not until(checks):
            assert not task.done()
            await asyncio.sleep(ROUND / 5)
        task.cancel()

    run(asyncio.wait_for(main(), 600), switches[0].clock)


def is_known(checks: LinkChecks) -> bool:
    return checks.known.is_set()


def test_links_are_not_known_before_they_were_looked_at_in_time() -> None:
    """A controller that has just come would otherwise use a link that is down."""
    world, switches = fabric(deaf=CUT)
    switches[0].stall, switches[0].stalls = 2 * ROUND, 30
    check(world, switches, is_known)
    assert switches[0].rounds > 30
    assert world.links.down == CUT


def test_a_controller_that_is_never_in_time_takes_links_as_they_are() -> None:
    world, switches = fabric(deaf=CUT)
    switches[0].stall, switches[0].stalls = 2 * ROUND, 1_000_000
    check(world, switches, is_known)
    assert world.links.down == frozenset()


def test_what_a_switch_has_not_yet_taken_takes_no_link_down() -> None:
    world, switches = fabric()
    switches[0].stuck = (6,)
    check(world, switches, lambda _: switches[0].rounds > 60)
    assert world.links.down == frozenset()


def test_what_was_known_before_others_led_is_found_out_again() -> None:
    world, switches = fabric()

    def has_led_twice(checks: LinkChecks) -> bool:
        if checks.known.is_set() and not switches[0].deaf:
            for switch in switches:
                switch.deaf = CUT
            checks.begin_anew()
        return checks.known.is_set()

    check(world, switches, has_led_twice)
    assert world.links.down == CUT


class Few(Links):
    """Of which few are in doubt in ten rounds of twenty. `begun`: when each began, whether it was whole, and that."""

    def __init__(self, world: World) -> None:
        super().__init__(world.fabric)
        self.begun: list[tuple[float, bool, bool]] = []

    @property
    def often(self) -> bool:
        return len(self.begun) % 20 >= 10

    def begin(self, *, whole: bool = True) -> dict[str, list[tuple[int, bytes]]]:
        self.begun.append((asyncio.get_running_loop().time(), whole, self.often))
        return super().begin(whole=whole)


def few() -> tuple[Few, World, list[Switch]]:
    world, switches = fabric()
    world.links = links = Few(world)
    return links, world, switches


def test_while_few_links_are_in_doubt_there_is_another_round_in_between() -> None:
    links, world, switches = few()
    check(world, switches, lambda _: len(links.begun) > 40)
    begun = links.begun[:41]
    assert [whole for _, whole, often in begun[:40] if not often] == 20 * [True]
    assert [whole for _, whole, often in begun[:40] if often] == 2 * 5 * [False, True]
    apart = [b - a for (a, *_), (b, *_) in pairwise(begun)]
    assert apart == pytest.approx(2 * [*10 * [ROUND], *10 * [ROUND / 2]])


def test_a_machine_that_is_too_busy_for_them_has_whole_rounds_until_no_link_is_in_doubt() -> None:
    links, world, switches = few()
    switches[0].stall, switches[0].stalls = 0.4 * ROUND, 11  # the last one is in a part of a round
    check(world, switches, lambda _: len(links.begun) > 40)
    assert [whole for _, whole, _ in links.begun[10:20]] == [False, *9 * [True]]
    assert [whole for _, whole, _ in links.begun[30:40]] == 5 * [False, True]
