# SPDX-License-Identifier: Apache-2.0
"""Random policies, and random frames that meet them: most of them sound, some malformed, cut off or changed."""

from ipaddress import ip_network
from random import Random

from scapy.layers.inet import ICMP, TCP, UDP, IPOption_Router_Alert
from scapy.layers.inet6 import ICMPv6EchoRequest, ICMPv6ND_NS, IPv6ExtHdrFragment
from scapy.layers.l2 import ARP, Dot1Q, Ether
from scapy.packet import Packet, Raw

from gradlane import wire
from tests.p4src.model.policy_entries import JobRow, Meter, Policy, Share
from tests.p4src.model.policy_model import PARTS
from tests.p4src.packet_bench import Reason
from tests.support.entries import multicast_mac
from tests.support.gradlane_packets import (
    FAR,
    GRADIENT_HEADERS,
    HOSTS,
    UPLINKS,
    Gradlane,
    Host,
    gradient,
    ip,
    ip6,
    source_key,
)

JOBS = (1, 2, 3)
LAYERS = (0, 1, 3, 4, 510, 511, 512, 65535)
PORTS = [end.port for end in (*HOSTS, *UPLINKS)]
GROUP4, GROUP6 = "239.1.0.1", "ff0e::1"
MESSAGES = (0, 1, 4, 8, 2**31 - 1, 2**31, 2**31 + 4, 2**32 - 4, 2**32 - 1)
DSCPS = (1, 8, 46, 0b110_011, 0b101_001, 56)
STEP = 50  # bytes behind a packet fill its frame up to a multiple of so many


def _rarely(random: Random) -> bool:
    return random.randint(0, 9) == 9


def _meters(random: Random, rates: tuple[int, ...], unit: int) -> Meter:
    committed = random.randint(0, 12)
    return Meter(
        random.choice(rates),
        committed * unit + unit // 2 + 1,
        (committed + random.randint(0, 12)) * unit + unit // 2 + 1,
    )


def _split(random: Random, points: tuple[int, ...], last: int) -> list[tuple[int, int]]:
    """Ranges without overlap, not all of 0..last."""
    ends = sorted(random.sample(points, random.randint(0, min(3, len(points)))))
    starts = [0, *(end + 1 for end in ends)]
    rows = list(zip(starts, [*ends, last], strict=True))
    return [row for row in rows if row[0] <= row[1] and random.randrange(2)]


def policies(random: Random, rates: tuple[int, ...]) -> Policy:
    """`rates`: of virtual queues and shares, in bytes per second."""
    policy = Policy(switch_id=random.randint(0, 65535), chosen_bits=random.randint(0, 12))
    for end in (*HOSTS, *UPLINKS):
        likely = policy.edge_ports if isinstance(end, Host) else policy.fabric_ports
        other = policy.fabric_ports if isinstance(end, Host) else policy.edge_ports
        random.choice([likely] * 8 + [other, set()]).add(end.port)
        if not _rarely(random):
            policy.stations.add(end.gateway)
        policy.port_policies[end.port] = (
            random.choice([0, 0, 1, 6]),
            random.randint(0, 7),
            random.randint(0, 7),
            random.randint(0, 1),
        )
        if _rarely(random):
            del policy.port_policies[end.port]
        if not _rarely(random):
            policy.queues[end.port] = _meters(random, rates, 1000)
        for dscp in random.sample(DSCPS, random.randint(0, 2)):
            policy.rewrites[end.port, dscp] = random.randint(0, 63)
    for host in HOSTS:
        policy.bridged[host.mac] = random.choice(PORTS)
        policy.routes.append((ip_network(f"{host.gateway_address}/32"), "local", 0))
        policy.routes.append((ip_network(f"{host.gateway_address6}/128"), "local", 0))
    # Some routes are missing, some lead to groups that do not exist.
    for host in (*HOSTS, FAR):
        for prefix in (f"10.0.{host.port}.0/24", f"fd00:0:0:{host.port}::/64"):
            if not _rarely(random):
                policy.routes.append((ip_network(prefix), "set_next_hop", random.randint(1, 6)))
    if random.randrange(2):
        policy.routes.append((ip_network("10.0.0.0/8"), "set_next_hop", random.randint(1, 6)))
    for number in range(1, 6):
        members = random.sample([*HOSTS, *UPLINKS], random.randint(1, 4))
        policy.groups[number] = tuple(members)
    for number, address in ((1, GROUP4), (2, GROUP6)):
        ports = random.sample(PORTS, random.randint(1, 4))
        policy.multicast[number] = tuple(ports)
        policy.routes.append((ip_network(address), "replicate", number))
        policy.stations.add(multicast_mac(address))
    _jobs(random, policy, rates)
    for dscp in random.sample(DSCPS, 3):
        policy.dscp_classes[dscp] = random.randint(0, 7)
    for place in ((0, 0), (0, 1), (1, 0), (1, 1)):
        if not _rarely(random):
            policy.budget_shares[place] = random.choice(["whole", "whole", *PARTS])
    for reason in (reason for reason in Reason if reason.name.startswith("PUNTED")):
        for port in random.sample(PORTS, 4):
            burst = random.randint(1, 3)
            policy.punt_rates[port, reason] = Meter(0, burst, burst)
    for host in HOSTS:
        for address in (0, source_key(host.address), source_key(host.address6)):
            if not _rarely(random):
                policy.sources[host.port, host.mac, address] = random.randrange(2)
        if not _rarely(random):
            policy.control_rates[host.port] = _meters(random, rates, 1000)
        policy.aggregators |= {(host.port, group, job) for group in (1, 2) for job in JOBS if random.randrange(2)}
    policy.routes.append((ip_network("240.0.0.0/16"), "probe", 0))
    return policy


def _jobs(random: Random, policy: Policy, rates: tuple[int, ...]) -> None:
    for job in JOBS:
        for host in HOSTS:
            for address in (host.address, host.address6):
                if not _rarely(random):
                    policy.senders.add((host.port, source_key(address), job))
        if not _rarely(random):
            policy.jobs[job] = JobRow(
                index=job,
                base=random.choice([0, 4, 65534]),
                mask=random.choice([0, 1, 3]),
                max_share=random.choice([65535, 65535, 2, 0]),
                trim=random.randrange(2),
                spray=random.randrange(2),
            )
            for port in {HOSTS[1].port, *random.sample(PORTS, random.randint(0, 3))}:
                policy.job_shares[job, port] = Share(_meters(random, rates, 1000), random.randint(0, 7))
        for layers in _split(random, LAYERS[:-1], 65535):
            policy.queue_classes.append((job, layers, random.randint(0, 7)))
        for magnitudes in _split(random, (0, 63, 127, 200), 255):
            layers = random.choice([(0, 65535), (1, 511)])
            policy.drop_precedences.append((job, layers, magnitudes, random.randint(1, 7)))


def _header(random: Random, length: int) -> dict[str, int]:
    """Fields of a Gradlane header: most of the time they hold together."""
    slices = random.choice([1, 2, 100, 8192])
    fields = {
        "job": random.choice([*JOBS, *JOBS, 0, 9]),
        "kind": random.choice([0] * 8 + list(range(16)) + [7, 7]),
        "flags": random.choice([0, 0, 1, 8, 255]),
        "layer": random.choice(LAYERS),
        "magnitude": random.randint(0, 255),
        "message": random.choice(MESSAGES),
        "way": random.choice([0, 0, 1, 2, 16, 255]),
        "slices": slices,
        "slice": random.randint(0, slices - 1),
        "budget": random.choice([0, 1, 2, 3, slices]),
        "length": length,
    }
    if _rarely(random):
        name = random.choice(["slices", "slice", "budget", "length"])
        bits = dict(wire.FIELDS)[name]
        fields[name] = random.choice([random.randrange(2**bits), 0, 2 ** (bits - 1), 2**bits - 1])
    if _rarely(random):
        fields["version"] = random.randrange(16)
    if fields["kind"] == 2 and length and random.randrange(2):
        fields["kind"] = 0
    fields["budget"] = fields["budget"] if fields["budget"] <= slices or _rarely(random) else slices
    return fields


def _datagram(random: Random, version: int) -> Packet:
    size = random.choice([100, 150, 500, 1000, 1000, 1000, 1500])
    length = size - GRADIENT_HEADERS[version]
    header = Gradlane(**_header(random, length))
    datagram = UDP(sport=random.choice([wire.UDP_PORT, 9]), dport=wire.UDP_PORT) / header / Raw(bytes(length))
    if _rarely(random):
        datagram.len = random.choice([0, 43, 44, 45])
    return datagram


def _ordinary(random: Random, version: int) -> Packet:
    port = random.randint(0, 65535)
    fill = Raw(bytes((1000 if random.randrange(2) else 100) - 14 - (20 if version == 4 else 40) - 20))
    kinds = [TCP(sport=port, dport=5001) / fill, UDP(dport=port) / Raw(bytes(12)) / fill]
    kinds.append(ICMP() / Raw(bytes(12)) / fill if version == 4 else ICMPv6EchoRequest() / Raw(bytes(12)) / fill)
    if version == 6:
        kinds += [ICMPv6ND_NS() / Raw(bytes(26)), IPv6ExtHdrFragment() / fill]
    return random.choice(kinds)


def incast(random: Random) -> tuple[int, bytes]:
    """A droppable slice of one of few messages towards one port, where queues fill and budgets are spent."""
    entry = random.choice([HOSTS[0], HOSTS[2], UPLINKS[0]])
    version = random.choice([4, 6])
    return entry.port, gradient(
        entry if isinstance(entry, Host) else HOSTS[0],
        HOSTS[1],
        through=entry,
        version=version,
        ip_fields={"tos" if version == 4 else "tc": 0b110_111_00},
        job=random.choice([1, 1, 2]),
        layer=random.choice(LAYERS),
        magnitude=random.randint(0, 255),
        message=random.choice(MESSAGES[::3]),
        budget=random.choice([1, 2, 3, 100]),
        slice=random.randint(0, 99),
    )


def frames(random: Random) -> tuple[int, bytes]:
    """The port that a frame enters by, and the frame."""
    source = random.choice([*HOSTS, *HOSTS, FAR])
    entry = source if source is not FAR and not _rarely(random) else random.choice([*UPLINKS, *HOSTS])
    version = random.choice([4, 6])
    groups = GROUP4 if version == 4 else GROUP6
    destination = random.choice([*HOSTS, FAR, HOSTS[1], HOSTS[1], "gateway", "nowhere", "240.0.0.1", groups])
    if destination == "gateway":
        destination = HOSTS[0].gateway_address if version == 4 else HOSTS[0].gateway_address6
    elif destination == "nowhere" or (version == 6 and destination == "240.0.0.1"):
        destination = "192.0.2.1" if version == 4 else "2001:db8::1"
    tags = random.choice([random.randrange(256), 0b110_011_00])
    ttl = random.choice([64, 64, 64, 64, 2, 1, 0])
    if version == 4:
        packet = ip(source, destination, entry, tos=tags, ttl=ttl)
    else:
        packet = ip6(source, destination, entry, tc=tags, hlim=ttl, fl=random.randint(0, 3))
    packet /= _datagram(random, version) if random.randrange(2) else _ordinary(random, version)
    if destination == groups and not _rarely(random):
        packet.dst = multicast_mac(groups)
    elif _rarely(random):
        packet.dst = random.choice([HOSTS[1].mac, HOSTS[2].mac, "ff:ff:ff:ff:ff:ff"])
    frame = _padded(packet)
    if _rarely(random):
        frame = _spoiled(random, frame)
    elif _rarely(random):
        frame = random.choice(_OTHERS)
    return entry.port, frame


def _padded(packet: Packet) -> bytes:
    raw = bytes(packet)
    return raw + bytes(-len(raw) % STEP)


def _spoiled(random: Random, frame: bytes) -> bytes:
    """Cut off within the headers, or with a few bits changed there."""
    if random.randrange(2):
        return frame[: random.randint(1, min(len(frame), 110))]
    changed = bytearray(frame)
    for _ in range(random.randint(1, 2)):
        changed[random.randint(12, min(len(frame), 98) - 1)] ^= 1 << random.randint(0, 7)
    return bytes(changed)


_OTHERS = [
    _padded(packet)
    for packet in (
        Ether(src=HOSTS[0].mac, dst="ff:ff:ff:ff:ff:ff") / ARP(),
        *(Ether(src=host.mac, dst="01:80:c2:00:00:0e", type=0x88CC) / Raw(bytes(36)) for host in HOSTS),
        Ether(src=HOSTS[0].mac, dst=HOSTS[0].gateway) / Dot1Q(vlan=5) / Raw(bytes(30)),
        Ether(src=HOSTS[0].mac, dst=HOSTS[1].mac, type=0x88B5) / Raw(bytes(36)),
        Ether(src=HOSTS[0].mac, dst=HOSTS[0].gateway, type=0x88B5) / Raw(bytes(36)),
        ip(HOSTS[0], HOSTS[1], options=[IPOption_Router_Alert()]) / UDP(dport=9),
        ip(HOSTS[0], HOSTS[1], flags="MF") / UDP(dport=wire.UDP_PORT) / Raw(bytes(60)),
        Ether(gradient(job=1, frame_bytes=100)),
    )
]
