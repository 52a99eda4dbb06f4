# SPDX-License-Identifier: Apache-2.0
"""When a link counts as down, when it works again, and what is said about it."""

import logging
from collections.abc import Collection
from ipaddress import ip_address

import pytest
from scapy.contrib.lldp import LLDPDU, LLDPDUChassisID, LLDPDUPortID, LLDPDUTimeToLive
from scapy.layers.inet import ICMP, IP
from scapy.layers.l2 import Ether

from gradlane_controller.network import fabric_file
from gradlane_controller.network.frames import make_lldp, make_probe, parse_lldp
from gradlane_controller.network.links import Examination, Links
from tests.gradlane_controller.texts import leafspine_text

ALL = ("leaf1", "leaf2", "spine1", "spine2")
CUT = frozenset({("leaf2", 5), ("spine1", 2)})


class World:
    """Links, and the wires between their ends."""

    def __init__(self, text: str) -> None:
        self.fabric = fabric_file.parse(text, "f.toml")
        self.links = Links(self.fabric)
        self.peers = {(it.switch, it.number): (it.peer, it.peer_number) for it in self.fabric.link_ports}

    def rounds(
        self,
        count: int,
        deaf: Collection[tuple[str, int]] = (),
        present: Collection[str] = ALL,
        dead: Collection[str] = (),
    ) -> list[bool]:
        """What `tick` says; at the ends `deaf` nothing arrives, and switches that are `dead` route nothing back."""
        said: list[bool] = []
        for _ in range(count):
            for switch in present:
                for port, frame in self.links.frames(switch):
                    there = self.peers[switch, port]
                    if parse_lldp(frame) is None:
                        if there[0] not in dead:
                            assert self.links.hear_probe(switch, port, frame)
                    elif there not in deaf and there[0] in present:
                        self.links.hear(*there, frame)
            said.append(self.links.tick(present))
        return said

    def examine(self, it: Examination, *rounds: tuple[Collection[str], Collection[str], bool]) -> list[bool | None]:
        """What `round_over` says; in each round: by which switches probes come back, to which, and whether in time."""
        said: list[bool | None] = []
        for forwarding, hearing, timely in rounds:
            for switch in it.neighbours:
                for port, frame in self.links.frames(switch):
                    if parse_lldp(frame) is None and self.peers[switch, port][0] in forwarding and switch in hearing:
                        assert self.links.hear_probe(switch, port, frame)
            said.append(it.round_over(timely))
        return said


@pytest.fixture
def world() -> World:
    return World(leafspine_text())


def test_three_missing_frames_in_one_direction_take_a_link_down_and_three_bring_it_back(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    assert world.rounds(5) == [False] * 5
    with caplog.at_level(logging.WARNING):
        assert world.rounds(3, deaf={("leaf2", 5)}) == [False, False, True]
        assert world.links.down == CUT
        assert world.rounds(2) == [False, False]
        assert world.rounds(1, deaf={("leaf2", 5)}) == [False]
        assert world.rounds(3) == [False, False, True]
    assert world.links.down == frozenset()
    assert caplog.messages == [
        "link leaf2:5 - spine1:2 is down: nothing arrives at leaf2:5",
        "link leaf2:5 - spine1:2 works",
    ]


def test_two_missing_frames_change_nothing(world: World) -> None:
    for _ in range(5):
        assert not any(world.rounds(2, deaf=CUT) + world.rounds(1))


def test_a_switch_without_session_takes_no_link_down_and_none_up(world: World) -> None:
    assert not any(world.rounds(10, present=("leaf1", "leaf2", "spine2")))
    world.rounds(3, deaf=CUT)
    assert not any(world.rounds(10, present=("leaf1", "leaf2", "spine2")))
    assert world.links.down == CUT
    # What was missing before counts for nothing afterwards.
    world.rounds(3)
    world.rounds(2, deaf=CUT)
    world.rounds(1, present=())
    assert not any(world.rounds(2, deaf=CUT))


def test_a_session_that_ends_within_a_round_takes_no_link_down(world: World) -> None:
    for _ in range(5):
        world.links.hear("leaf1", 5, lldp(world, "spine1", 1))  # What it sent before, where it has arrived.
        assert not any(world.rounds(1, present=("leaf1", "leaf2", "spine2")))


def test_when_all_of_a_switchs_links_fall_silent_it_is_not_the_links(world: World) -> None:
    everything = world.peers.keys()
    assert not any(world.rounds(10, deaf=everything))
    for switch in ALL:
        assert not any(world.rounds(10, deaf={end for end in everything if end[0] == switch}))  # it hears nothing
        assert not any(world.rounds(10, deaf={world.peers[end] for end in everything if end[0] == switch}))


def test_a_switchs_last_link_is_never_taken_down(world: World) -> None:
    world.rounds(3, deaf=CUT)
    second = {("leaf2", 6), ("spine2", 2)}
    assert not any(world.rounds(10, deaf=CUT | second))
    assert world.links.down == CUT


def test_a_switch_that_lost_its_session_and_routes_nothing_back_is_gone_around(world: World) -> None:
    living = ("leaf1", "leaf2", "spine2")
    world.rounds(5)
    assert not any(world.rounds(10, present=living))  # it forwards
    assert world.rounds(3, present=living, dead={"spine1"}) == [False, False, True]
    assert world.links.down == {("leaf1", 5), ("leaf2", 5), ("spine1", 1), ("spine1", 2)}
    # It is back, and routes nothing back as nothing is routed over it: its links tell.
    assert world.rounds(3, dead={"spine1"}) == [False, False, True]
    assert world.links.down == frozenset()


LEAVES = ("leaf1", "leaf2")
DEAD = (["spine2"], LEAVES, True)  # a round in which no probe comes back from spine1, and others do


def test_a_switch_that_has_closed_its_session_is_gone_around_when_three_rounds_bring_nothing_back(world: World) -> None:
    world.rounds(5)
    it = Examination(world.links, "spine1")
    assert it.neighbours == set(LEAVES)
    assert world.examine(it, DEAD, DEAD, DEAD) == [None, None, False]
    assert world.links.silence("spine1")
    assert world.links.down == {("leaf1", 5), ("leaf2", 5), ("spine1", 1), ("spine1", 2)}
    assert not any(world.rounds(9, present=("leaf1", "leaf2", "spine2"), dead={"spine1"}))
    assert world.rounds(3, dead={"spine1"}) == [False, False, True]
    assert world.links.down == frozenset()


def test_one_probe_that_comes_back_ends_an_examination(world: World) -> None:
    world.rounds(5)
    it = Examination(world.links, "spine1")
    one = (["spine1", "spine2"], ["leaf2"], True)
    assert world.examine(it, DEAD, DEAD, one) == [None, None, True]
    # But in the first round it may have been under way before.
    it = Examination(world.links, "spine1")
    assert world.examine(it, one, DEAD, DEAD, DEAD) == [None, None, None, False]


@pytest.mark.parametrize("excuse", [(["spine2"], LEAVES, False), ([], LEAVES, True), (["spine2"], ["leaf1"], True)])
def test_rounds_that_took_long_or_in_which_a_neighbour_heard_nothing_say_nothing(
    world: World, excuse: tuple[Collection[str], Collection[str], bool]
) -> None:
    world.rounds(5)
    assert world.examine(Examination(world.links, "spine1"), *[excuse] * 20) == [None] * 20
    # Nor do they take anything back.
    assert world.examine(Examination(world.links, "spine1"), DEAD, DEAD, excuse, DEAD) == [None, None, None, False]


def test_nobody_examines_a_switch_with_hosts_or_one_that_never_routed_a_probe_back(world: World) -> None:
    world.rounds(5, dead={"spine1"})
    assert not Examination(world.links, "leaf1").neighbours
    assert not Examination(world.links, "spine1").neighbours
    assert not world.links.silence("spine1")
    assert Examination(world.links, "spine2").neighbours == set(LEAVES)


def test_a_dead_switch_with_hosts_stays_where_it_is(world: World) -> None:
    world.rounds(5)
    assert not any(world.rounds(10, present=("leaf1", "spine1", "spine2"), dead={"leaf2"}))


def test_probes_that_never_came_back_say_nothing(world: World) -> None:
    world.rounds(5, dead={"spine1"})
    assert not any(world.rounds(10, present=("leaf1", "leaf2", "spine2"), dead={"spine1"}))


def test_probes_that_a_switch_without_session_can_not_send_say_nothing(world: World) -> None:
    world.rounds(5)
    assert not any(world.rounds(10, present=("leaf2", "spine2")))


def lldp(world: World, switch: str, number: int) -> bytes:
    """What that port says of itself now."""
    return next(frame for port, frame in world.links.frames(switch) if port == number and parse_lldp(frame))


def test_a_wrong_neighbour_is_named_once_and_the_link_is_down(world: World, caplog: pytest.LogCaptureFixture) -> None:
    said = "port 5 of 'leaf2' is connected to port 2 of 'spine2', not to port 2 of 'spine1' as the fabric file says"
    for _ in range(2):
        caplog.clear()
        with caplog.at_level(logging.ERROR):
            for _ in range(4):
                world.links.hear("leaf2", 5, lldp(world, "spine2", 2))
                world.rounds(1, deaf={("leaf2", 5)})
        assert caplog.messages == [said]
        assert world.links.down == CUT
        world.rounds(3)  # It is put right.


def test_hosts_can_say_nothing_about_links(world: World) -> None:
    world.links.hear("leaf1", 1, lldp(world, "spine1", 2))
    assert not any(world.rounds(3))
    for _ in range(3):
        whole = lldp(world, "spine1", 2)
        other = Links(world.fabric)  # of another controller
        for frame in (
            b"",
            b"x" * 60,
            whole[:25],
            whole[:50],
            whole[:50] + bytes((whole[50] ^ 1,)) + whole[51:],
            make_lldp(bytes(6), "spine1", 2, 2, b""),
            make_lldp(bytes(6), "spine1", 2, 2, bytes(16)),
            next(frame for port, frame in other.frames("spine1") if port == 2),
        ):
            assert frame != whole
            world.links.hear("leaf2", 5, frame)
        world.rounds(1, deaf={("leaf2", 5)})
    assert world.links.down == CUT


def test_a_forged_wrong_neighbour_is_not_believed(world: World, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        world.links.hear("leaf2", 5, make_lldp(bytes(6), "spine2", 2, 2, bytes(16)))
    assert caplog.messages == []


def test_what_was_said_two_rounds_ago_is_no_sign_of_life(world: World) -> None:
    old = lldp(world, "spine1", 2)
    world.rounds(1)
    late = lldp(world, "spine1", 2)
    world.rounds(1)
    for _ in range(3):
        world.links.hear("leaf2", 5, old)
        world.rounds(1, deaf={("leaf2", 5)})
    assert world.links.down == CUT
    world.rounds(3)
    late = lldp(world, "spine1", 2)
    for _ in range(4):
        world.rounds(1, deaf={("leaf2", 5)})
        world.links.hear("leaf2", 5, late)
        late = lldp(world, "spine1", 2)
    assert world.links.down == frozenset(), "what comes a round late counts"


def probe(links: Links) -> bytes:
    """What leaf1 sends by its port 5 to have it sent back."""
    return next(frame for port, frame in links.frames("leaf1") if port == 5 and parse_lldp(frame) is None)


def test_hosts_can_send_no_probes(world: World) -> None:
    sent = probe(world.links)
    assert not world.links.hear_probe("leaf1", 1, sent)
    assert world.links.hear_probe("leaf1", 6, sent)
    forged = [sent[:40], sent[:57], probe(Links(world.fabric)), sent[:42] + bytes(len(sent) - 42)]
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
    world.rounds(2)
    assert not world.links.hear_probe("leaf1", 6, sent), "an old one"


def test_forged_probes_keep_no_dead_switch_in_use(world: World) -> None:
    living = ("leaf1", "leaf2", "spine2")
    world.rounds(5)
    old = probe(world.links)
    said: list[bool] = []
    for _ in range(5):
        said += world.rounds(1, present=living, dead={"spine1"})
        world.links.hear_probe("leaf1", 6, bytes(Ether() / IP(src="10.0.1.1", dst="10.0.1.1") / ICMP(id=5)))
        world.links.hear_probe("leaf1", 6, old) if len(said) > 1 else None
    assert said == [False, False, True, False, False]


def test_the_state_outlives_a_change_of_other_links(world: World) -> None:
    world.rounds(3, deaf=CUT)
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
    assert not any(world.rounds(5, deaf={("leaf1", 9)}))
    assert world.links.down == new
    assert world.rounds(3) == [False, False, True]
    assert not world.links.down
    # All links of a switch that has moved are as new.
    world.links.follow(fabric_file.parse(leafspine_text() + more, "f"), assumed=False, moved={"spine1"})
    assert world.links.down == CUT | {("leaf1", 5), ("spine1", 1)}
    assert world.rounds(3) == [False, False, True]
    assert not world.links.down


def test_what_is_sent_is_lldp() -> None:
    frame = make_lldp(bytes.fromhex("020100010005"), "leaf1", 5, 2, b"seal")
    assert parse_lldp(frame) == ("leaf1", 5, b"seal")
    packet = Ether(frame)
    assert (packet.dst, packet.src, packet.type) == ("01:80:c2:00:00:0e", "02:01:00:01:00:05", 0x88CC)
    assert LLDPDU in packet
    assert (packet[LLDPDUChassisID].subtype, packet[LLDPDUChassisID].id) == (7, b"leaf1")
    assert (packet[LLDPDUPortID].subtype, packet[LLDPDUPortID].id) == (7, b"5")
    assert packet[LLDPDUTimeToLive].ttl == 2


def test_what_is_cut_short_or_nothing_that_a_controller_says_is_nothing() -> None:
    seal = bytes(range(1, 17))
    frame = make_lldp(bytes(6), "leaf1", 5, 2, seal)
    for end in range(frame.index(seal) + len(seal)):
        assert parse_lldp(frame[:end]) is None
    for before, after in ((b"leaf1", b"leaf\xe9"), (b"\x075", b"\x07x"), (b"\x075", b"\x07 ")):
        assert frame.count(before) == 1
        assert parse_lldp(frame.replace(before, after)) is None
