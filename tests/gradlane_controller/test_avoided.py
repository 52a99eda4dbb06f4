# SPDX-License-Identifier: Apache-2.0
"""Nothing leads through a switch that is avoided, but it keeps its own ways: what is on its way there arrives."""

import random
from collections import Counter
from itertools import permutations

import pytest

from gradlane import job
from gradlane_controller.data_plane import BUCKETS
from gradlane_controller.network import fabric_file
from gradlane_controller.network.topology import Topology
from gradlane_controller.policy import Numbers, assign, desired_entities, summed_jobs
from tests.gradlane_controller.texts import job_text, leafspine_text, summed_text

Edges = set[frozenset[str]]


def random_network(chance: random.Random) -> tuple[str, list[str], Edges, set[str]]:
    """A fabric file, its switches, the links between them, and which of them have hosts."""
    names = [f"s{n}" for n in range(chance.randint(3, 7))]
    edges = {frozenset((name, chance.choice(names[:place]))) for place, name in enumerate(names) if place}
    edges |= {frozenset(chance.sample(names, 2)) for _ in range(chance.randint(0, 6))}
    hosts = set(chance.sample(names, chance.randint(2, len(names))))
    text = "".join(f'[[switch]]\nname = "{name}"\naddress = "h:{n + 1}"\n' for n, name in enumerate(names))
    for n, name in enumerate(sorted(hosts)):
        text += f'[[port]]\nswitch = "{name}"\nnumber = 1\nhost = "h{n}"\nmac = "02:00:00:00:{n:02x}:01"\n'
        text += f'host_mac = "02:00:00:00:{n:02x}:02"\naddress = "10.0.{n}.2"\nrate = "1gbit"\nbuffer = "64kB"\n'
    ports = Counter(dict.fromkeys(names, 1))
    for edge in sorted(map(sorted, edges)):
        ports.update(edge)
        ends = ", ".join(f'"{name}:{ports[name]}"' for name in edge)
        text += f'[[link]]\nends = [{ends}]\nrate = "1gbit"\nbuffer = "64kB"\n'
    return text, names, edges, hosts


def hops(edges: Edges, source: str, destination: str, avoided: set[str]) -> int | None:
    """The oracle: links of a shortest path of which no switch between its ends is avoided."""
    front, seen, count = {source}, {source}, 0
    while front:
        if destination in front:
            return count
        leading = {name for name in front if name == source or name not in avoided}
        front = {other for name in leading for edge in edges if name in edge for other in edge} - seen
        seen |= front
        count += 1
    return None


@pytest.mark.parametrize("seed", range(150))
def test_paths_are_the_shortest_that_lead_through_no_avoided_switch(seed: int) -> None:
    chance = random.Random(seed)
    text, names, edges, hosts = random_network(chance)
    avoided = set(chance.sample(names, chance.randint(1, 2)))
    fabric = fabric_file.parse(text, "f")
    topology, before = Topology(fabric, (), avoided), Topology(fabric)
    cut = set[tuple[str, str]]()
    for pair in permutations(names, 2):
        expected = hops(edges, *pair, avoided)
        assert topology.distance(*pair) == expected, pair
        first = {port.peer for port in topology.next_ports(*pair)}
        nearer = {
            other
            for other in names
            if frozenset((pair[0], other)) in edges
            and (other == pair[1] or other not in avoided)
            and expected is not None
            and hops(edges, other, pair[1], avoided) == expected - 1
        }
        assert first == nearer, pair
        if expected is None and set(pair) <= hosts:
            cut.add(pair)
    found = topology.cut_off(before)
    assert (found in cut) if cut else found is None


def test_in_a_leaf_spine_everything_takes_the_other_spine() -> None:
    text = leafspine_text().replace('name = "', 'aggregation = true\nname = "')
    fabric = fabric_file.parse(text, "f")
    jobs = [
        job.parse(summed_text(1, hosts=(1, 3)), "j1"),
        job.parse(job_text("m", 2, hosts=(1, 3, 4), base=4096, transport='multicast = "239.2.0.1"'), "j2"),
    ]
    whole, it = desired_entities(fabric, jobs), desired_entities(fabric, jobs, avoided={"spine1"})

    def to_spine1(entities: object) -> int:
        """How often port 5 of a leaf, to spine1, is sent by."""
        ways = str([each for each in entities if each.__class__.__name__ != "P4MeterEntry"])  # type: ignore[attr-defined]
        return ways.count("'port': 5") + ways.count("'up': 5")

    for leaf in ("leaf1", "leaf2"):
        assert to_spine1(whole[leaf]) > 0 == to_spine1(it[leaf])
    # The spine itself still knows the way to every host.
    routes = [str(each.match) for each in it["spine1"] if getattr(each, "table_id", "") == "ipv4_routes"]
    for n in range(1, 5):
        assert any(f"10.0.{n}.0/24" in match for match in routes)
    numbers = assign(fabric, jobs, Numbers())
    (summed,) = summed_jobs(fabric, jobs, numbers, avoided={"spine1"})
    assert (summed.ways.roots, list(summed.ways.flaws)) == ({"spine2": BUCKETS}, [])
    (at_leaf,) = summed_jobs(fabric, jobs, numbers, avoided={"leaf1"})  # its workers can't move
    assert not at_leaf.ways.flaws
    (nowhere,) = summed_jobs(fabric, jobs, numbers, avoided={"spine1", "spine2"})
    assert nowhere.ways.flaws in (["'spine1' is drained"], ["'spine2' is drained"])
