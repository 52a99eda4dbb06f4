# SPDX-License-Identifier: Apache-2.0
"""What happens in a run: drawn from its seed before it begins, so that the same seed gives the same events again."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

import grpc

from tests.chaos.clients import ask
from tests.chaos.relay import Relay, Way
from tests.chaos.strangers import Stranger, add, take_away
from tests.chaos.world import SWITCHES, World

Undo = Callable[[], None]
LONGEST = 5.0  # seconds that an event lasts
_SPINES = ("spine1", "spine2")


@dataclass(frozen=True)
class Event:
    """`after` so many seconds since the one before, for so many `seconds`. `seed`: of what it chooses by itself."""

    after: float
    kind: str
    seconds: float
    controllers: tuple[str, ...]
    switches: tuple[str, ...]
    way: str  # "up", "down" or "both"
    size: int
    seed: int

    def __str__(self) -> str:
        where = f"{','.join(self.controllers)} | {','.join(self.switches)} | {self.way} | {self.size}"
        return f"{self.kind} for {self.seconds:.1f} s ({where})"

    @property
    def ways(self) -> frozenset[Way]:
        """The directions."""
        return frozenset(Way) if self.way == "both" else frozenset((Way(self.way),))


def draw(rng: random.Random, world: World, *, rough: bool, only: str = "") -> Event:
    """One. Where it is not `rough` nothing happens to switches that costs a packet. `only`: in its name."""
    kinds = {
        name: weight
        for name, (weight, is_rough, _) in _kinds(world).items()
        if only in name and (rough or only or not is_rough)
    }
    kind = rng.choices(list(kinds), list(kinds.values()))[0]
    few = min(rng.choices((1, 2, 3), (5, 2, 1))[0], len(world.controllers))
    return Event(
        after=rng.uniform(0.1, 1.4),
        kind=kind,
        seconds=rng.uniform(0.3, LONGEST),
        controllers=tuple(rng.sample(sorted(world.controllers), few)),
        switches=tuple(rng.sample(SWITCHES, rng.choice((1, 1, 2, 3, 5)))),
        way=rng.choice(("up", "down", "both")),
        size=int(10 ** rng.uniform(0, 4)),
        seed=rng.getrandbits(32),
    )


def begin(event: Event, world: World) -> Undo | None:
    """Lets it happen; what ends it."""
    _, _, function = _kinds(world)[event.kind]
    return function(event, world)


def _kinds(world: World) -> Mapping[str, tuple[int, bool, Callable[[Event, World], Undo | None]]]:
    """How often, whether it costs packets, and what it does."""
    found: dict[str, tuple[int, bool, Callable[[Event, World], Undo | None]]] = {
        "kill controllers": (5, False, _kill),
        "stop controllers": (2, False, _stop),
        "pause controllers": (5, False, _pause),
        "reload files": (1, False, _reload),
        "cut controllers from switches": (5, False, _cut),
        "hold up controllers and switches": (5, False, _hold),
        "delay controllers and switches": (3, False, _delay),
        "break connections to switches in the middle": (5, False, _break),
        "break connections of clients": (3, False, _break_http),
        "a stranger takes entries away": (3, False, _take_away),
        "a stranger adds entries": (3, False, _add),
        "a stranger fills the table of jobs": (2, False, _fill_table),
        "strangers outbid the leader": (2, False, _outbid),
        "drain a spine": (4, False, _drain),
        "kill switches": (4, True, _kill_switches),
        "pause switches": (4, True, _pause_switches),
        "a stranger takes any entries away": (2, True, _take_any),
    }
    if world.server is not None:
        found |= {
            "stop the store": (2, False, _stop_store),
            "pause the store": (2, False, _pause_store),
            "cut controllers from the store": (3, False, _cut_store),
            "hold up controllers and the store": (3, False, _hold_store),
        }
    else:
        found["lock the store"] = (4, False, _lock_store)
    if world.disk is not None:
        found["fill the disk"] = (3, False, _fill_disk)
    return found


def _kill(event: Event, world: World) -> Undo:
    return _end(event, world, signal.SIGKILL)


def _stop(event: Event, world: World) -> Undo:
    return _end(event, world, signal.SIGTERM)


def _end(event: Event, world: World, number: int) -> Undo:
    for name in event.controllers:
        if problem := world.controllers[name].end(number):
            world.jobs.complain(problem)

    def undo() -> None:
        for name in event.controllers:
            world.controllers[name].start()

    return undo


def _pause(event: Event, world: World) -> Undo:
    for name in event.controllers:
        world.controllers[name].signal(signal.SIGSTOP)

    def undo() -> None:
        for name in event.controllers:
            world.controllers[name].signal(signal.SIGCONT)

    return undo


def _reload(event: Event, world: World) -> None:
    for name in event.controllers:
        world.controllers[name].signal(signal.SIGHUP)


def _paths(event: Event, world: World) -> list[Relay]:
    return [world.paths[name, switch] for name in event.controllers for switch in event.switches]


def _healing(world: World, relays: list[Relay]) -> Undo:
    def undo() -> None:
        for each in relays:
            world.relays.heal(each)

    return undo


def _cut_all(world: World, relays: list[Relay]) -> Undo:
    for each in relays:
        world.relays.cut(each, refuse=True)
    return _healing(world, relays)


def _set_all(world: World, relays: list[Relay], **settings: object) -> Undo:
    for each in relays:
        world.relays.set(each, **settings)
    return _healing(world, relays)


def _cut(event: Event, world: World) -> Undo:
    return _cut_all(world, _paths(event, world))


def _hold(event: Event, world: World) -> Undo:
    return _set_all(world, _paths(event, world), held=event.ways)


def _delay(event: Event, world: World) -> Undo:
    return _set_all(world, _paths(event, world), delay=event.size / 10_000)


def _break(event: Event, world: World) -> Undo:
    way = Way.DOWN if event.way == "down" else Way.UP
    return _set_all(world, _paths(event, world), left=(way, event.size))


def _break_http(event: Event, world: World) -> Undo:
    way = Way.UP if event.way == "up" else Way.DOWN
    return _set_all(world, [world.to_http[name] for name in event.controllers], left=(way, event.size // 10))


def _stranger(world: World, switch: str, role: str = "stranger") -> Stranger | None:
    """None: the switch is away, or knows no roles, and then it may not write beside the controller."""
    role = "" if switch == "rack" and world.bmv2 else role
    with suppress(grpc.RpcError):
        return Stranger(world.readers[switch], world.addresses[switch], world.device_ids[switch], role)
    return None


def _visit(event: Event, world: World, what: Callable[[Stranger, random.Random], None]) -> None:
    rng = random.Random(event.seed)
    for switch in event.switches:
        if (stranger := _stranger(world, switch)) is not None:
            with suppress(grpc.RpcError):
                what(stranger, rng)
            stranger.close()


def _take_away(event: Event, world: World) -> None:
    _visit(event, world, lambda there, rng: take_away(there, world.schema, rng, harmful=False))


def _take_any(event: Event, world: World) -> None:
    for switch in event.switches:
        world.excused.begin(switch)
    _visit(event, world, lambda there, rng: take_away(there, world.schema, rng, harmful=True))


def _add(event: Event, world: World) -> None:
    _visit(event, world, lambda there, rng: add(there, world.schema, rng, fill=False))


def _fill_table(event: Event, world: World) -> None:
    _visit(event, world, lambda there, rng: add(there, world.schema, rng, fill=True))


def _outbid(event: Event, world: World) -> Undo:
    there = [stranger for switch in event.switches if (stranger := _stranger(world, switch, "")) is not None]
    for each in there:
        with suppress(grpc.RpcError):
            take_away(each, world.schema, random.Random(event.seed), harmful=False)

    def undo() -> None:
        for each in there:
            each.close()

    return undo


def _drain(event: Event, world: World) -> Undo:
    """The commands take seconds, in which others happen. They may be refused; at last see `undrain_all`."""
    spine = _SPINES[event.size % 2]

    def ask_for(what: str) -> None:
        world.background(lambda: _to_leader(world, f"/switches/{spine}/{what}"))

    ask_for("drain")
    return lambda: ask_for("undrain")


def undrain_all(world: World) -> bool:
    """Whether all switches are used again."""
    return all(_to_leader(world, f"/switches/{spine}/undrain") for spine in _SPINES)


def _to_leader(world: World, path: str) -> bool:
    for it in world.controllers.values():
        if it.running is not None and ask(it.http_port, world.token, "POST", path, seconds=8.0).status == 200:
            return True
    return False


def _kill_switches(event: Event, world: World) -> Undo:
    for name in event.switches:
        world.excused.begin(name)
        world.switches[name].stop()

    def undo() -> None:
        for name in event.switches:
            world.start_switch(name)

    return undo


def _pause_switches(event: Event, world: World) -> Undo:
    for name in event.switches:
        world.excused.begin(name)
        world.switches[name].signal(signal.SIGSTOP)

    def undo() -> None:
        for name in event.switches:
            world.switches[name].signal(signal.SIGCONT)

    return undo


def _stop_store(_event: Event, world: World) -> Undo:
    assert world.server is not None
    world.server.stop()
    return world.start_store


def _pause_store(_event: Event, world: World) -> Undo:
    assert world.server is not None
    world.pause_store()
    return lambda: world.pause_store(resume=True)


def _cut_store(event: Event, world: World) -> Undo:
    return _cut_all(world, [world.to_store[name] for name in event.controllers])


def _hold_store(event: Event, world: World) -> Undo:
    return _set_all(world, [world.to_store[name] for name in event.controllers], held=event.ways)


def _lock_store(event: Event, world: World) -> None:
    world.lock_store(event.seconds)


def _fill_disk(_event: Event, world: World) -> Undo:
    world.fill_disk()
    return world.empty_disk
