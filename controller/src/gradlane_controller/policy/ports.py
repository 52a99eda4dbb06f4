# SPDX-License-Identifier: Apache-2.0
"""Ports, who is there, ordinary traffic, and how much a switch may send to the controller."""

from collections.abc import Collection, Mapping

from finsy import Action, Match, P4DigestEntry, P4MeterConfig, P4MeterEntry, P4TableEntry

from gradlane.toml_file import Address
from gradlane_controller.data_plane import PUNTS, punt_cell
from gradlane_controller.network.fabric import Fabric, SwitchAddress
from gradlane_controller.policy.entities import Entity, kept, mapped

PUNTS_PER_SECOND = 100  # of a port and a reason
PUNTS_OF_HOSTS = 4000  # of all of a switch's hosts together: less than the controller takes of a switch
VIOLATIONS = "guard_violation_t"
NO_ADDRESS = "::"  # of what is not IP, and of neighbour discovery


def ports(fabric: Fabric, switch: SwitchAddress, chosen_bits: Mapping[tuple[str, int], int]) -> list[Entity]:
    """Whether hosts or another switch are behind a port: tags are trusted only of switches.

    `chosen_bits`: see `spreading`, by switch and port.
    """
    edges = {port.number: Action("edge", switch_id=switch.index) for port in fabric.ports_at(switch.name)}
    links = {
        port.number: Action(
            "fabric", switch_id=switch.index, chosen_bits=chosen_bits.get((switch.name, port.number), 0)
        )
        for port in fabric.link_ports_at(switch.name)
    }
    return [
        P4TableEntry("ports", match=Match(ingress_port=number), action=action)
        for number, action in (edges | links).items()
    ]


def sources(fabric: Fabric, switch: str, members: Collection[Address]) -> list[Entity]:
    """The addresses that each host may send from, and which are of a job's member, which may use the top class."""
    return [
        _source(port.number, port.host_mac, source, member)
        for port in fabric.ports_at(switch)
        for source, member in (
            (NO_ADDRESS, False),
            *((mapped(address), address in members) for address in port.addresses),
        )
    ]


@kept
def _source(port: int, mac: str, source: str, member: bool) -> Entity:
    match = Match(ingress_port=port, mac=mac, source=source)
    return P4TableEntry("sources", match=match, action=Action("known", member=int(member)))


def ordinary_traffic(fabric: Fabric, switch: str) -> list[Entity]:
    """Queue classes of ordinary traffic, and what ports towards switches without P4 rewrite."""
    classes = [
        P4TableEntry("dscp_classes", match=Match(dscp=dscp), action=Action("set_queue_class", queue_class=queue_class))
        for dscp, queue_class in fabric.dscp_classes
    ]
    rewrites = [
        P4TableEntry(
            "dscp_rewrites", match=Match(egress_port=it.port, dscp=it.dscp), action=Action("rewrite", dscp=it.to)
        )
        for it in fabric.rewrites
        if it.switch == switch
    ]
    return [*classes, *rewrites]


def notifications(fabric: Fabric, switch: str) -> list[Entity]:
    """How many packets a switch may send to the controller, and how it reports violations of the guard."""
    hosts = [port.number for port in fabric.ports_at(switch)]
    rates = dict.fromkeys((port.number for port in fabric.link_ports_at(switch)), PUNTS_PER_SECOND)
    rates |= dict.fromkeys(
        hosts, min(PUNTS_PER_SECOND, PUNTS_OF_HOSTS // (len(hosts) * len(PUNTS)) + 1 if hosts else 0)
    )
    meters = [
        P4MeterEntry("punt_rates", index=punt_cell(number, reason), config=_bucket(rate))
        for number, rate in sorted(rates.items())
        for reason in PUNTS
    ]
    violations = P4DigestEntry(VIOLATIONS, max_list_size=64, max_timeout_ns=100_000_000, ack_timeout_ns=1_000_000_000)
    return [*meters, violations]


def _bucket(rate: int) -> P4MeterConfig:
    return P4MeterConfig(cir=rate, cburst=rate, pir=rate, pburst=rate)
