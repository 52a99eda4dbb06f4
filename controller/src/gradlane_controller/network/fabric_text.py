# SPDX-License-Identifier: Apache-2.0
"""The fabric file that says what a fabric is."""

import json
from collections.abc import Iterable

from gradlane.wire import CONTROL_DSCP
from gradlane_controller.network.fabric import Fabric, LinkPort, Port, SwitchAddress


def to_toml(fabric: Fabric) -> str:
    """A text of which `fabric_file.parse` makes the same fabric, but for the name of its file. All that the file leaves
    to be derived is written: who changes it changes nothing else by that."""
    thresholds = fabric.thresholds
    tables = [_table("[thresholds]", (("yellow", thresholds.yellow), ("red", thresholds.red)))] if thresholds else []
    tables += [table for it in fabric.switches for table in _switch(it)]
    tables += [_port(it) for it in fabric.ports]
    tables += [_link(*ends) for ends in zip(fabric.link_ports[::2], fabric.link_ports[1::2], strict=True)]
    tables += [
        _table("[[dscp]]", (("dscp", dscp), ("queue_class", queue_class)))
        for dscp, queue_class in fabric.dscp_classes
        if dscp != CONTROL_DSCP
    ]
    tables += [
        _table("[[rewrite]]", (("switch", it.switch), ("port", it.port), ("dscp", it.dscp), ("to", it.to)))
        for it in fabric.rewrites
    ]
    if (tuned := fabric.adaptive) is not None:
        least, most = tuned.threshold or (None, None)
        bounds = (("least_threshold", least), ("most_threshold", most), ("droppable", tuned.droppable))
        tables.append(_table("[adaptive]", (("interval", tuned.interval), *bounds, ("tolerance", tuned.tolerance))))
    return "\n".join(tables)


def _switch(it: SwitchAddress) -> Iterable[str]:
    keys = ("name", "index", "device_id", "address", "target", "pipes", "aggregation")
    yield _table("[[switch]]", [(key, getattr(it, key)) for key in keys])
    if it.tls is not None:
        files = [(key, getattr(it.tls, key)) for key in ("ca", "certificate", "key")]
        yield _table("[switch.tls]", [*files, ("server_name", it.tls.server_name or None)])


def _port(it: Port) -> str:
    keys = ("switch", "number", "host", "mac", "host_mac", "address", "prefix", "gateway", "address6", "prefix6")
    also = [str(address) for address in it.also] or None
    rest = (("gateway6", it.gateway6), ("also", also), ("rate", f"{it.rate}bit"), ("buffer", f"{it.buffer}B"))
    return _table("[[port]]", [*((key, getattr(it, key)) for key in keys), *rest])


def _link(one: LinkPort, other: LinkPort) -> str:
    ends = [f"{it.switch}:{it.number}" for it in (one, other)]
    return _table("[[link]]", (("ends", ends), ("rate", f"{one.rate}bit"), ("buffer", f"{one.buffer}B")))


def _table(head: str, values: Iterable[tuple[str, object]]) -> str:
    """In JSON, of which strings, numbers, booleans and lists are TOML; what is None is left out."""
    lines = [
        f"{key} = {json.dumps(value if isinstance(value, int | float | list) else str(value), ensure_ascii=False)}"
        for key, value in values
        if value is not None
    ]
    return "\n".join([head, *lines, ""])
