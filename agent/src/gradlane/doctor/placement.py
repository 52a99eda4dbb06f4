# SPDX-License-Identifier: Apache-2.0
"""Checks of the network card behind the agent's address: which cores work for it, its queues and rings."""

from collections.abc import Iterator

from gradlane.doctor import ethtool
from gradlane.doctor.card import Card, System, text_of
from gradlane.doctor.findings import OK, WARN, Finding, judge

_ENOUGH_RING = 1024  # packets; below, a burst of one flow may be more


def checks(interface: str, pid: int | None, system: System) -> Iterator[Finding]:
    """Of each card that an interface goes by. `pid`: the agent's, if it runs."""
    agent = frozenset[int]() if pid is None else system.agent_cores(pid)
    for card in system.cards(interface):
        nodes = system.nodes
        near = nodes.get(card.node, system.cores)
        if agent and pid is not None and len(nodes) > 1 and card.node in nodes:
            yield _node(card, near, agent, pid)
        yield from _interrupts(card, near, agent if agent < system.cores else frozenset(), agent)
        yield from _queues(card, near)
        yield from _ring(card)


def _node(card: Card, near: frozenset[int], agent: frozenset[int], pid: int) -> Finding:
    where = f"{card.name} is at NUMA node {card.node}, which has cores {text_of(near)}"
    return judge(
        agent <= near,
        "NUMA",
        f"{where}; the agent may run on {text_of(agent)}"
        + ("" if agent <= near else ", and what it sends and receives then goes from node to node"),
        f"taskset -apc {text_of(near)} {pid}; for good: `systemctl edit gradlane-agent`, [Service], "
        f"CPUAffinity={text_of(near)} (some of these are enough)",
    )


def _interrupts(card: Card, near: frozenset[int], bound: frozenset[int], agent: frozenset[int]) -> Iterator[Finding]:
    """`bound`: the cores that are the agent's, rather than all."""
    free = near - bound
    if not card.interrupts or not free:
        return
    beside = {irq for irq, cores in card.interrupts.items() if cores & bound}
    far = {irq for irq, cores in card.interrupts.items() if cores and not cores & near}
    fix = (
        "for irq in {}; do echo " + text_of(free) + " > /proc/irq/$irq/smp_affinity_list; done (irqbalance undoes it "
        f"unless IRQBALANCE_BANNED_CPULIST has all cores but {text_of(free)})"
    )
    for irqs, why in (
        (beside, f"a core of the agent ({text_of(bound)}), which they take time from"),
        (far, f"cores of another NUMA node than {card.name}'s ({text_of(near)})"),
    ):
        if irqs:
            names = " ".join(map(str, sorted(irqs)))
            yield Finding(WARN, "interrupts", f"{names} of {card.name} go to {why}", fix.format(names))
    if not beside and not far:
        cores = text_of(frozenset[int]().union(*card.interrupts.values()))
        known = f", none of them the agent's ({text_of(agent)})" if bound else ""
        yield Finding(OK, "interrupts", f"those of {card.name} go to cores {cores}{known}")


def _queues(card: Card, near: frozenset[int]) -> Iterator[Finding]:
    try:
        queues = ethtool.queues(card.name)
    except OSError:
        return  # it has one, and nothing can be changed
    wanted = min(queues.most, len(near))
    yield judge(
        queues.now >= wanted,
        "queues",
        f"{card.name} receives by {queues.now}, and could by {queues.most}; {len(near)} cores are near it",
        f"ethtool -L {card.name} {queues.kind} {wanted}: several cores then handle what several hosts send",
    )


def _ring(card: Card) -> Iterator[Finding]:
    try:
        ring = ethtool.ring(card.name)
    except OSError:
        return
    text = f"those of {card.name} receive {ring.now} packets, and could {ring.most}"
    if card.missed:
        text += f"; since the start of the host {card.missed} have been lost as they were full"
    yield judge(
        ring.now >= (ring.most if card.missed else min(ring.most, _ENOUGH_RING)),
        "rings",
        text,
        f"ethtool -G {card.name} rx {ring.most}",
    )
