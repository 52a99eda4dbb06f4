# SPDX-License-Identifier: Apache-2.0
"""What the program forbids, gradlane-switch refuses; what the packet tests usually write, it takes."""

from collections.abc import Iterator

import pytest
from finsy import P4MulticastGroupEntry, P4Schema, P4TableEntry
from finsy.proto import p4r, rpc_code

from gradlane_switch import EntityError, Switch
from tests.support.entries import (
    Entity,
    aggregator,
    bridged,
    congestion,
    contributor,
    drop_precedence,
    edge,
    entry,
    fabric,
    fabric_port,
    job,
    job_share,
    multicast,
    next_hops,
    port_policy,
    queue_class,
    rewrite,
    route,
    sender,
    set_job,
    source,
    station,
    subtree,
    sum_tree,
)
from tests.support.gradlane_packets import H1
from tests.support.paths import P4INFO, PROGRAM, SUM_P4INFO, SUM_PROGRAM

ZERO, BROADCAST = "00:00:00:00:00:00", "ff:ff:ff:ff:ff:ff"
MASKS = [2**n - 1 for n in range(17)]


@pytest.fixture
def switch() -> Switch:
    return Switch.load(PROGRAM, P4INFO)


def updates(schema: P4Schema, kind: int, entities: list[Entity]) -> Iterator[p4r.Update]:
    return (p4r.Update(type=kind, entity=it.encode(schema)) for it in entities)


def insert(switch: Switch, schema: P4Schema, *entities: Entity) -> None:
    """Inserts them; meters, which are always there, are modified."""
    for it in entities:
        message = it.encode(schema)
        kind = p4r.Update.MODIFY if message.HasField("meter_entry") else p4r.Update.INSERT
        switch.write(p4r.Update(type=kind, entity=message))


def refused(switch: Switch, schema: P4Schema, it: Entity, kind: int = p4r.Update.INSERT) -> tuple[int, str]:
    with pytest.raises(EntityError) as raised:
        switch.write(p4r.Update(type=kind, entity=it.encode(schema)))
    return raised.value.code, str(raised.value).replace("GradlaneIngress.", "").replace("GradlaneEgress.", "")


def test_what_the_packet_tests_write_is_permitted(switch: Switch, schema: P4Schema) -> None:
    insert(switch, schema, *fabric(), *job(), *congestion(), *multicast("239.1.0.1", 1, 1, 2), job_share(1, 2, None))


@pytest.mark.parametrize(
    ("forbidden", "told"),
    [
        (edge(0), 'admission.ports: "ingress_port != 0" does not hold for ingress_port = 0'),
        (edge(511), 'admission.ports: "ingress_port != 511" does not hold for ingress_port = 511'),
        (fabric_port(5, chosen_bits=13), 'fabric: "chosen_bits <= 12" does not hold for chosen_bits = 13'),
        (sender(511, H1.address, 1), 'guard.senders: "ingress_port != 511" does not hold for ingress_port = 511'),
        (bridged(H1.mac, 511), 'routing.bridged: routing.bridge_to: "port != 511" does not hold for port = 511'),
        (port_policy(511), 'port_policies: "egress_port != 511" does not hold for egress_port = 511'),
        (job_share(1, 511, None), 'job_shares: "egress_port != 511" does not hold for egress_port = 511'),
        (rewrite(511, 1, 1), 'dscp_rewrites: "egress_port != 511" does not hold for egress_port = 511'),
        (sender(0, H1.address, 1), 'guard.senders: "ingress_port != 0" does not hold for ingress_port = 0'),
        (sender(1, "::", 1), 'guard.senders: "source != 0" does not hold for source = 0x0'),
        (sender(1, H1.address, 0), 'guard.senders: "job != 0" does not hold for job = 0'),
        (source(0, H1.mac), 'guard.sources: "ingress_port != 0" does not hold for ingress_port = 0'),
        (source(1, ZERO), "guard.sources: \"mac != mac('00:00:00:00:00:00')\" does not hold"),
        (aggregator(0, 1), 'replication.aggregators: "ingress_port != 0" does not hold for ingress_port = 0'),
        (aggregator(1, 0), 'replication.aggregators: "group != 0" does not hold for group = 0'),
        (aggregator(1, 1, 0), 'replication.aggregators: "job != 0" does not hold for job = 0'),
        (set_job(0), 'guard.jobs: "job != 0" does not hold for job = 0'),
        (set_job(index=0), 'guard.jobs: guard.set_job: "job_index != 0" does not hold for job_index = 0'),
        (set_job(base=65536), 'guard.set_job: "slot_base < 0x10000" does not hold for slot_base = 0x10000'),
        (queue_class(0, (0, 3), 1), 'tagging.queue_classes: "job != 0" does not hold for job = 0'),
        (drop_precedence(0, (0, 3), (0, 3), 1), 'tagging.drop_precedences: "job != 0" does not hold for job = 0'),
        (station(ZERO), "routing.stations: \"destination != mac('00:00:00:00:00:00')\" does not hold"),
        (station(BROADCAST), "routing.stations: \"destination != mac('ff:ff:ff:ff:ff:ff')\" does not hold"),
        (bridged(ZERO, 1), "routing.bridged: \"destination != mac('00:00:00:00:00:00')\" does not hold"),
        (bridged(BROADCAST, 1), "routing.bridged: \"destination != mac('ff:ff:ff:ff:ff:ff')\" does not hold"),
        (bridged(H1.mac, 0), 'routing.bridged: routing.bridge_to: "port != 0" does not hold for port = 0'),
        (route("10.0.0.0/8", group=0), 'ipv4_routes: routing.set_next_hop: "group != 0" does not hold for group = 0'),
        (route("fd00::/8", group=0), 'ipv6_routes: routing.set_next_hop: "group != 0" does not hold for group = 0'),
        (route("239.1.0.1/32", "replicate", group=0), 'routing.replicate: "group != 0" does not hold for group = 0'),
        (next_hops(0, H1), 'routing.next_hops: "group != 0" does not hold for group = 0'),
        (port_policy(0), 'congestion.port_policies: "egress_port != 0" does not hold for egress_port = 0'),
        (port_policy(1, yellow=1, red=2), 'set_policy: "red <= yellow" does not hold for yellow = 1, red = 2'),
        (port_policy(1, red=0), 'congestion.set_policy: "red != 0" does not hold for red = 0'),
        (job_share(0, 1, None), 'congestion.job_shares: "job_index != 0" does not hold for job_index = 0'),
        (job_share(1, 0, None), 'congestion.job_shares: "egress_port != 0" does not hold for egress_port = 0'),
        (rewrite(0, 1, 1), 'rewriting.dscp_rewrites: "egress_port != 0" does not hold for egress_port = 0'),
    ],
)
def test_what_the_program_forbids_is_refused(switch: Switch, schema: P4Schema, forbidden: Entity, told: str) -> None:
    code, text = refused(switch, schema, forbidden)
    assert code == rpc_code.INVALID_ARGUMENT
    assert told in text


@pytest.mark.parametrize("port", [0, 511])
def test_a_next_hop_has_a_port(switch: Switch, schema: P4Schema, port: int) -> None:
    message = next_hops(1, H1).encode(schema)
    (action,) = message.table_entry.action.action_profile_action_set.action_profile_actions
    action.action.params[0].value = port.to_bytes(2, "big").lstrip(b"\0") or b"\0"
    with pytest.raises(EntityError, match=f'forward: "port != {port}" does not hold for port = {port}'):
        switch.insert(message)


def test_slots_are_a_power_of_two(switch: Switch, schema: P4Schema) -> None:
    insert(switch, schema, set_job(mask=7))
    for mask in range(2**12):
        changed = set_job(mask=mask)
        if mask in MASKS:
            switch.write(*updates(schema, p4r.Update.MODIFY, [changed]))
        else:
            assert "slot_mask" in refused(switch, schema, changed, p4r.Update.MODIFY)[1]
    switch.write(*updates(schema, p4r.Update.MODIFY, [set_job(mask=mask) for mask in MASKS]))
    for mask in (2**16 - 2, 2**16, 2**17 - 1):
        assert "slot_mask" in refused(switch, schema, set_job(mask=mask), p4r.Update.MODIFY)[1]


def test_a_route_leads_to_a_group_that_is_there(switch: Switch, schema: P4Schema) -> None:
    group = P4MulticastGroupEntry(9, replicas=(1, 2))
    ways = [(route(net, group=7), next_hops(7, H1)) for net in ("192.0.2.0/24", "2001:db8::/32")]
    ways += [(route(net, "replicate", group=9), group) for net in ("239.1.0.9/32", "ff0e::9/128")]
    for leads, leads_to in ways:
        assert refused(switch, schema, leads)[0] == rpc_code.NOT_FOUND
        insert(switch, schema, leads_to, leads)
        code, text = refused(switch, schema, leads_to, p4r.Update.DELETE)
        assert (code, text.startswith("1 entry refers to")) == (rpc_code.FAILED_PRECONDITION, True)
        switch.write(*updates(schema, p4r.Update.DELETE, [leads, leads_to]))


def test_bits_of_ports_and_parts_of_a_budget_are_free(switch: Switch, schema: P4Schema) -> None:
    """Tables without a restriction take everything that their types can have."""
    free: list[P4TableEntry] = [
        entry("dscp_classes", {"dscp": n}, "set_queue_class", queue_class=n % 8) for n in (0, 63)
    ]
    free += [entry("budget_shares", {"from_fabric": n, "to_fabric": n}, "nothing") for n in (0, 1)]
    insert(switch, schema, *free)


GROUP = 9


def tree(job: int = 1, everybody: int = 7, here: int | None = None, up: int = 0, **arguments: int) -> P4TableEntry:
    return sum_tree(job, 3, everybody=everybody, here=here, up=up, **{"group": GROUP, **arguments})


def worker(port: int = 1, address: str = H1.address, job: int = 1, member: int = 1) -> P4TableEntry:
    return contributor(port, address, job, member)


@pytest.fixture
def sums(sum_schema: P4Schema) -> Switch:
    switch = Switch.load(SUM_PROGRAM, SUM_P4INFO)
    insert(switch, sum_schema, P4MulticastGroupEntry(GROUP, replicas=(1, 2)))
    return switch


def refused_changes(switch: Switch, schema: P4Schema, bad: dict[str, list[P4TableEntry]]) -> None:
    for told, entries in bad.items():
        for it in entries:
            code, text = refused(switch, schema, it, p4r.Update.MODIFY)
            assert (code, told in text) == (rpc_code.INVALID_ARGUMENT, True), text


def test_a_contributor_has_one_bit(sums: Switch, sum_schema: P4Schema) -> None:
    insert(sums, sum_schema, worker())
    sums.write(*updates(sum_schema, p4r.Update.MODIFY, [worker(member=1 << n) for n in range(32)]))
    bad = [worker(member=bits) for bits in (0, 3, 0x80000001, 0xFFFFFFFF, 6)]
    refused_changes(sums, sum_schema, {"member == 0x00000001": bad})


def test_slots_of_sums_are_a_power_of_two(sums: Switch, sum_schema: P4Schema) -> None:
    insert(sums, sum_schema, tree())
    good = [tree(mask=mask) for mask in MASKS if mask < 4096] + [tree(base=4095)]
    sums.write(*updates(sum_schema, p4r.Update.MODIFY, good))
    masks = [mask for mask in range(4096) if mask not in MASKS]
    bad = {
        "slot_mask": [tree(mask=mask) for mask in (*masks, 4096, 8191)],
        '"slot_base < 0x1000" does not hold for slot_base = 0x1000': [tree(base=4096)],
    }
    refused_changes(sums, sum_schema, bad)


def test_a_switch_is_a_root_or_has_a_way_up(sums: Switch, sum_schema: P4Schema) -> None:
    insert(sums, sum_schema, tree())
    good = [tree(everybody=1, up=0), tree(here=7, up=3), tree(here=6, up=510), tree(everybody=0xFFFFFFFF, epoch=255)]
    sums.write(*updates(sum_schema, p4r.Update.MODIFY, good))
    nowhere = tree()
    nowhere.action.args["address"] = 0
    bad = {
        '"here == all || up != 0" does not hold for all = 0x7, here = 0x6, up = 0': [tree(here=6)],
        '"here <= all" does not hold for all = 0x7, here = 0x8': [tree(here=8, up=3)],
        '"here != 0" does not hold for here = 0x0': [tree(here=0, up=3), tree(everybody=0)],
        '"up != 511" does not hold for up = 511': [tree(here=6, up=511)],
        '"group != 0" does not hold for group = 0': [tree(group=0)],
        '"epoch != 0" does not hold for epoch = 0': [tree(epoch=0)],
        '"address != 0" does not hold': [nowhere],
    }
    refused_changes(sums, sum_schema, bad)


def test_sums_go_down_to_a_group_that_is_there(sums: Switch, sum_schema: P4Schema) -> None:
    assert refused(sums, sum_schema, tree(group=8))[0] == rpc_code.NOT_FOUND
    insert(sums, sum_schema, tree())
    group = P4MulticastGroupEntry(GROUP, replicas=(1, 2))
    assert refused(sums, sum_schema, group, p4r.Update.DELETE)[0] == rpc_code.FAILED_PRECONDITION


@pytest.mark.parametrize(
    ("forbidden", "told"),
    [
        (worker(port=0), 'aggregation.contributors: "ingress_port != 0" does not hold for ingress_port = 0'),
        (worker(port=511), 'aggregation.contributors: "ingress_port != 511" does not hold for ingress_port = 511'),
        (worker(address="::"), 'aggregation.contributors: "source != 0" does not hold for source = 0x0'),
        (worker(job=0), 'aggregation.contributors: "job != 0" does not hold for job = 0'),
        (tree(job=0), 'aggregation.sum_trees: "job != 0" does not hold for job = 0'),
        (subtree(0, 1, 1), 'aggregation.subtrees: "ingress_port != 0" does not hold for ingress_port = 0'),
        (subtree(511, 1, 1), 'aggregation.subtrees: "ingress_port != 511" does not hold for ingress_port = 511'),
        (subtree(1, 0, 1), 'aggregation.subtrees: "job != 0" does not hold for job = 0'),
        (subtree(1, 1, 0), 'aggregation.cover: "workers != 0" does not hold for workers = 0'),
        (subtree(1, 1, 0, 1), 'aggregation.stand_for: "workers != 0" does not hold for workers = 0'),
        (subtree(1, 1, 1, 0), 'aggregation.stand_for: "bits != 0" does not hold for bits = 0'),
    ],
)
def test_what_the_profile_for_sums_forbids_is_refused(
    sums: Switch, sum_schema: P4Schema, forbidden: Entity, told: str
) -> None:
    code, text = refused(sums, sum_schema, forbidden)
    assert code == rpc_code.INVALID_ARGUMENT
    assert told in text


def test_the_profile_for_sums_has_what_the_ordinary_one_has(schema: P4Schema, sum_schema: P4Schema) -> None:
    """A controller writes the same to both, but for what is of sums."""
    kinds = ("tables", "actions", "counters", "direct_counters", "meters", "direct_meters", "registers", "digests")
    for kind in (*kinds, "action_profiles"):
        ordinary = {(it.alias, it.id) for it in getattr(schema, kind)}
        assert ordinary <= {(it.alias, it.id) for it in getattr(sum_schema, kind)}, kind
