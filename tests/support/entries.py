# SPDX-License-Identifier: Apache-2.0
"""Entries of the P4 program by name, and the small fabric that most tests use.

Hosts h1 to h4 at ports 1 to 4; uplinks 5 to 8, behind which there is a host that is far away.
"""

from collections.abc import Iterable, Sequence
from functools import cache
from ipaddress import ip_address

from finsy import (
    P4DigestEntry,
    P4IndirectAction,
    P4MeterConfig,
    P4MeterEntry,
    P4MulticastGroupEntry,
    P4TableAction,
    P4TableEntry,
    P4TableMatch,
)

from tests.support.gradlane_packets import FAR, HOSTS, UPLINKS, Host, Uplink, source_key

Entity = P4DigestEntry | P4MeterEntry | P4MulticastGroupEntry | P4TableEntry

SWITCH_ID = 1
# Meters run on the target's clock. Without a rate their tokens never come back, so that no time matters.
# With frames of 1000 bytes: the virtual queue takes 5 as green, then 6 as yellow, and every further one is red.
GREEN, YELLOW = 5, 6
UNDRAINED = P4MeterConfig(cir=0, cburst=5500, pir=0, pburst=11000)
ALWAYS_RED = P4MeterConfig(cir=0, cburst=1, pir=0, pburst=1)

MASK = 4095  # of a job's slots
CLASSES = (((0, 3), 6), ((4, 100), 5))
PRECEDENCES = (((0, 65535), (0, 63), 3), ((0, 10), (64, 127), 2), ((0, 10), (128, 159), 1))


def entry(table: str, match: dict[str, object], action: str, **arguments: object) -> P4TableEntry:
    """An entry of a table with exact keys."""
    return P4TableEntry(table, match=P4TableMatch(match), action=P4TableAction(action, **arguments))


def without(found: Iterable[Entity], *tables: str) -> list[Entity]:
    """The entities but for the entries of some tables."""
    return [it for it in found if not isinstance(it, P4TableEntry) or it.table_id not in tables]


def edge(port: int, switch_id: int = SWITCH_ID) -> P4TableEntry:
    """A port with a host."""
    return entry("ports", {"ingress_port": port}, "edge", switch_id=switch_id)


def fabric_port(port: int, switch_id: int = SWITCH_ID, chosen_bits: int = 0) -> P4TableEntry:
    """A port towards another switch; by so many bits the switches behind it have spread what they send here."""
    return entry("ports", {"ingress_port": port}, "fabric", switch_id=switch_id, chosen_bits=chosen_bits)


def source(port: int, mac: str, address: str = "::", member: int = 0) -> P4TableEntry:
    """An address that a host may send from. `::`: what is not IP. `member`: of a job."""
    match = {"ingress_port": port, "mac": mac, "source": source_key(address)}
    return entry("sources", match, "known", member=member)


def sources(host: Host, member: int = 0) -> list[P4TableEntry]:
    """Those of a host."""
    return [source(host.port, host.mac, address, member) for address in ("::", host.address, host.address6)]


def station(mac: str) -> P4TableEntry:
    """A MAC address of the switch itself."""
    return entry("stations", {"destination": mac}, "route")


def bridged(mac: str, port: int) -> P4TableEntry:
    """A MAC address that frames are bridged to."""
    return entry("bridged", {"destination": mac}, "bridge_to", port=port)


def route(prefix: str, action: str = "set_next_hop", **arguments: object) -> P4TableEntry:
    """A route, IPv4 or IPv6."""
    table = "ipv6_routes" if ":" in prefix else "ipv4_routes"
    return entry(table, {"destination": prefix}, action, **arguments)


def next_hops(group: int, *members: Host | Uplink, weights: Sequence[int] = ()) -> P4TableEntry:
    """An ECMP group; each member is skipped while its port is down."""
    actions = [
        (
            (weight, member.port),
            P4TableAction("forward", port=member.port, next_hop=member.mac, own=member.gateway),
        )
        for member, weight in zip(members, weights or [1] * len(members), strict=True)
    ]
    return P4TableEntry("next_hops", match=P4TableMatch(group=group), action=P4IndirectAction(actions))


FAR_GROUP = 9


@cache
def fabric(uplinks: Sequence[Uplink] = UPLINKS, switch_id: int = SWITCH_ID, chosen_bits: int = 0) -> tuple[Entity, ...]:
    """Ports, hosts' addresses, stations, bridged hosts, routes to every host and the one that is far, addresses of the
    switch itself."""
    found: list[Entity] = [edge(host.port, switch_id) for host in HOSTS]
    found += [fabric_port(uplink.port, switch_id, chosen_bits) for uplink in uplinks]
    found += [station(end.gateway) for end in (*HOSTS, *uplinks)]
    for host in HOSTS:
        found += [bridged(host.mac, host.port), next_hops(host.port, host)]
        found += [*sources(host), *routes(host, host.port)]
        found += [route(f"{host.gateway_address}/32", "local"), route(f"{host.gateway_address6}/128", "local")]
    return *found, next_hops(FAR_GROUP, *uplinks), *routes(FAR, FAR_GROUP)


def routes(host: Host, group: int) -> list[P4TableEntry]:
    """A host's IPv4 and IPv6 subnets, to an ECMP group."""
    return [
        route(f"10.0.{host.port}.0/24", group=group),
        route(f"fd00:0:0:{host.port}::/64", group=group),
    ]


def senders(hosts: Iterable[Host], job: int) -> list[P4TableEntry]:
    """The hosts that may send gradients of a job, IPv4 and IPv6."""
    return [sender(host.port, address, job) for host in hosts for address in (host.address, host.address6)]


def sender(port: int, address: str, job: int) -> P4TableEntry:
    """One entry of the guard."""
    return entry("senders", {"ingress_port": port, "source": source_key(address), "job": job}, "permit")


def set_job(
    job: int = 1,
    *,
    index: int = 1,
    base: int = 0,
    mask: int = MASK,
    max_share: int = 65535,
    trim: bool = False,
    spray: bool = True,
) -> P4TableEntry:
    """What a job may do, by its number."""
    arguments = {"slot_base": base, "slot_mask": mask, "max_share": max_share, "trim": int(trim), "spray": int(spray)}
    return entry("jobs", {"job": job}, "set_job", job_index=index, **arguments)


def _ranges(**ranges: tuple[tuple[int, int], int]) -> dict[str, tuple[int, int]]:
    """By name, a range and the largest value: P4Runtime leaves a range of everything out."""
    return {name: given for name, (given, largest) in ranges.items() if given != (0, largest)}


def queue_class(job: int, layers: tuple[int, int], queue_class: int) -> P4TableEntry:
    """The class of a range of layers."""
    match = P4TableMatch(job=job, **_ranges(layer=(layers, 65535)))
    action = P4TableAction("set_queue_class", queue_class=queue_class)
    return P4TableEntry("queue_classes", match=match, action=action, priority=1)


def drop_precedence(
    job: int, layers: tuple[int, int], magnitudes: tuple[int, int], drop_precedence: int
) -> P4TableEntry:
    """The drop precedence of a range of magnitudes in a range of layers."""
    match = P4TableMatch(job=job, **_ranges(layer=(layers, 65535), magnitude=(magnitudes, 255)))
    action = P4TableAction("set_drop_precedence", drop_precedence=drop_precedence)
    return P4TableEntry("drop_precedences", match=match, action=action, priority=1)


def dscp_class(dscp: int, queue_class: int) -> P4TableEntry:
    """The class of ordinary traffic."""
    return entry("dscp_classes", {"dscp": dscp}, "set_queue_class", queue_class=queue_class)


@cache
def job(number: int = 1, hosts: Sequence[Host] = HOSTS[:3], **arguments: int) -> tuple[Entity, ...]:
    """A job of hosts at edge ports; `arguments`: those of `set_job`."""
    found: list[Entity] = [set_job(number, **{"index": number, **arguments}), *senders(hosts, number)]
    found += [queue_class(number, layers, value) for layers, value in CLASSES]
    return *found, *(drop_precedence(number, *row) for row in PRECEDENCES)


def port_policy(port: int, metered: int = 1, yellow: int = 2, red: int = 1, to_fabric: int = 0) -> P4TableEntry:
    """What is metered and dropped at an egress port."""
    arguments = {"lowest_metered_class": metered, "yellow": yellow, "red": red, "to_fabric": to_fabric}
    return entry("port_policies", {"egress_port": port}, "set_policy", **arguments)


def virtual_queue(port: int, config: P4MeterConfig = UNDRAINED) -> P4MeterEntry:
    """The meter of an egress port."""
    return P4MeterEntry("virtual_queue", index=port, config=config)


def budget_share(from_fabric: int, to_fabric: int, part: str) -> P4TableEntry:
    """The part of a budget that is the switch's, by its place on the path."""
    return entry("budget_shares", {"from_fabric": from_fabric, "to_fabric": to_fabric}, part)


@cache
def congestion() -> tuple[Entity, ...]:
    """The usual policy and a slow virtual queue at each port, and a part of the budget for each place on a path."""
    found: list[Entity] = []
    for end in (*HOSTS, *UPLINKS):
        found += [virtual_queue(end.port), port_policy(end.port, to_fabric=int(isinstance(end, Uplink)))]
    shares = {(0, 0): "whole", (0, 1): "half", (1, 1): "quarter", (1, 0): "rest_of_half"}
    return *found, *(budget_share(*place, part) for place, part in shares.items())


def job_share(index: int, port: int, config: P4MeterConfig | None, excess_class: int = 1) -> P4TableEntry:
    """A job's share of an egress port."""
    it = entry("job_shares", {"job_index": index, "egress_port": port}, "set_share", queue_class_of_excess=excess_class)
    it.meter_config = config
    return it


def rewrite(port: int, dscp: int, to: int) -> P4TableEntry:
    """Another DSCP behind an egress port."""
    return entry("dscp_rewrites", {"egress_port": port, "dscp": dscp}, "rewrite", dscp=to)


def multicast(address: str, group: int, *ports: int) -> list[Entity]:
    """An address whose packets go to ports, and the MAC address that hosts send them to."""
    return [
        P4MulticastGroupEntry(group, replicas=ports),
        route(f"{address}/{128 if ':' in address else 32}", "replicate", group=group),
        station(multicast_mac(address)),
    ]


def multicast_mac(address: str) -> str:
    """RFC 1112, RFC 2464."""
    packed = ip_address(address).packed
    octets = b"\x33\x33" + packed[-4:] if len(packed) == 16 else bytes((1, 0, 0x5E, packed[1] & 127)) + packed[2:]
    return octets.hex(":")


def aggregator(port: int, group: int, job: int = 1) -> P4TableEntry:
    """Who may send a job's results to a multicast group."""
    return entry("aggregators", {"ingress_port": port, "group": group, "job": job}, "admit")


def control_rate(port: int, octets: int) -> P4MeterEntry:
    """So many bytes from a port in the top class, and none thereafter."""
    return P4MeterEntry("control_rates", index=port, config=P4MeterConfig(cir=0, cburst=octets, pir=0, pburst=octets))


def punt_rate(port: int, reason: int, packets: int) -> P4MeterEntry:
    """So many packets of a port and a reason for the controller, and none thereafter."""
    config = P4MeterConfig(cir=0, cburst=packets, pir=0, pburst=packets)
    return P4MeterEntry("punt_rates", index=port << 3 | reason & 7, config=config)


VIOLATIONS = P4DigestEntry("guard_violation_t", max_list_size=1, max_timeout_ns=0, ack_timeout_ns=0)


SUM_SOURCES, SUM_MAC = {4: "10.0.255.1", 6: "fd00:0:0:ff::1"}, "02:00:00:00:ff:01"
BUCKETS = range(16)  # of a job's slices, by number: each has a tree


def sum_tree(
    job: int,
    bucket: int,
    *,
    everybody: int,
    group: int,
    here: int | None = None,
    up: int = 0,
    base: int = 0,
    mask: int = 7,
    epoch: int = 1,
    version: int = 4,
) -> P4TableEntry:
    """Where in the tree of a bucket the switch is: at its root, or with the workers `here` beneath it, and the next
    switch at port `up`. What it makes is from that one of SUM_SOURCES."""
    slots = {"slot_base": base, "slot_mask": mask, "own": SUM_MAC, "epoch": epoch}
    who = {"address": source_key(SUM_SOURCES[version])} | {
        "all": everybody,
        "here": everybody if here is None else here,
    }
    return entry("sum_trees", {"job": job, "bucket": bucket}, "sum_at", **who, up=up, group=group, **slots)


def contributor(port: int, address: str, job: int, member: int) -> P4TableEntry:
    """A worker whose slices a switch sums, and its bit."""
    match = {"ingress_port": port, "source": source_key(address), "job": job}
    return entry("contributors", match, "contribute", member=member)


def subtree(port: int, job: int, workers: int, bits: int | None = None) -> P4TableEntry:
    """A switch whose sums another one sums, and the bits of the workers beneath it; or of a job of more workers than
    bits, those that this switch has given to its own children, and which `bits` stand for here."""
    match = {"ingress_port": port, "job": job}
    if bits is None:
        return entry("subtrees", match, "cover", workers=workers)
    return entry("subtrees", match, "stand_for", bits=bits, workers=workers)
