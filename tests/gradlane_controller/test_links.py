# SPDX-License-Identifier: Apache-2.0
"""When a link counts as down, when it works again, and what is said about it."""

import logging
from collections.abc import Collection
from ipaddress import ip_address
from random import Random

import pytest
from scapy.layers.inet import ICMP, IP
from scapy.layers.l2 import Ether

from gradlane_controller.network import fabric_file
from gradlane_controller.network.fabric import Fabric, LinkPort
from gradlane_controller.network.frames import make_lldp, make_probe, parse_lldp
from gradlane_controller.network.links import (
    ENOUGH,
    EXAMINATION,
    MIN_INTERVAL,
    RETURN,
    ROUND,
    Links,
)
from tests.gradlane_controller.link_world import ALL, CUT, World
from tests.gradlane_controller.texts import leafspine_text

LIVING = ("leaf1", "leaf2", "spine2")  # without spine1
OF_SPINE1 = frozenset({("leaf1", 5), ("leaf2", 5), ("spine1", 1), ("spine1", 2)})
LOOK = round(MIN_INTERVAL / ROUND)  # rounds in which each link is looked at once
FOUND = LOOK + 1 + ENOUGH  # at most so many until a link is down: it is looked at, in doubt, and examined
BACK = LOOK * (RETURN + 1)  # ... until it works again


@pytest.fixture
def world() -> World:
    it = World(leafspine_text())
    assert not any(it.rounds(2 * LOOK))
    return it


@pytest.mark.parametrize("deaf", [{("leaf2", 5)}, {("spine1", 2)}, CUT])
def test_a_link_that_is_cut_in_one_or_both_directions_is_down_within_a_look_and_eight_rounds(
    world: World, caplog: pytest.LogCaptureFixture, deaf: Collection[tuple[str, int]]
) -> None:
    assert (FOUND + 1) * ROUND < 0.8, "goes around a failed link within 1 s"
    with caplog.at_level(logging.WARNING):
        assert sum(world.rounds(FOUND, deaf=deaf)) == 1
        assert world.links.down == CUT
        assert sum(world.rounds(BACK)) == 1
    assert world.links.down == frozenset()
    where = " and ".join(f"{switch}:{port}" for switch, port in sorted(deaf))
    assert caplog.messages == [
        f"link leaf2:5 - spine1:2 is down: nothing arrives at {where}",
        "link leaf2:5 - spine1:2 works",
    ]


def test_a_link_that_works_again_for_a_moment_stays_down(world: World) -> None:
    world.rounds(FOUND, deaf=CUT)
    for _ in range(5):
        assert not any(world.rounds(LOOK * (RETURN - 1)) + world.rounds(LOOK, deaf={("leaf2", 5)}))


def test_all_is_known_of_the_links_once_each_has_proved_itself_or_was_examined_in_time(world: World) -> None:
    assert world.links.settled
    world.links.begin_anew()
    world.rounds(LOOK - 1)
    assert not world.links.settled, "one is not yet looked at"
    world.rounds(1)
    assert world.links.settled
    world.links.begin_anew()
    world.rounds(EXAMINATION, deaf=CUT, punctual=())
    assert not world.links.settled
    while not world.links.settled:
        assert world.links.down == frozenset()
        world.rounds(1, deaf=CUT)
    assert world.links.down == CUT
    world.links.begin_anew()
    assert not world.links.settled
    world.rounds(LOOK, deaf=CUT)
    assert world.links.settled, "it is still down"


def test_what_can_not_be_found_out_is_not_waited_for(world: World) -> None:
    for present, deaf, rounds in ((ALL, world.peers.keys(), LOOK + EXAMINATION), (("leaf1", "spine2"), (), LOOK)):
        world.links.begin_anew()
        world.rounds(rounds, present=present, deaf=deaf)
        assert world.links.settled


def test_seven_missing_rounds_change_nothing(world: World) -> None:
    for _ in range(20):
        assert not any(world.rounds(ENOUGH, deaf=CUT) + world.rounds(LOOK + 1))


def test_a_link_whose_ends_hear_now_and_then_stays_in_use(world: World) -> None:
    for deaf in 50 * sorted(CUT):
        assert not any(world.rounds(1, deaf={deaf}))


@pytest.mark.parametrize("loss", [0.01, 0.1])
def test_a_link_that_loses_frames_is_not_taken_down(world: World, loss: float) -> None:
    random = Random(1)
    assert not any(world.rounds(36_000, lose=lambda: random.random() < loss)), "in half an hour"


def test_frames_that_come_late_and_at_odd_times_take_no_link_down(world: World) -> None:
    random = Random(2)
    assert not any(world.rounds(20_000, delay=lambda: random.choice((0, 0, 1, 1, 2, 3))))


def test_a_machine_on_which_switches_stall_takes_no_link_down(world: World) -> None:
    """Each of them for up to seven rounds, at any time."""
    random = Random(3)
    for _ in range(3_000):
        stalled = random.choice(ALL)
        assert not any(world.rounds(random.randint(1, 7), dead={stalled}) + world.rounds(random.randint(2, 9)))


def test_rounds_that_were_late_take_no_link_down(world: World) -> None:
    assert not any(world.rounds(100, deaf=CUT, punctual=()))
    # Nor does what one had no time to send.
    assert not any(world.rounds(100, deaf={("leaf2", 5)}, punctual=("leaf1", "leaf2", "spine2")))
    # By then it is only looked at.
    assert sum(world.rounds(LOOK * (ENOUGH + 1), deaf={("leaf2", 5)})) == 1


def test_what_its_only_witness_had_no_time_to_send_takes_no_silent_switch_down(world: World) -> None:
    """Its session is lost, so its neighbours' probes are all that tells of it."""
    world.links.doubt("spine1")
    assert not any(world.rounds(50, present=LIVING, deaf={("spine1", 1)}, punctual=("leaf2", "spine2")))
    assert any(world.rounds(LOOK * (ENOUGH + 1), present=LIVING, deaf={("spine1", 1)}))


def test_at_rest_one_probe_shows_that_a_link_works(world: World) -> None:
    world.sent.clear()
    world.rounds(10 * LOOK)
    assert world.sent == {False: 10 * 4}


def test_links_beside_one_another_are_announced_at_both_ends() -> None:
    """A probe may come back by the other."""
    beside = '[[link]]\nends = ["leaf1:9", "spine1:9"]\nrate = "1gbit"\nbuffer = "64kB"\n'
    it = World(leafspine_text() + beside)
    it.rounds(2 * LOOK)
    it.sent.clear()
    it.rounds(10 * LOOK)
    assert it.sent[True] == 10 * 2 * 2
    assert sum(it.rounds(FOUND, deaf={("leaf1", 9)})) == 1
    assert it.links.down == {("leaf1", 9), ("spine1", 9)}


def test_a_switch_without_session_takes_no_link_down_and_none_up(world: World) -> None:
    assert not any(world.rounds(50, present=LIVING))
    world.rounds(FOUND, deaf=CUT)
    assert not any(world.rounds(50, present=LIVING, deaf=CUT))
    assert world.links.down == CUT
    # What was missing before counts for nothing afterwards.
    world.rounds(BACK)
    world.rounds(FOUND - LOOK - 1, deaf=CUT)
    world.rounds(LOOK, present=())
    assert not any(world.rounds(ENOUGH, deaf=CUT))


def test_a_session_that_ends_within_a_round_takes_no_link_down(world: World) -> None:
    for _ in range(20):
        world.links.hear("leaf1", 5, lldp(world, "spine1", 1))  # what it sent before, where it has arrived
        assert not any(world.rounds(1, present=LIVING))


def test_when_all_of_a_switchs_links_fall_silent_it_is_not_the_links(world: World) -> None:
    everything = world.peers.keys()
    assert not any(world.rounds(50, deaf=everything))
    for switch in ("leaf1", "leaf2"):
        assert not any(world.rounds(50, deaf={end for end in everything if end[0] == switch}))  # it hears nothing
        assert not any(world.rounds(50, deaf={world.peers[end] for end in everything if end[0] == switch}))


def test_a_switchs_last_link_is_never_taken_down(world: World) -> None:
    world.rounds(FOUND, deaf=CUT)
    second = {("leaf2", 6), ("spine2", 2)}
    assert not any(world.rounds(100, deaf=CUT | second))
    assert world.links.down == CUT


@pytest.mark.parametrize("present", [ALL, LIVING])
def test_a_switch_that_forwards_nothing_is_gone_around_whether_its_session_is_lost_or_not(
    world: World, present: Collection[str]
) -> None:
    assert not any(world.rounds(50, present=present))  # it forwards
    assert any(world.rounds(FOUND, present=present, dead={"spine1"}))
    assert world.links.down == OF_SPINE1
    # It is back, and routes nothing back as nothing is routed over it: its links tell.
    assert any(world.rounds(BACK))
    assert world.links.down == frozenset()


@pytest.mark.parametrize("present", [ALL, LIVING])
def test_a_switch_that_hangs_again_when_its_links_have_just_returned_is_gone_around(
    world: World, present: Collection[str]
) -> None:
    world.rounds(FOUND, dead={"spine1"})
    while world.links.down:
        world.rounds(1)
    assert any(world.rounds(FOUND, present=present, dead={"spine1"}))
    assert world.links.down == OF_SPINE1


def test_a_switch_that_hangs_is_found_although_its_last_probes_were_lost(world: World) -> None:
    assert not any(world.rounds(3 * LOOK, routeless={"spine1"}))
    assert any(world.rounds(FOUND + LOOK, dead={"spine1"}))
    assert world.links.down == OF_SPINE1


def test_a_switch_that_routes_nothing_back_but_speaks_stays_in_use(world: World) -> None:
    """It has no routes yet, or another client has taken them away."""
    assert not any(world.rounds(100, routeless=ALL))


def test_a_switch_that_has_closed_its_session_is_examined_at_once(world: World) -> None:
    world.links.doubt("spine1")
    assert any(world.rounds(ENOUGH, present=LIVING, dead={"spine1"}))
    assert world.links.down == OF_SPINE1


def test_one_probe_that_comes_back_ends_an_examination(world: World) -> None:
    world.links.doubt("spine1")
    assert not any(world.rounds(ENOUGH - 1, present=LIVING, dead={"spine1"}) + world.rounds(1, present=LIVING))
    world.sent.clear()
    world.rounds(LOOK, present=LIVING)
    assert world.sent == {False: 4}, "they are only looked at"


def test_an_examination_without_a_result_does_not_go_on_for_ever(world: World) -> None:
    everything = world.peers.keys()
    world.rounds(LOOK + EXAMINATION, deaf=everything)
    world.sent.clear()
    world.rounds(LOOK, deaf=everything)
    assert world.sent.total() <= 3 * 2 * len(everything), "each link once, with its witnesses"


def test_a_dead_switch_with_hosts_stays_where_it_is(world: World) -> None:
    assert not any(world.rounds(100, dead={"leaf2"}))
    assert not any(world.rounds(100, present=("leaf1", "spine1", "spine2"), dead={"leaf2"}))


def test_probes_that_never_came_back_say_nothing() -> None:
    it = World(leafspine_text())
    it.rounds(50, present=LIVING, dead={"spine1"})
    assert it.links.down == frozenset()


def test_probes_that_a_switch_without_session_can_not_send_say_nothing(world: World) -> None:
    assert not any(world.rounds(50, present=("leaf2", "spine2")))


def port_of(fabric: Fabric, switch: str, number: int) -> LinkPort:
    return next(it for it in fabric.link_ports_at(switch) if it.number == number)


def lldp(world: World, switch: str, number: int) -> bytes:
    """What that port says of itself now."""
    return world.links.announcement(port_of(world.fabric, switch, number))


def probe(links: Links, fabric: Fabric) -> bytes:
    """What leaf1 sends by its port 5 to have it sent back."""
    return links.probe(port_of(fabric, "leaf1", 5))


def test_a_wrong_neighbour_is_named_once_and_the_link_is_down(world: World, caplog: pytest.LogCaptureFixture) -> None:
    said = "port 5 of 'leaf2' is connected to port 2 of 'spine2', not to port 2 of 'spine1' as the fabric file says"
    for _ in range(2):
        caplog.clear()
        with caplog.at_level(logging.ERROR):
            for _ in range(FOUND + 1):
                world.links.hear("leaf2", 5, lldp(world, "spine2", 2))
                world.rounds(1, deaf={("leaf2", 5)})
        assert caplog.messages == [said]
        assert world.links.down == CUT
        world.rounds(BACK)  # It is put right.


def test_hosts_can_say_nothing_about_links(world: World) -> None:
    world.links.hear("leaf1", 1, lldp(world, "spine1", 2))
    assert not any(world.rounds(3))
    for _ in range(FOUND):
        whole = lldp(world, "spine1", 2)
        for frame in (
            b"",
            b"x" * 60,
            whole[:25],
            whole[:50],
            whole[:50] + bytes((whole[50] ^ 1,)) + whole[51:],
            make_lldp(bytes(6), "spine1", 2, 2, b""),
            make_lldp(bytes(6), "spine1", 2, 2, bytes(16)),
            Links(world.fabric).announcement(port_of(world.fabric, "spine1", 2)),  # of another controller
        ):
            assert frame != whole
            world.links.hear("leaf2", 5, frame)
        world.rounds(1, deaf={("leaf2", 5)})
    assert world.links.down == CUT


def test_a_forged_wrong_neighbour_is_not_believed(world: World, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        world.links.hear("leaf2", 5, make_lldp(bytes(6), "spine2", 2, 2, bytes(16)))
    assert caplog.messages == []


def test_what_was_said_two_looks_ago_is_no_sign_of_life(world: World) -> None:
    old = lldp(world, "spine1", 2)
    world.rounds(2 * LOOK)
    for _ in range(FOUND):
        world.links.hear("leaf2", 5, old)
        world.rounds(1, deaf={("leaf2", 5)})
    assert world.links.down == CUT
    world.rounds(BACK)
    late = [lldp(world, "spine1", 2)] * LOOK
    for _ in range(2 * FOUND):
        world.links.hear("leaf2", 5, late.pop(0))
        world.rounds(1, deaf={("leaf2", 5)})
        late.append(lldp(world, "spine1", 2))
    assert world.links.down == frozenset(), "what comes a look late counts"


def test_hosts_can_send_no_probes(world: World) -> None:
    sent = probe(world.links, world.fabric)
    assert not world.links.hear_probe("leaf1", 1, sent)
    assert world.links.hear_probe("leaf1", 6, sent)
    other = probe(Links(world.fabric), world.fabric)
    forged = [sent[:40], sent[:57], other, sent[:42] + bytes(len(sent) - 42)]
    packet = Ether(sent)
    forged += [bytes(Ether() / IP(src=packet[IP].src, dst=packet[IP].dst) / ICMP(id=n)) for n in (5, 6)]
    announced = parse_lldp(lldp(world, "leaf1", 5))
    assert announced is not None
    forged.append(make_probe(bytes(6), bytes(6), ip_address(packet[IP].src), 5, announced[2]))
    another = bytearray(sent)
    another[39] = 6  # the number of the port
    other_protocol = bytearray(sent)
    other_protocol[23] = 17
    for frame in (*forged, bytes(another), bytes(other_protocol)):
        assert not world.links.hear_probe("leaf1", 6, frame)
    assert not world.links.hear_probe("leaf2", 6, sent), "of another switch"
    world.rounds(2 * LOOK)
    assert not world.links.hear_probe("leaf1", 6, sent), "an old one"


def test_forged_probes_keep_no_dead_switch_in_use(world: World) -> None:
    old = probe(world.links, world.fabric)
    world.rounds(2 * LOOK)
    for _ in range(FOUND):
        world.rounds(1, present=LIVING, dead={"spine1"})
        world.links.hear_probe("leaf1", 6, bytes(Ether() / IP(src="10.0.1.1", dst="10.0.1.1") / ICMP(id=5)))
        world.links.hear_probe("leaf1", 6, old)
    assert world.links.down == OF_SPINE1


def test_the_state_outlives_a_change_of_other_links(world: World) -> None:
    world.rounds(FOUND, deaf=CUT)
    more = '[[link]]\nends = ["leaf1:9", "leaf2:9"]\nrate = "1gbit"\nbuffer = "64kB"\n'
    world.links.follow(fabric_file.parse(leafspine_text() + more, "f"))
    assert world.links.down == CUT
    listed = world.links.to_json({("leaf2", 5): 3e6})
    assert [it["up"] for it in listed] == [True, False, True, True, True]
    assert listed[1]["ends"] == listed[1]["deaf"] == ["leaf2:5", "spine1:2"]
    assert [it["load"] for it in listed[:2]] == [[None, None], [3e6, None]]


def test_a_link_that_comes_while_others_are_checked_is_used_when_frames_have_arrived_at_both_ends(world: World) -> None:
    more = '[[link]]\nends = ["leaf1:9", "leaf2:9"]\nrate = "1gbit"\nbuffer = "64kB"\n'
    new = {("leaf1", 9), ("leaf2", 9)}
    world.rounds(5)
    world.links.follow(fabric_file.parse(leafspine_text() + more, "f"), assumed=False)
    world.peers |= {("leaf1", 9): ("leaf2", 9), ("leaf2", 9): ("leaf1", 9)}
    assert world.links.down == new
    assert not any(world.rounds(BACK, deaf={("leaf1", 9)}))
    assert world.links.down == new
    assert not any(world.rounds(LOOK * (RETURN - 1)))
    assert sum(world.rounds(LOOK)) == 1
    assert not world.links.down
    # All links of a switch that has moved are as new.
    world.links.follow(fabric_file.parse(leafspine_text() + more, "f"), assumed=False, moved={"spine1"})
    assert world.links.down == OF_SPINE1
    assert not any(world.rounds(LOOK * (RETURN - 1)))
    assert any(world.rounds(LOOK))
    assert not world.links.down
