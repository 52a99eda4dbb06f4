# SPDX-License-Identifier: Apache-2.0
"""What a port has counted, as dictionaries: the C side's gl_port_stats, and sums of them."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from gradlane_switch.dataplane.port_config import QUEUES, PortConfig, PortSpec

DROPS = ("rx_down", "program", "no_port", "rx_no_memory", "tx_down", "tx_no_memory", "tx_errors", "cut")
"""Reasons for drops that a port counts beside those of its queues and links; see runtime/ports/api.h."""


def port_statistics(spec: PortSpec, config: PortConfig, out: Any) -> dict[str, Any]:
    """A port's settings, and what its gl_port_stats has counted."""
    counts = counts_of(out)
    return counts | {
        "port": spec.number,
        "interface": spec.interface,
        "up": bool(out.up),
        "rate": config.rate,
        "buffer": config.buffer,
        "ecn": config.ecn,
        "weights": list(config.weights),
        "depth_bytes": out.depth,
        "max_depth_bytes": out.depth_max,
        "tx_link": asdict(config.tx) | counts["tx_link"],
        "rx_link": asdict(config.rx) | counts["rx_link"],
    }


def counts_of(out: Any) -> dict[str, Any]:
    """What a gl_port_stats has counted."""
    return {
        "rx": _traffic(out.rx),
        "tx": _traffic(out.tx),
        "queues": [_queue(number, out.queues[number]) for number in range(QUEUES)],
        "tx_link": _impaired(out.tx_impaired),
        "rx_link": _impaired(out.rx_impaired),
        "drops": {name: _traffic(getattr(out, name)) for name in DROPS},
        "copies": _traffic(out.copies),
        "replaced": _traffic(out.replaced),
        "uncopied": _traffic(out.uncopied),
        "oversize": _traffic(out.oversize),
        "socket_drops": out.socket_drops,
    }


def sum_of(one: Any, other: Any) -> Any:
    """The sum of two dictionaries of counts."""
    match one:
        case dict():
            return {key: value if key == "queue" else sum_of(value, other[key]) for key, value in one.items()}
        case list():
            return [sum_of(*pair) for pair in zip(one, other, strict=True)]
        case _:
            return one + other


def _traffic(value: Any) -> dict[str, int]:
    return {"packets": value.packets, "bytes": value.bytes}


def _queue(number: int, value: Any) -> dict[str, Any]:
    counted = ("enqueued", "tail_dropped", "pushed_out", "flushed", "ended", "marked")
    return {
        "queue": number,
        **{name: _traffic(getattr(value, name)) for name in counted},
        "depth_packets": value.depth.packets,
        "depth_bytes": value.depth.bytes,
    }


def _impaired(value: Any) -> dict[str, Any]:
    return {
        "lost": _traffic(value.lost),
        "duplicated": _traffic(value.duplicated),
        **{name: getattr(value, name) for name in ("corrupted", "delayed", "reordered", "in_flight")},
    }
