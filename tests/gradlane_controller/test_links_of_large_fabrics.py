# SPDX-License-Identifier: Apache-2.0
"""How links of large fabrics are looked at: seldom, as it is work, and sooner where something has failed."""

import pytest

from gradlane_controller.network import fabric_file
from gradlane_controller.network.links import ENOUGH, MIN_INTERVAL, ROUND, WATCHED_PER_SECOND, Links
from tests.gradlane_controller.link_world import ALL, World
from tests.gradlane_controller.texts import leafspine_text

OF_SPINE1 = frozenset({("leaf1", 5), ("leaf2", 5), ("spine1", 1), ("spine1", 2)})
LOOK = round(MIN_INTERVAL / ROUND)  # rounds in which each link of a small fabric is looked at once


@pytest.fixture
def world() -> World:
    it = World(leafspine_text())
    assert not any(it.rounds(2 * LOOK))
    return it


def test_large_fabrics_are_looked_at_less_often() -> None:
    text = leafspine_text().partition("[[link]]")[0]
    for number in range(240):
        for leaf, spine in ((1, 1 + number % 2), (2, 2 - number % 2)):
            text += f'[[link]]\nends = ["leaf{leaf}:{number + 9}", "spine{spine}:{number + 9}"]\n'
            text += 'rate = "1gbit"\nbuffer = "64kB"\n'
    assert Links(fabric_file.parse(text, "f.toml")).rounds == round(480 / WATCHED_PER_SECOND / ROUND)


def test_the_links_that_one_switch_asks_are_looked_at_together() -> None:
    """Else each round would send a frame or two to each of many switches, which takes the controller longer."""
    it = World(leafspine_text(spines=5))
    it.rounds(2 * LOOK, present=(*ALL, "spine3", "spine4", "spine5"))
    assert sorted(list(it.links.begin()) for _ in range(LOOK)) == [
        ["leaf1"],
        ["leaf1"],
        ["leaf1", "leaf2"],
        ["leaf2"],
        ["leaf2"],
    ]


def test_a_switch_that_has_failed_is_gone_around_as_soon_as_one_of_its_links(monkeypatch: pytest.MonkeyPatch) -> None:
    """However seldom the others are looked at."""
    monkeypatch.setattr("gradlane_controller.network.links.WATCHED_PER_SECOND", 2)
    it = World(leafspine_text())
    it.rounds(2 * it.links.rounds)
    assert it.links.rounds == 40
    for _ in range(it.links.rounds):
        if it.rounds(1, dead={"spine1"}) and it.links.often:
            break
    else:
        pytest.fail("none is in doubt")
    assert sum(it.rounds(ENOUGH + 2, dead={"spine1"})) == 2
    assert it.links.down == OF_SPINE1


def test_between_two_looks_only_what_is_in_doubt_is_sent_anything(world: World) -> None:
    assert not world.links.often
    assert not world.links.begin(whole=False)
    world.links.doubt("spine1")
    assert world.links.often
    asked = world.links.probe(next(it for it in world.fabric.link_ports_at("leaf1") if it.number == 5))
    for _ in range(3 * LOOK):
        frames = world.links.begin(whole=False)
        assert {(switch, port) for switch, sent in frames.items() for port, _ in sent} >= OF_SPINE1
    assert world.links.hear_probe("leaf1", 5, asked), "its seal holds for as long as ever"
    world.rounds(LOOK)
    assert not world.links.often


def test_links_of_which_many_are_in_doubt_are_not_examined_twice_as_often() -> None:
    it = Links(fabric_file.parse(leafspine_text(spines=5), "f.toml"))
    for spines, often in ((4, True), (5, False)):
        for spine in range(1, spines + 1):
            it.doubt(f"spine{spine}")
        assert it.often is often
