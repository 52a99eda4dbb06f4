# SPDX-License-Identifier: Apache-2.0
"""Ports, ordinary traffic, and how much a switch may send to the controller."""

from finsy import Action, Match, P4DigestEntry, P4MeterConfig, P4MeterEntry, P4TableEntry

from gradlane_controller.data_plane import PUNTS
from gradlane_controller.network.fabric import Fabric, SwitchAddress
from gradlane_controller.policy.entities import Entity

PUNTS_PER_SECOND = 1000
PUNT_BURST = 100
VIOLATIONS = "guard_violation_t"


def ports(fabric: Fabric, switch: SwitchAddress) -> list[Entity]:
    """Whether hosts or another switch are behind a port: tags are trusted only of switches."""
    kinds = [(port.number, "edge") for port in fabric.ports_at(switch.name)]
    kinds += [(port.number, "fabric") for port in fabric.link_ports_at(switch.name)]
    return [
        P4TableEntry("ports", match=Match(ingress_port=number), action=Action(kind, switch_id=switch.index))
        for number, kind in kinds
    ]


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


def notifications() -> list[Entity]:
    """How many packets a switch may send to the controller, and how it reports violations of the guard."""
    config = P4MeterConfig(cir=PUNTS_PER_SECOND, cburst=PUNT_BURST, pir=PUNTS_PER_SECOND, pburst=PUNT_BURST)
    rates = [P4MeterEntry("punt_rates", index=int(reason), config=config) for reason in PUNTS]
    violations = P4DigestEntry(VIOLATIONS, max_list_size=64, max_timeout_ns=100_000_000, ack_timeout_ns=1_000_000_000)
    return [*rates, violations]
