# SPDX-License-Identifier: Apache-2.0
"""Fabrics: one switch, leaf-spine, and three tiers (a fat tree)."""

from gradlane_sim.specification import Fabric, Link, need


def single(hosts: int, rate: int, buffer: int, delay: int) -> Fabric:
    """All hosts at one switch."""
    links = tuple(Link(host, hosts, rate, delay, buffer) for host in range(hosts))
    return Fabric(f"{hosts} hosts at one switch", hosts, (range(hosts, hosts + 1),), links)


def leaf_spine(
    leaves: int,
    hosts_per_leaf: int,
    spines: int,
    rate: int,
    core: int,
    buffer: int,
    delay: int,
) -> Fabric:
    """Every leaf has a link of the rate `core` to every spine."""
    need(min(leaves, hosts_per_leaf, spines) >= 1, "a leaf-spine has a leaf, a host at it and a spine at least")
    hosts = leaves * hosts_per_leaf
    leaf, spine = range(hosts, hosts + leaves), range(hosts + leaves, hosts + leaves + spines)
    links = [Link(host, leaf[host // hosts_per_leaf], rate, delay, buffer) for host in range(hosts)]
    links += [Link(a, b, core, delay, buffer) for a in leaf for b in spine]
    return Fabric(f"leaf-spine of {leaves} x {hosts_per_leaf} hosts", hosts, (leaf, spine), tuple(links))


def core_rate(hosts_per_leaf: int, spines: int, rate: int, oversubscription: float) -> int:
    """Of a leaf-spine's links to spines, so that the hosts of a leaf have so many times the rate of its links
    upwards."""
    need(oversubscription >= 1, f"oversubscription is {oversubscription}; it must be 1 or more")
    return round(hosts_per_leaf * rate / (spines * oversubscription))


def pods(count: int, leaves: int, hosts_per_leaf: int, rate: int, core: int, buffer: int, delay: int) -> Fabric:
    """Three tiers: in each pod leaves and two switches above them, and above each of these two others, for all pods.
    Leaves' links upwards have the rate `core`, those of pods carry as much together."""
    need(min(count, leaves, hosts_per_leaf) >= 1, "a fabric of pods has a pod, a leaf in it and a host at it at least")
    above = 2
    hosts = count * leaves * hosts_per_leaf
    leaf = range(hosts, hosts + count * leaves)
    middle = range(leaf.stop, leaf.stop + count * above)
    top = range(middle.stop, middle.stop + above * above)
    links = [Link(host, leaf[host // hosts_per_leaf], rate, delay, buffer) for host in range(hosts)]
    links += [
        Link(it, middle[number // leaves * above + up], core, delay, buffer)
        for number, it in enumerate(leaf)
        for up in range(above)
    ]
    links += [
        Link(it, top[number % above * above + up], core * leaves // above, delay, buffer)
        for number, it in enumerate(middle)
        for up in range(above)
    ]
    return Fabric(f"{count} pods of {leaves} x {hosts_per_leaf} hosts", hosts, (leaf, middle, top), tuple(links))


def fat_tree(k: int, rate: int, buffer: int, delay: int, oversubscription: int = 1) -> Fabric:
    """Of switches with `k` ports: k pods of k/2 edge and k/2 aggregation switches, k^2/4 core switches, k^3/4 hosts.
    With `oversubscription` the links above hosts are slower by that."""
    need(k >= 4 and k % 2 == 0, f"a fat tree has k = {k}; it must be even, and 4 or more")
    need(oversubscription >= 1, f"oversubscription is {oversubscription}; it must be 1 or more")
    half, hosts = k // 2, k**3 // 4
    edges = range(hosts, hosts + k * half)
    aggregations = range(edges.stop, edges.stop + k * half)
    cores = range(aggregations.stop, aggregations.stop + half * half)
    up = rate // oversubscription
    links = [Link(host, edges[host // half], rate, delay, buffer) for host in range(hosts)]
    for pod in range(k):
        for e in range(half):
            links += [Link(edges[pod * half + e], aggregations[pod * half + a], up, delay, buffer) for a in range(half)]
    for pod in range(k):
        for a in range(half):
            links += [Link(aggregations[pod * half + a], cores[a * half + c], up, delay, buffer) for c in range(half)]
    return Fabric(f"fat tree of {hosts} hosts", hosts, (edges, aggregations, cores), tuple(links))
