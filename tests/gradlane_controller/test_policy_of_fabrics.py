# SPDX-License-Identifier: Apache-2.0
"""What each of several switches has to hold: routes over every shortest path, trees, parts of a message's budget."""

from collections.abc import Callable, Sequence
from itertools import product

import pytest
from finsy import P4IndirectAction, P4MeterEntry, P4MulticastGroupEntry, P4TableEntry
from hypothesis import example, given
from hypothesis import strategies as st

from gradlane import job
from gradlane.job import JobError
from gradlane_controller.network import fabric_file
from gradlane_controller.network.fabric import Fabric
from gradlane_controller.network.fabric_file import FabricError
from gradlane_controller.network.topology import Topology
from gradlane_controller.policy import Entity, desired_entities
from tests.gradlane_controller.texts import job_text, leafspine_text

Row = tuple[dict[str, object], str, dict[str, object]]


def rows(entities: list[Entity], table: str) -> list[Row]:
    return [
        (dict(entity.match or {}), entity.action.name, entity.action.args)
        for entity in entities
        if isinstance(entity, P4TableEntry) and entity.table_id == table
    ]


def group(entities: list[Entity], number: object) -> list[tuple[int, int, str, str]]:
    """Weight, port, next hop's address and own address of each member."""
    for it in entities:
        if isinstance(it, P4TableEntry) and it.table_id == "next_hops" and dict(it.match or {})["group"] == number:
            assert isinstance(it.action, P4IndirectAction)
            members = it.action.action_set or ()
            assert all(watched == call.args["port"] for (_, watched), call in members)
            return [(weight, port, call.args["next_hop"], call.args["own"]) for (weight, port), call in members]
    raise AssertionError(f"no group {number}")


def route(entities: list[Entity], destination: str) -> object:
    ((_, name, args),) = (row for row in rows(entities, "ipv4_routes") if row[0]["destination"] == destination)
    assert name == "set_next_hop"
    return args["group"]


def test_other_switches_are_reached_over_every_shortest_path() -> None:
    it = desired_entities(fabric_file.parse(leafspine_text(rates=("100mbit", "250mbit")), "f.toml"), [])
    up = route(it["leaf1"], "10.0.3.0/24")
    assert up == route(it["leaf1"], "10.0.4.0/24") == route(it["leaf2"], "10.0.1.0/24")
    assert group(it["leaf1"], up) == [
        (1, 5, "02:01:00:03:00:01", "02:01:00:01:00:05"),
        (2, 6, "02:01:00:04:00:01", "02:01:00:01:00:06"),
    ]
    assert group(it["leaf1"], route(it["leaf1"], "10.0.2.0/24")) == [(1, 2, "02:00:00:00:02:02", "02:00:00:00:02:01")]
    assert group(it["spine2"], route(it["spine2"], "10.0.3.0/24")) == [(1, 2, "02:01:00:02:00:06", "02:01:00:04:00:02")]
    assert rows(it["spine1"], "ports") == [
        # Three members of different weights at the leaf have taken two bits, and two more hardly.
        ({"ingress_port": port}, "fabric", {"switch_id": 3, "chosen_bits": 4})
        for port in (1, 2)
    ]
    assert [name for _, name, _ in rows(it["leaf1"], "ports")] == ["edge", "edge", "fabric", "fabric"]
    assert rows(it["spine1"], "bridged") == []
    six = {match["destination"]: name for match, name, _ in rows(it["leaf2"], "ipv6_routes")}
    assert six["fd00:1::/64"] == "set_next_hop"
    assert six["fd00:3::1/128"] == "local"
    assert "fd00:1::1/128" not in six


def test_members_may_have_the_ipv6_addresses_of_the_fabric() -> None:
    it = fabric_file.parse(leafspine_text(), "f.toml")
    text = job_text(hosts=(1, 3)).replace('"10.0.1.2"', '"fd00:1::2"').replace('"10.0.3.2"', '"fd00:3::2"')
    entities = desired_entities(it, [job.parse(text, "job.toml")])
    sources = {str(match["source"]) for match, _, _ in rows(entities["leaf1"], "senders")}
    assert "fd00:1::2" in sources
    with pytest.raises(JobError, match=r"address fd00:3::9 is not that of 'h3' in f\.toml: fd00:3::2"):
        desired_entities(it, [job.parse(text.replace("fd00:3::2", "fd00:3::9"), "job.toml")])


def make_jobs(*texts: str) -> list[job.Job]:
    return [job.parse(text, f"job{n}.toml") for n, text in enumerate(texts)]


def test_gradients_enter_at_the_edge_and_are_known_everywhere() -> None:
    it = desired_entities(fabric_file.parse(leafspine_text(), "f"), make_jobs(job_text(hosts=(1, 3))))
    assert [match["source"] for match, _, _ in rows(it["leaf1"], "senders")] == ["::ffff:10.0.1.2", "fd00:1::2"]
    assert [match["ingress_port"] for match, _, _ in rows(it["leaf2"], "senders")] == [1, 1]
    assert rows(it["leaf1"], "queue_classes")
    for spine in ("spine1", "spine2"):
        assert not rows(it[spine], "senders") + rows(it[spine], "queue_classes") + rows(it[spine], "drop_precedences")
    assert all(rows(it[switch], "jobs") == rows(it["leaf1"], "jobs") for switch in it)
    policies = {match["egress_port"]: args for match, _, args in rows(it["leaf1"], "port_policies")}
    assert policies == {
        1: {"lowest_metered_class": 1, "yellow": 2, "red": 1, "to_fabric": 0},
        5: {"lowest_metered_class": 1, "yellow": 2, "red": 1, "to_fabric": 1},
        6: {"lowest_metered_class": 1, "yellow": 2, "red": 1, "to_fabric": 1},
    }


def test_a_link_without_gradients_still_leads_into_the_fabric() -> None:
    it = desired_entities(fabric_file.parse(leafspine_text(), "f"), [])
    no_policy = {"lowest_metered_class": 0, "yellow": 7, "red": 1, "to_fabric": 1}  # the default, but for to_fabric
    assert rows(it["leaf1"], "port_policies") == [({"egress_port": n}, "set_policy", no_policy) for n in (5, 6)]


def test_jobs_share_the_links_where_their_paths_meet() -> None:
    where = fabric_file.parse(leafspine_text(), "f")
    a, b, c = job_text(hosts=(1, 3)), job_text("b", 2, hosts=(2, 4), base=4096), job_text("c", 3, (1, 2), base=8192)
    it = desired_entities(where, make_jobs(a, b))
    assert [match["egress_port"] for match, _, _ in rows(it["leaf1"], "job_shares")] == [5, 5, 6, 6]
    assert [match["egress_port"] for match, _, _ in rows(it["spine1"], "job_shares")] == [1, 1, 2, 2]
    # The third stays at its leaf.
    it = desired_entities(where, make_jobs(a, c))
    assert [match["egress_port"] for match, _, _ in rows(it["leaf1"], "job_shares")] == [1, 1]
    assert not rows(it["leaf2"], "job_shares") + rows(it["spine1"], "job_shares")
    apart = job_text("other", 5, hosts=(2, 4), base=16384, policy="red = 2")
    with pytest.raises(JobError, match="share the link from 'leaf1' to 'spine1', so they need the same red: 1 and 2"):
        desired_entities(where, make_jobs(a, apart))


def test_packets_keep_bits_to_choose_by_however_many_others_have_chosen() -> None:
    for rates, bits in (((), 1), (("1mbit", "10gbit"), 12)):
        it = desired_entities(fabric_file.parse(leafspine_text(rates=rates), "f"), [])
        assert {args["chosen_bits"] for _, _, args in rows(it["spine2"], "ports")} == {bits}


def test_switches_watch_the_ports_of_groups_that_have_several() -> None:
    text = leafspine_text().replace('name = "leaf1"', 'name = "leaf1"\ntarget = "bmv2"')
    it = desired_entities(fabric_file.parse(text, "f"), [])["leaf1"]
    assert len(group(it, route(it, "10.0.3.0/24"))) == 2


def test_multicast_follows_a_tree_from_each_aggregator() -> None:
    text = job_text(hosts=(1, 3, 4), transport='multicast = "239.1.0.1"')
    it = desired_entities(fabric_file.parse(leafspine_text(), "f"), make_jobs(text))
    groups = {
        switch: {each.multicast_group_id: each.replicas for each in entities if isinstance(each, P4MulticastGroupEntry)}
        for switch, entities in it.items()
    }
    assert groups == {
        "leaf1": {1: (1, 5), 2: (1,), 3: (1,)},
        # Those from the same switch take its links in turn.
        "leaf2": {1: (1, 2), 2: (1, 2, 5), 3: (1, 2, 6)},
        "spine1": {1: (2,), 2: (1,)},
        "spine2": {3: (1,)},
    }
    assert {switch: [row[0] for row in rows(entities, "aggregators")] for switch, entities in it.items()} == {
        "leaf1": [{"ingress_port": 1, "group": 1, "job": 1}],
        "leaf2": [{"ingress_port": port, "group": port + 1, "job": 1} for port in (1, 2)],
        "spine1": [],
        "spine2": [],
    }
    assert ({"destination": "239.1.0.3/32"}, "replicate", {"group": 3}) in rows(it["spine2"], "ipv4_routes")
    assert ({"destination": "01:00:5e:01:00:03"}, "route", {}) in rows(it["spine2"], "stations")


def test_probes_are_routed_back_by_switches_without_hosts_alone() -> None:
    it = desired_entities(fabric_file.parse(leafspine_text(), "f"), [])
    ways = {
        switch: [row for row in rows(entities, "ipv4_routes") if str(row[0]["destination"]).startswith("240.")]
        for switch, entities in it.items()
    }
    assert ways["leaf1"] == ways["leaf2"] == [({"destination": "240.0.0.0/16"}, "probe", {})]
    for spine in ("spine1", "spine2"):
        assert ways[spine] == [({"destination": f"240.0.0.{n}/32"}, "set_next_hop", {"group": n}) for n in (1, 2)]


def test_what_is_down_is_gone_around() -> None:
    where = fabric_file.parse(leafspine_text(), "f")
    jobs = make_jobs(job_text(hosts=(1, 3, 4), transport='multicast = "239.1.0.1"'))
    whole = desired_entities(where, jobs)
    it = desired_entities(where, jobs, down={("leaf2", 5), ("spine1", 2)})
    assert group(it["leaf1"], route(it["leaf1"], "10.0.3.0/24")) == [(1, 6, "02:01:00:04:00:01", "02:01:00:01:00:06")]
    # spine1 itself reaches h3 through leaf1 and spine2, so a packet that is there already does, too.
    assert group(it["spine1"], route(it["spine1"], "10.0.3.0/24"))[0][1] == 1
    trees = [each for each in it["spine1"] if isinstance(each, P4MulticastGroupEntry)]
    assert trees == []
    # A message on the way has met the parts of before: no part grows.
    order = ["nothing", "sixteenth", "eighth", "quarter", "half", "rest_of_half", "whole"]
    for switch in it:
        before = {tuple(match.items()): name for match, name, _ in rows(whole[switch], "budget_shares")}
        for match, name, _ in rows(it[switch], "budget_shares"):
            assert order.index(name) <= order.index(before[tuple(match.items())])
    # The port keeps its address, its queue and its policy.
    for table in ("ports", "stations", "port_policies"):
        assert len(rows(it["leaf2"], table)) >= len(rows(whole["leaf2"], table)) - 1
    cut = desired_entities(where, jobs, down={(port.switch, port.number) for port in where.link_ports})
    assert {match["destination"] for match, name, _ in rows(cut["leaf1"], "ipv4_routes") if name == "set_next_hop"} == {
        "10.0.1.0/24", "10.0.2.0/24",
    }  # fmt: skip


def test_jobs_that_a_failure_brings_together_need_not_agree() -> None:
    # h3 moves to spine2, h4 to spine1: without its link to spine1, leaf1 reaches both through spine2.
    text = leafspine_text().replace('switch = "leaf2"\nnumber = 1', 'switch = "spine2"\nnumber = 9')
    text = text.replace('switch = "leaf2"\nnumber = 2', 'switch = "spine1"\nnumber = 9')
    where = fabric_file.parse(text, "f")
    jobs = make_jobs(job_text(hosts=(1, 3)), job_text("b", 2, hosts=(2, 4), base=4096, policy="red = 2"))
    assert not rows(desired_entities(where, jobs)["leaf1"], "job_shares")
    it = desired_entities(where, jobs, down={("leaf1", 5), ("spine1", 1)})
    assert [match["egress_port"] for match, _, _ in rows(it["leaf1"], "job_shares")] == [6, 6]


@st.composite
def fabrics(draw: st.DrawFn) -> Fabric:
    """A connected fabric of up to 8 switches of up to 8 pipes, some without hosts."""
    count = draw(st.integers(1, 8))
    hosts = draw(st.lists(st.integers(0, count - 1), min_size=1, max_size=6, unique=True))
    tree = [(n, draw(st.integers(0, n - 1))) for n in range(1, count)]
    more = draw(st.lists(st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)), max_size=12))
    links = tree + [(a, b) for a, b in more if a != b]
    pipes = draw(st.just([1] * count) | st.lists(st.integers(1, 8), min_size=count, max_size=count))
    return fabric_of(hosts, links, pipes)


def fabric_of(hosts: Sequence[int], links: Sequence[tuple[int, int]], pipes: Sequence[int]) -> Fabric:
    """Switches of so many pipes, by number; those with a host, and the ends of links."""
    text = "".join(f'[[switch]]\nname = "s{n}"\naddress = "a:{n + 1}"\npipes = {of}\n' for n, of in enumerate(pipes))
    text += "".join(
        f'[[port]]\nswitch = "s{n}"\nnumber = 500\nhost = "h{n}"\nmac = "02:00:00:00:0{n}:01"\n'
        f'host_mac = "02:00:00:00:0{n}:02"\naddress = "10.0.{n}.2"\nrate = "1gbit"\nbuffer = "64kB"\n'
        for n in hosts
    )
    text += "".join(
        f'[[link]]\nends = ["s{a}:{i}", "s{b}:{i}"]\nrate = "1gbit"\nbuffer = "64kB"\n'
        for i, (a, b) in enumerate(links, 1)
    )
    return fabric_file.parse(text, "f.toml")


PARTS: dict[str, Callable[[int], int]] = {
    "whole": lambda budget: budget,
    "rest_of_half": lambda budget: budget - (budget >> 1),
    "half": lambda budget: budget >> 1,
    "quarter": lambda budget: budget >> 2,
    "eighth": lambda budget: budget >> 3,
    "sixteenth": lambda budget: budget >> 4,
}


def leaves_and_spines(*spines_of: Sequence[int]) -> Fabric:
    """Leaves with a host each, and the spines that they are linked to."""
    leaves, count = range(len(spines_of)), len({spine for spines in spines_of for spine in spines})
    links = [(leaf, len(leaves) + spine) for leaf in leaves for spine in spines_of[leaf]]
    return fabric_of(leaves, links, [1] * (len(leaves) + count))


@given(where=fabrics(), budget=st.integers(0, 500))
@example(where=leaves_and_spines(range(3), range(3)), budget=480)
@example(where=leaves_and_spines(range(4), range(4)), budget=480)
@example(where=leaves_and_spines(range(5), range(5)), budget=480)
@example(where=leaves_and_spines(range(4), range(4), range(1)), budget=480)  # one spine has a path of its own, too
@example(where=leaves_and_spines(range(1), range(4), range(4)), budget=480)
def test_over_all_switches_that_a_message_may_cross_the_parts_never_exceed_its_budget(
    where: Fabric, budget: int
) -> None:
    planned = desired_entities(where, [])
    topology = Topology(where)
    pipes = {switch.name: switch.pipes for switch in where.switches}
    # A message enters from its host by one port, so in one pipe; from other switches in all.
    parts = {
        (switch, match["from_fabric"], match["to_fabric"]): PARTS[name](budget)
        * (pipes[switch] if match["from_fabric"] else 1)
        for switch, entities in planned.items()
        for match, name, _ in rows(entities, "budget_shares")
    }
    with_hosts = {port.switch for port in where.ports}
    for source, destination in product(with_hosts, with_hosts):
        crossed: set[tuple[str, int, int]] = {(source, 0, int(source != destination))}
        if source != destination:
            crossed.add((destination, 1, 0))
            crossed |= {(link.peer, 1, 1) for link in topology.links_between(source, destination)} - {
                (destination, 1, 1)
            }
        total = sum(parts.get(place, 0) for place in crossed)
        assert total <= budget
        if source == destination or topology.distance(source, destination) == 1:
            # Of half a budget a pipe has a part by the next power of two, which is nothing of a small one.
            of = pipes[destination]
            assert total > 0 or budget < (1 if of == 1 else 2 << (of - 1).bit_length())


def test_the_middle_of_longer_paths_takes_nothing() -> None:
    it = desired_entities(fabric_of([0, 3], [(0, 1), (1, 2), (2, 3)], [1] * 4), [])
    assert not any(
        row[0] == {"from_fabric": 1, "to_fabric": 1} for each in it.values() for row in rows(each, "budget_shares")
    )


@given(where=fabrics())
def test_every_packet_comes_closer_to_its_host_at_every_switch(where: Fabric) -> None:
    planned = desired_entities(where, [])
    topology = Topology(where)
    links = {(link.switch, link.number): link for link in where.link_ports}
    for switch, port in product(planned, where.ports):
        members = group(planned[switch], route(planned[switch], str(port.prefix)))
        if switch == port.switch:
            assert [(number, mac) for _, number, mac, _ in members] == [(500, port.host_mac)]
            continue
        assert members
        for _, number, mac, own in members:
            link = links[switch, number]
            assert (mac, own) == (link.peer_mac, link.mac)
            assert topology.distance(link.peer, port.switch) == topology.distance(switch, port.switch) - 1
        shortest = topology.distance(switch, port.switch) - 1
        assert len(members) == sum(
            topology.distance(it.peer, port.switch) == shortest for it in where.link_ports_at(switch)
        )


def test_workers_send_to_servers_and_not_to_one_another() -> None:
    # Each two of leaf1, leaf2 and spine1 have a link; h4 moves to spine1.
    text = leafspine_text(1).replace('switch = "leaf2"\nnumber = 2', 'switch = "spine1"\nnumber = 9')
    text += '[[link]]\nends = ["leaf1:9", "leaf2:9"]\nrate = "1gbit"\nbuffer = "64kB"\n'
    where = fabric_file.parse(text, "f")

    def links_of_leaf1(text: str) -> list[object]:
        found = rows(desired_entities(where, make_jobs(text))["leaf1"], "port_policies")
        return [match["egress_port"] for match, _, args in found if args["to_fabric"] and args["yellow"] == 2]

    assert links_of_leaf1(job_text(hosts=(1, 3, 4))) == [5, 9]
    assert links_of_leaf1(job_text(hosts=(1, 3), servers=(4,))) == [5]


@pytest.mark.parametrize(
    ("pipes", "last", "middle"),
    [(1, "rest_of_half", "eighth"), (2, "quarter", "sixteenth"), (3, "eighth", None), (4, "eighth", None),
     (8, "sixteenth", None)],
)  # fmt: skip
def test_each_pipe_has_an_equal_part_of_what_comes_from_other_switches(
    pipes: int, last: str, middle: str | None
) -> None:
    text = leafspine_text().replace('address = "127', f'pipes = {pipes}\naddress = "127')
    it = desired_entities(fabric_file.parse(text, "f"), [])
    found = {
        (switch, match["from_fabric"], match["to_fabric"]): name
        for switch in ("leaf1", "spine1")
        for match, name, _ in rows(it[switch], "budget_shares")
    }
    assert found[("leaf1", 0, 0)] == "whole", "from a host: by one port, so in one pipe"
    assert found[("leaf1", 0, 1)] == "quarter"
    assert found[("leaf1", 1, 0)] == last
    assert found.get(("spine1", 1, 1)) == middle


def test_each_pipe_has_an_equal_part_of_a_virtual_queue_and_of_a_job_s_share() -> None:
    def meters(pipes: int) -> list[tuple[int, int, int]]:
        text = leafspine_text().replace('address = "127', f'pipes = {pipes}\naddress = "127')
        jobs = make_jobs(job_text(hosts=(1, 3)), job_text("b", 2, hosts=(2, 4), base=4096))
        entities = desired_entities(fabric_file.parse(text, "f"), jobs)["leaf1"]
        queues = [it.config for it in entities if isinstance(it, P4MeterEntry) and it.meter_id == "virtual_queue"]
        shares = [it.meter_config for it in entities if isinstance(it, P4TableEntry) and it.table_id == "job_shares"]
        configs = [config for config in (*queues, *shares) if config is not None]
        assert len(configs) == 8
        return [(config.cir, config.cburst, config.pburst) for config in configs]

    for one, of_four in zip(meters(1), meters(4), strict=True):
        assert all(0 < part <= whole / 4 < part + 1 for part, whole in zip(of_four, one, strict=True))


def test_a_buffer_has_room_for_a_frame_in_each_pipe() -> None:
    text = leafspine_text().replace('address = "127', 'pipes = 8\naddress = "127')
    fabric_file.parse(text.replace("64kB", "48448B"), "f")
    with pytest.raises(FabricError, match=r"0\.03125 of it in each of 8 pipes\).*at least 48448 bytes"):
        fabric_file.parse(text.replace("64kB", "48447B"), "f")
    with pytest.raises(FabricError, match=r"switch\[0\]\.pipes: is 9; it must be an integer from 1 to 8"):
        fabric_file.parse(text.replace("pipes = 8", "pipes = 9"), "f")
