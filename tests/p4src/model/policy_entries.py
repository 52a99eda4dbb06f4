# SPDX-License-Identifier: Apache-2.0
"""A whole policy as plain data, and the entries that say the same to a switch."""

from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network

from finsy import P4MeterConfig, P4MeterEntry, P4MulticastGroupEntry

from tests.p4src.packet_bench import Reason
from tests.support import entries
from tests.support.entries import Entity
from tests.support.gradlane_packets import Host, Uplink

Range = tuple[int, int]


@dataclass(frozen=True)
class Meter:
    """Units per second, and bursts: those at which it turns yellow and red."""

    rate: int
    committed: int
    peak: int

    @property
    def config(self) -> P4MeterConfig:
        """As P4Runtime has it."""
        return P4MeterConfig(cir=self.rate, cburst=self.committed, pir=self.rate, pburst=self.peak)


@dataclass(frozen=True)
class JobRow:
    """What a job may do."""

    index: int
    base: int
    mask: int
    max_share: int
    trim: bool
    spray: bool


@dataclass(frozen=True)
class Share:
    """A job's part of a port."""

    meter: Meter
    excess_class: int


@dataclass
class Policy:
    """All that a controller tells a switch."""

    switch_id: int = 1
    chosen_bits: int = 0
    fabric_ports: set[int] = field(default_factory=set[int])
    edge_ports: set[int] = field(default_factory=set[int])
    sources: dict[tuple[int, str, int], int] = field(default_factory=dict)  # port, MAC, address: whether a member
    aggregators: set[tuple[int, int, int]] = field(default_factory=set)  # port, group, job
    stations: set[str] = field(default_factory=set[str])
    bridged: dict[str, int] = field(default_factory=dict[str, int])
    routes: list[tuple[IPv4Network | IPv6Network, str, int]] = field(default_factory=list)
    groups: dict[int, tuple[Host | Uplink, ...]] = field(default_factory=dict)
    multicast: dict[int, tuple[int, ...]] = field(default_factory=dict)
    senders: set[tuple[int, int, int]] = field(default_factory=set)
    jobs: dict[int, JobRow] = field(default_factory=dict)
    queue_classes: list[tuple[int, Range, int]] = field(default_factory=list)
    drop_precedences: list[tuple[int, Range, Range, int]] = field(default_factory=list)
    dscp_classes: dict[int, int] = field(default_factory=dict)
    port_policies: dict[int, tuple[int, int, int, int]] = field(default_factory=dict)
    queues: dict[int, Meter] = field(default_factory=dict)
    job_shares: dict[tuple[int, int], Share] = field(default_factory=dict)
    budget_shares: dict[tuple[int, int], str] = field(default_factory=dict)
    rewrites: dict[tuple[int, int], int] = field(default_factory=dict)
    punt_rates: dict[tuple[int, Reason], Meter] = field(default_factory=dict)
    control_rates: dict[int, Meter] = field(default_factory=dict)

    def entities(self) -> list[Entity]:
        """The entries that a switch needs."""
        found: list[Entity] = [entries.edge(port, self.switch_id) for port in self.edge_ports]
        found += [entries.fabric_port(port, self.switch_id, self.chosen_bits) for port in self.fabric_ports]
        for (port, mac, address), member in self.sources.items():
            match = {"ingress_port": port, "mac": mac, "source": address}
            found.append(entries.entry("sources", match, "known", member=member))
        found += [entries.aggregator(*row) for row in self.aggregators]
        found += [entries.station(mac) for mac in self.stations]
        found += [entries.bridged(mac, port) for mac, port in self.bridged.items()]
        found += [entries.next_hops(group, *members) for group, members in self.groups.items()]
        found += [P4MulticastGroupEntry(group, replicas=ports) for group, ports in self.multicast.items()]
        for network, action, number in self.routes:
            arguments = {} if action in ("local", "probe") else {"group": number}
            found.append(entries.route(str(network), action, **arguments))
        for port, source, job in self.senders:
            found.append(entries.entry("senders", {"ingress_port": port, "source": source, "job": job}, "permit"))
        for job, row in self.jobs.items():
            arguments = {"base": row.base, "mask": row.mask, "max_share": row.max_share}
            found.append(entries.set_job(job, index=row.index, trim=row.trim, spray=row.spray, **arguments))
        found += [entries.queue_class(*row) for row in self.queue_classes]
        found += [entries.drop_precedence(*row) for row in self.drop_precedences]
        found += [entries.dscp_class(*row) for row in self.dscp_classes.items()]
        found += [entries.port_policy(port, *row) for port, row in self.port_policies.items()]
        found += [entries.virtual_queue(port, meter.config) for port, meter in self.queues.items()]
        found += [
            entries.job_share(*key, share.meter.config, share.excess_class) for key, share in self.job_shares.items()
        ]
        found += [entries.budget_share(*place, part) for place, part in self.budget_shares.items()]
        found += [entries.rewrite(*key, to) for key, to in self.rewrites.items()]
        found += [P4MeterEntry("control_rates", index=p, config=m.config) for p, m in self.control_rates.items()]
        cells = {port << 3 | reason & 7: meter for (port, reason), meter in self.punt_rates.items()}
        return found + [P4MeterEntry("punt_rates", index=n, config=m.config) for n, m in cells.items()]
