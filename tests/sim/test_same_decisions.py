# SPDX-License-Identifier: Apache-2.0
"""The simulated switch decides as gradlane-switch with the P4 program does, and as the model in Python: random frames
through random policies, and through the controller's entries.

Left out are frames of which the simulation has none: those that do not look like IPv4 from a known host to a known one
(the guard's, the controller's, bridged, broken, IPv6, multicast, TTL 1). Of the others everything is compared but TTL
and checksum of IPv4, and a trace's records, which a simulated switch does not write.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from ipaddress import ip_network
from random import Random

import pytest
from finsy import P4Schema
from hypothesis import given, settings
from hypothesis import strategies as st
from scapy.layers.inet import UDP
from scapy.packet import Raw

from gradlane import wire
from gradlane_sim import tables
from tests.p4src.conftest import unrestricted
from tests.p4src.model.model_packet import View, checksum_is_right
from tests.p4src.model.policy_entries import Meter, Policy
from tests.p4src.model.policy_model import Model, Outcome
from tests.p4src.model.random_policies import JOBS, PORTS, frames, incast, policies
from tests.p4src.model.test_policy_model import RATES, USUAL, Step, steps
from tests.p4src.packet_bench import Bench, Reason
from tests.p4src.packet_targets import CPU_PORT, InProcess, Sent
from tests.sim.replay import Entering, Fate, replay
from tests.support.effort import tries
from tests.support.gradlane_packets import FAR, HOSTS, UPLINKS, gradient, ip, source_key
from tests.support.paths import P4INFO, PROGRAM

IPV4 = 14  # where it begins in a frame
NOT_COMPARED = {8, 10, 11}  # TTL and checksum, in the IPv4 header
# The simulator counts what is no gradient as forwarded, and no more.
ORDINARY = {Reason.MALFORMED, Reason.UNKNOWN_VERSION}


@pytest.fixture(scope="module")
def switch() -> InProcess:
    return InProcess(P4Schema(P4INFO, PROGRAM.read_bytes()), unrestricted(PROGRAM, P4INFO))


@pytest.fixture(scope="module")
def bench(switch: InProcess) -> Bench:
    return Bench(switch, P4Schema(P4INFO, PROGRAM.read_bytes()))


def honest(policy: Policy) -> Policy:
    """The same for hosts of a job that do not lie, with nothing behind it that knows no P4."""
    addresses = [source_key(it.address) for it in (*HOSTS, FAR)]
    macs = [end.mac for end in (*HOSTS, *UPLINKS)]
    return replace(
        policy,
        sources={(port, mac, address): 1 for port in PORTS for mac in macs for address in addresses},
        senders={(port, address, job) for port in PORTS for address in addresses for job in (*JOBS, 0, 9)},
        rewrites={},
    )


def slices(random: Random) -> tuple[int, bytes]:
    """A droppable slice of messages that share slots, with budgets that parts of divide unevenly."""
    entry = random.choice([HOSTS[0], UPLINKS[0]])
    return entry.port, gradient(
        HOSTS[0],
        HOSTS[1],
        through=entry,
        ip_fields={"tos": random.choice([0b110_111_00, 0b111_111_00])},
        job=random.choice([1, 1, 1, 2, 3]),
        layer=random.choice([1, 3]),
        magnitude=random.choice([0, 63, 100, 200, 255]),
        message=random.choice([*range(6), 2**32 - 2, 2**32 - 1]),
        budget=random.choice([0, 1, 3, 9, 17, 45]),
        way=random.choice([0, 0, 3]),
        slice=random.randint(0, 99),
    )


def members(policy: Policy, it: View) -> list[int] | None:
    """The egress ports of a packet's route; None: it does not go to a group."""
    fitting = [
        row
        for row in policy.routes
        if row[0].version == 4
        and it.destination >> (32 - row[0].prefixlen) == int(row[0].network_address) >> (32 - row[0].prefixlen)
    ]
    if not fitting:
        return []
    _, action, number = max(fitting, key=lambda row: row[0].prefixlen)
    return [end.port for end in policy.groups.get(number, ())] if action == "set_next_hop" else None


def entering(policy: Policy, port: int, frame: bytes, now: int) -> Entering | None:
    """A frame as the simulated switch gets it; None: the simulation has none like it."""
    it = View(frame)
    if it.truncated or it.hidden or it.ip != 4 or it.ip_version != 4 or it.header_words != 5:
        return None
    if not checksum_is_right(frame[IPV4 : IPV4 + 20]) or it.ttl <= 1 or it.destination_mac not in policy.stations:
        return None
    ports, from_fabric = members(policy, it), port in policy.fabric_ports
    if ports is None or (not from_fabric and (port, it.source_mac, it.source) not in policy.sources):
        return None
    if it.has_gradlane and not from_fabric:
        known = (port, it.source, it.gradlane.job) in policy.senders
        if not known or it.gradlane.kind == wire.Kind.TRIMMED or it.gradlane.flags & wire.Flag.SUM:
            return None
    return Entering(now, len(frame), port, from_fabric, policy.chosen_bits, ports, frame[IPV4:])


def compared(packet: bytes, it: View, outcome: Outcome) -> bytes:
    """What is compared of a packet that leaves."""
    head = bytes(0 if n in NOT_COMPARED else octet for n, octet in enumerate(packet[:64]))
    return head[:2] + head[12:20] if outcome.trace else head


def check(bench: Bench, switch: InProcess, policy: Policy, sequence: Sequence[Step]) -> Counter[Reason]:
    """Runs what the simulation can have of a sequence through all three."""
    policy = honest(policy)
    entities = policy.entities()
    bench.install(entities)
    model = Model(policy)
    packets: list[Entering] = []
    wanted: list[tuple[Outcome, Sequence[Sent], View]] = []
    for (port, frame), times, later in sequence:
        now = switch.switch.now = switch.switch.now + later
        packet = entering(policy, port, frame, now)
        for _ in range(times if packet else 0):
            packets += [packet] if packet else []
            wanted.append((model.process(port, frame, now), bench.process(port, frame), View(frame)))
    found = replay(tables.policy(entities), packets)
    reasons: Counter[Reason] = Counter()
    for packet, fate, (outcome, sent, it) in zip(packets, found.fates, wanted, strict=True):
        reasons[same(packet, fate, outcome, sent, it)] += 1
    assert {reason: count for reason in Reason if (count := found.reasons[reason])} == reasons
    assert found.drops == model.drops == {key: count.packets for key, count in bench.drop_map().items()}
    return reasons


def same(packet: Entering, fate: Fate, outcome: Outcome, sent: Sequence[Sent], it: View) -> Reason:
    """Compares the three fates of a packet."""
    _, reason, *tags = outcome.decision
    reason = Reason.FORWARDED if reason in ORDINARY else reason
    what = packet.packet.hex(), outcome, fate
    assert (fate.reason, [fate.queue_class, fate.precedence]) == (reason, tags), what
    assert all(it.port != CPU_PORT for it in sent), what
    assert [(out.port, out.queue) for out in sent] == [(out.port, out.queue) for out in outcome.copies], what
    for out, of_model in zip(sent, outcome.copies, strict=True):
        assert fate.egress == out.port, what
        left = compared(fate.head, it, outcome)
        assert left == compared(out.frame[IPV4:], it, outcome) == compared(of_model.frame[IPV4:], it, outcome), what
        assert fate.trimmed == (len(out.frame) < packet.frame_bytes), what
    return reason


def test_random_sequences_have_the_same_fates(bench: Bench, switch: InProcess) -> None:
    seeds = st.integers(0, 2**64 - 1).map(Random)

    @settings(USUAL, max_examples=tries(12))
    @given(seeds.map(lambda random: policies(random, RATES)), steps)
    def run(policy: Policy, sequence: list[Step]) -> None:
        check(bench, switch, policy, sequence)

    run()


def test_the_same_sequences_reach_every_decision(bench: Bench, switch: InProcess) -> None:
    """Always the same ones, so that a test that compares nothing is seen."""
    reached: Counter[Reason] = Counter()
    for seed in range(25):
        random = Random(seed)
        kinds = [frames, incast, slices]
        sequence = [(kinds[n % 3](random), random.randint(1, 9), 1_000 * (n % 2)) for n in range(90)]
        reached.update(check(bench, switch, policies(random, RATES), sequence))
    names = """FORWARDED BUDGET_SPENT STALE_MESSAGE WITHIN_SHARE TRIMMED_YELLOW TRIMMED_RED DROPPED_YELLOW DROPPED_RED
    DROPPED_NO_ROUTE DEMOTED"""
    assert set(reached) == {Reason[name] for name in names.split()}
    assert sum(reached.values()) > 1000


def one_way() -> Policy:
    """Everything goes to one host; gradients of job 1 are in class 5."""
    policy = policies(Random(1), RATES)
    policy.port_policies = dict.fromkeys(PORTS, (0, 1, 1, 0))
    policy.routes = [(ip_network("10.0.0.0/8"), "set_next_hop", 1)]
    policy.groups = {1: (HOSTS[1],)}
    policy.stations = {HOSTS[0].gateway}
    policy.edge_ports, policy.fabric_ports = set(PORTS), set()
    policy.queue_classes = [(1, (0, 65535), 5)]
    return policy


BOUNDS = [
    {"slices": 0},
    {"slices": 1},
    {"slices": 8192},
    {"slices": 8193},
    {"slices": 9, "slice": 8},
    {"slices": 9, "slice": 9},
    {"slices": 9, "budget": 9},
    {"slices": 9, "budget": 10},
    {"kind": wire.Kind.TRACE},
    {"kind": 8},
    {"length": 1},
]


@pytest.mark.parametrize("fields", BOUNDS, ids=str)
def test_a_header_is_one_within_the_same_bounds(bench: Bench, switch: InProcess, fields: dict[str, int]) -> None:
    policy = one_way()
    policy.queues = {}
    assert check(bench, switch, policy, [((HOSTS[0].port, gradient(**fields)), 1, 0)]).total() == 1


def test_a_header_of_another_version_is_none(bench: Bench, switch: InProcess) -> None:
    policy = one_way()
    policy.queues = {}
    frame = bytearray(gradient())
    frame[IPV4 + 28] = (wire.VERSION + 1) << 4
    assert check(bench, switch, policy, [((HOSTS[0].port, bytes(frame)), 1, 0)]).total() == 1


def test_ordinary_traffic_beyond_the_bound_on_the_top_class_loses_its_dscp(bench: Bench, switch: InProcess) -> None:
    policy = one_way()
    policy.queues, policy.dscp_classes = {}, {56: 7}
    policy.control_rates = {HOSTS[0].port: Meter(0, 2500, 2500)}
    frame = bytes(ip(HOSTS[0], HOSTS[1], tos=56 << 2) / UDP(dport=9) / Raw(bytes(958)))
    reasons = check(bench, switch, policy, [((HOSTS[0].port, frame), 5, 0)])
    assert reasons == {Reason.FORWARDED: 2, Reason.DEMOTED: 3}


def test_virtual_queues_turn_at_the_same_byte_and_nanosecond(bench: Bench, switch: InProcess) -> None:
    """At a byte per nanosecond, frames that just fit and those that just do not."""
    policy = one_way()
    policy.queues = {port: Meter(1_000_000_000, 2000, 3000) for port in PORTS}
    random = Random(2)
    policy.edge_ports, policy.fabric_ports = set(PORTS), set()
    sequence = [((HOSTS[0].port, gradient()), 1, random.choice([0, 0, 999, 1000, 1001, 2000])) for _ in range(300)]
    assert sum(check(bench, switch, policy, sequence).values()) == 300
