# SPDX-License-Identifier: Apache-2.0
"""Metrics of the controller's role, the switches, and the ports of links and hosts."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from prometheus_client.core import Metric

from gradlane.metric_families import Families

_families = Families("gradlane_controller_")
_gauge, _counter, _info = _families.gauge, _families.counter, _families.info

_SWITCH_GAUGES = {
    "connected": "Whether there is a session with the switch",
    "primary": "Whether this controller writes to it",
    "ready": "Whether the switch holds what it should",
    "up_to_date": "Whether that is all of the latest plan",
    "drained": "Whether traffic is led around the switch",
}
_MENDED = {
    "times": "Times that another client's changes were put right",
    "entities": "What was written for that",
}
_ROLE = {
    "leader": "Whether this controller leads",
    "fencing_number": "Number of the leader, which grows with each change",
}


def of_controller(controller: Mapping[str, Any]) -> Iterator[Metric]:
    """`controller`: what the status says of it."""
    for (name, text), value in zip(_ROLE.items(), (controller["leader"], controller["number"]), strict=True):
        yield _gauge(name, text, (), [((), float(value))])
    yield _gauge("store_up", "Whether the store answers", (), [((), float(not controller["store"]))])
    text = "Whether entries of the timeline wait for the store"
    yield _gauge("events_waiting", text, (), [((), float(bool(controller["events"])))])


def of_switches(switches: Sequence[Mapping[str, Any]]) -> Iterator[Metric]:
    """`switches`: what the status says of them."""
    for name, text in _SWITCH_GAUGES.items():
        yield _gauge(f"switch_{name}", text, ("switch",), [((it["name"],), float(it[name])) for it in switches])
    entries = [((it["name"],), float(sum(it["entries"].values()))) for it in switches]
    yield _gauge("switch_entries", "Entries that the switch should hold", ("switch",), entries)
    for name, text in _MENDED.items():
        rows = [((it["name"],), float(it["mended"][name])) for it in switches]
        yield _counter(f"switch_mended_{name}", text, ("switch",), rows)


def of_links(links: Sequence[Mapping[str, Any]]) -> Iterator[Metric]:
    """Of each end; `links`: what GET /v1/links says of them."""
    ends = [(_place(name), it, n) for it in links for n, name in enumerate(it["ends"])]
    up = [((*place, it["ends"][1 - n]), float(it["up"])) for place, it, n in ends]
    yield _gauge("link_up", "Whether the link works", ("switch", "port", "peer"), up)
    text = "Bits that an end of a link sends in a second of what follows no tree"
    yield _gauge("link_load_bits", text, ("switch", "port"), [(place, it["load"][n]) for place, it, n in ends])


def of_ports(
    links: Sequence[Mapping[str, Any]],
    host_ports: Sequence[Mapping[str, Any]],
    octets: Mapping[tuple[str, int], Sequence[int]],
) -> Iterator[Metric]:
    """Of each port that is known, of links and of hosts. `octets`: what each has sent, by queue class what follows no
    tree, and then what does."""
    hosts = [(it["switch"], str(it["port"]), it["name"]) for it in host_ports]
    yield _info("host", "A host, and the port at which it is", ("switch", "port", "host"), hosts)
    ports = [(_place(name), it["sent"][n], it["trees"][n]) for it in links for n, name in enumerate(it["ends"])]
    ports += [((it["switch"], str(it["port"])), it["sent"], it["trees"]) for it in host_ports]
    by_class = ("switch", "port", "queue_class")
    classes = [((*place, str(n)), bits) for place, sent, _ in ports if sent for n, bits in enumerate(sent)]
    yield _gauge("port_sent_bits", "Bits that a port sends in a second, by queue class", by_class, classes)
    text = "Bits that a port sends in a second of what follows trees: sums and multicasts"
    yield _gauge("port_tree_bits", text, ("switch", "port"), [(place, trees) for place, _, trees in ports])
    halves = [((switch, str(port)), it[: len(it) // 2], it[len(it) // 2 :]) for (switch, port), it in octets.items()]
    sent = [
        ((*place, str(n)), float(path + tree))
        for place, paths, trees in halves
        for n, (path, tree) in enumerate(zip(paths, trees, strict=True))
    ]
    yield _counter("port_sent_bytes", "Bytes that a port has sent, by queue class", by_class, sent)
    text = "Bytes that a port has sent of what follows trees"
    yield _counter("port_tree_bytes", text, ("switch", "port"), [(place, float(sum(it))) for place, _, it in halves])


def _place(end: str) -> tuple[str, str]:
    """The switch and the port of an end as "spine1:3"."""
    switch, _, port = end.rpartition(":")
    return switch, port
