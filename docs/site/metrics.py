# SPDX-License-Identifier: Apache-2.0
"""The reference of metrics: what the collectors of an agent, a switch and a controller give that do nothing."""

import tempfile
from collections.abc import Iterable, Iterator
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from docs.site.tables import cell, table
from gradlane.daemon.metrics import families
from gradlane_controller.api.traffic import Traffic
from gradlane_controller.journal import Journal
from gradlane_controller.metrics.decided import Decided
from gradlane_controller.metrics.exposition import Seen, _Network  # pyright: ignore[reportPrivateUsage]
from gradlane_controller.metrics.lag import LoopLag
from gradlane_controller.session.convergences import Convergences
from gradlane_controller.store import Store
from gradlane_switch.dataplane.statistics import counts_of
from gradlane_switch.management.metrics import _Ports, _Program  # pyright: ignore[reportPrivateUsage]
from gradlane_switch.native.ffi import ffi

INTRODUCTION = """# Metrics

What Prometheus gets of [agents](../agent.md#metrics), [switches](../../switch/README.md) and
[controllers](../controller.md), from the programs themselves. Rules for alerts and dashboards are in
[deploy/](../../deploy/README.md).
"""


class _Nothing(dict[str, Any]):
    """What a program that does nothing says of itself: 0 or empty, whatever is asked."""

    def __missing__(self, key: str) -> "_Nothing":
        return _Nothing()

    def __float__(self) -> float:
        return 0.0


def _agent() -> Iterator[Metric]:
    nothing: Any = _Nothing(version="", addresses=[])
    return families(nothing)


def _switch() -> Iterator[Metric]:
    none = counts_of(ffi.new("gl_port_stats *"))
    yield from _Ports(lambda: {"ports": [], "removed": none, "controller": none}).collect()
    yield from _Program(dict).collect()


def _controller() -> Iterator[Metric]:
    with tempfile.TemporaryDirectory() as folder:
        store = Store(f"sqlite:///{folder}/store.db")
        journal = Journal(store, "")
    nothing = _Nothing()
    network = _Network(Seen(nothing, nothing, (), {}, None, {}, {}), Decided())
    counted: Iterable[Any] = (*Convergences().collectors, *Traffic().collectors, LoopLag().seconds, store.seconds)
    registry = CollectorRegistry()
    collector: Collector
    for collector in (network, *counted, journal.recorded, journal.lost):
        registry.register(collector)
        labels = getattr(collector, "_labelnames", None)
        for family in collector.collect():
            if labels is not None:
                family._labelnames = labels  # pyright: ignore[reportAttributeAccessIssue]  # samples alone have them
            yield family


PARTS = {"Agent": _agent, "Switch": _switch, "Controller": _controller}


def names(metric: Metric) -> str:
    """As a query has it."""
    endings = {"counter": "_total", "info": "_info"}
    return metric.name + endings.get(metric.type, "")


def page() -> str:
    """The whole page, as Markdown."""
    lines = [INTRODUCTION]
    for title, part in PARTS.items():
        rows = [
            (f"`{names(it)}`", it.type, ", ".join(f"`{label}`" for label in _labels(it)), cell(it.documentation))
            for it in sorted(part(), key=names)
        ]
        lines += [f"## {title}", "", table(("metric", "type", "labels", "what it is"), rows)]
    return "\n".join(lines)


def _labels(metric: Metric) -> tuple[str, ...]:
    return tuple(getattr(metric, "_labelnames", ()))
