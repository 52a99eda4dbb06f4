# SPDX-License-Identifier: Apache-2.0
"""Fabrics have the links, the equal ways and the oversubscription that their names promise."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradlane_sim import fabric_files, fabrics
from gradlane_sim.errors import SpecificationError
from gradlane_sim.specification import Fabric, Link

G = 1_000_000_000


def ways(fabric: Fabric, a: int, b: int) -> int:
    """How many shortest ways there are between two hosts."""
    neighbours: dict[int, list[int]] = {}
    for link in fabric.links:
        neighbours.setdefault(link.a, []).append(link.b)
        neighbours.setdefault(link.b, []).append(link.a)
    found = Counter({a: 1})
    seen = {a}
    while b not in found:
        then = Counter[int]()
        for node, count in found.items():
            for other in neighbours[node]:
                if other not in seen:
                    then[other] += count
        seen |= set(then)
        found = then
        assert found, "no way"
    return found[b]


def upwards(fabric: Fabric, node: int) -> int:
    """The rate of a switch's links to those of the tier above."""
    tier = next(index for index, it in enumerate(fabric.tiers) if node in it)
    above = fabric.tiers[tier + 1]
    return sum(it.rate for it in fabric.links if {it.a, it.b} & {node} and {it.a, it.b} & set(above))


@given(st.sampled_from([4, 6, 8]), st.integers(1, 4))
def test_a_fat_tree_has_all_equal_ways_and_its_oversubscription(k: int, times: int) -> None:
    fabric = fabrics.fat_tree(k, 12 * G, 100_000, 1000, times)
    assert fabric.hosts == k**3 // 4
    assert [len(tier) for tier in fabric.tiers] == [k * k // 2, k * k // 2, k * k // 4]
    ports = Counter(end for link in fabric.links for end in (link.a, link.b))
    assert {ports[node] for node in range(fabric.hosts, fabric.nodes)} == {k}, "every switch has k ports"
    last = fabric.hosts - 1
    assert ways(fabric, 0, last) == (k // 2) ** 2
    assert ways(fabric, 0, k // 2) == k // 2, "within a pod"
    assert ways(fabric, 0, 1) == 1, "at one switch"
    below = k // 2 * 12 * G
    assert below == pytest.approx(upwards(fabric, fabric.tiers[0][0]) * times, rel=0.01)


@given(st.integers(2, 5), st.integers(1, 4), st.integers(1, 4))
def test_pods_have_all_equal_ways_and_carry_upwards_what_comes_from_below(count: int, leaves: int, each: int) -> None:
    fabric = fabrics.pods(count, leaves, each, G, 4 * G, 100_000, 1000)
    assert fabric.hosts == count * leaves * each
    assert [len(tier) for tier in fabric.tiers] == [count * leaves, 2 * count, 4]
    assert ways(fabric, 0, fabric.hosts - 1) == 4
    assert leaves == 1 or ways(fabric, 0, each) == 2, "within a pod"
    middle = fabric.tiers[1][0]
    assert upwards(fabric, fabric.tiers[0][0]) == 2 * 4 * G
    assert upwards(fabric, middle) == leaves * 4 * G


def test_three_tiers_of_16_ports_have_1024_hosts() -> None:
    assert fabrics.fat_tree(16, G, 100_000, 1000).hosts == 1024


@given(st.integers(1, 5), st.integers(1, 6), st.integers(1, 5), st.sampled_from([1, 2, 4]))
def test_a_leaf_spine_has_a_way_by_each_spine(leaves: int, hosts: int, spines: int, times: int) -> None:
    up = fabrics.core_rate(hosts, spines, 10 * G, times)
    fabric = fabrics.leaf_spine(leaves, hosts, spines, 10 * G, up, 100_000, 1000)
    assert len(fabric.links) == leaves * (hosts + spines)
    if leaves > 1:
        assert ways(fabric, 0, fabric.hosts - 1) == spines
    assert upwards(fabric, fabric.tiers[0][0]) * times == pytest.approx(hosts * 10 * G, rel=1e-6)


def test_the_controller_sees_the_same_network_with_the_same_numbers() -> None:
    """The program numbers a node's ports in the order of the links; so must the fabric file."""
    fabric = fabrics.fat_tree(4, G, 100_000, 1000)
    described = fabric_files.parse(fabric)
    assert [port.host for port in described.ports] == [f"h{host}" for host in range(16)]
    numbers = {fabric_files.name(fabric, node): Counter[int]() for node in range(fabric.hosts, fabric.nodes)}
    for port in (*described.ports, *described.link_ports):
        numbers[port.switch][port.number] += 1
    assert all(it == Counter(range(1, 5)) for it in numbers.values())
    told = {frozenset(((port.switch, port.number), (port.peer, port.peer_number))) for port in described.link_ports}
    wanted = {
        frozenset(((fabric_files.name(fabric, link.a), a), (fabric_files.name(fabric, link.b), b)))
        for link, (a, b) in fabric_files.numbered(fabric)
        if min(link.a, link.b) >= fabric.hosts
    }
    assert told == wanted


def test_a_second_tier_spreads_by_other_bits_than_the_first() -> None:
    fabric = fabrics.fat_tree(4, G, 100_000, 1000)
    rows = fabric_files.to_json(fabric)["links"]
    to_edge = [row["chosen_bits"] for row, link in zip(rows, fabric.links, strict=True) if link.a < fabric.hosts]
    assert to_edge == [[0, 0]] * 16, "what comes from a host has been spread by nobody"
    edge_up = [row["chosen_bits"] for row, link in zip(rows, fabric.links, strict=True) if link.a in fabric.tiers[0]]
    assert edge_up, "the links of edge switches to the next tier"
    assert all(at_aggregation > 0 for _, at_aggregation in edge_up)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"rate": 0}, "it must be 1 to"),
        ({"loss": 1.0}, r"it must be in \[0, 1\)"),
        ({"buffer": 100}, "it must hold two frames"),
        ({"delay": -1}, "it must be 0 or more"),
    ],
)
def test_a_link_that_makes_no_sense_is_refused_with_what_would(change: dict[str, float], told: str) -> None:
    fabric = fabrics.single(2, G, 100_000, 1000)
    with pytest.raises(SpecificationError, match=told):
        fabric.with_link(0, 2, **change)


def test_a_host_has_one_link() -> None:
    links = (Link(0, 2, G, 0, 9000), Link(0, 2, G, 0, 9000), Link(1, 2, G, 0, 9000))
    with pytest.raises(SpecificationError, match="host 0 has 2 links; it must have one"):
        Fabric("two", 2, (range(2, 3),), links)


def test_a_changed_link_is_the_only_one_that_changes() -> None:
    fabric = fabrics.leaf_spine(2, 2, 2, G, G, 9000, 0)
    slow = fabric.with_link(4, 6, rate=G // 4)
    changed = [(a, b) for a, b in zip(fabric.links, slow.links, strict=True) if a != b]
    assert [(b.a, b.b, b.rate) for _, b in changed] == [(4, 6, G // 4)]
    with pytest.raises(SpecificationError, match="nodes 0 and 1 have no link"):
        fabric.with_link(0, 1, rate=1)
