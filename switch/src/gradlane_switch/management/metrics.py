# SPDX-License-Identifier: Apache-2.0
"""Prometheus metrics of the ports and the program, read when they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gradlane_switch.errors import SwitchError

Accounts = Callable[[], dict[str, Any]]
Losses = Callable[[], dict[str, int]]

_PORT_COUNTERS = {
    "rx": "received from the host",
    "tx": "sent to the host",
    "oversize": "longer than the MTU",
}
_QUEUE_COUNTERS = {
    "enqueued": "that found a place in a queue",
    "marked": "that got CE in a queue",
}


class _Program(Collector):
    def __init__(self, losses: Losses) -> None:
        self._losses = losses

    def collect(self) -> Iterator[Metric]:
        """What the program could not have, by kind, since it was loaded."""
        family = CounterMetricFamily("gradlane_switch_program_lost", "What the program could not have", labels=["kind"])
        for kind, count in self._losses().items():
            family.add_metric([kind], count)
        yield family


class _Ports(Collector):
    def __init__(self, accounts: Accounts) -> None:
        self._accounts = accounts

    def collect(self) -> Iterator[Metric]:
        """Every metric of every port, and the counts of what is none: ports that were removed, and the controller."""
        accounts = self._accounts()
        yield from _gauges(accounts["ports"])
        ports: list[dict[str, Any]] = list(accounts["ports"])
        ports += [{"port": name, **accounts[name]} for name in ("removed", "controller")]
        socket_drops = CounterMetricFamily(
            "gradlane_switch_port_socket_drops_packets",
            "Packets for which the kernel found no room in the port's socket",
            labels=["port"],
        )
        for port in ports:
            socket_drops.add_metric([str(port["port"])], port["socket_drops"])
        yield socket_drops
        for unit in ("packets", "bytes"):
            for name, meaning in _PORT_COUNTERS.items():
                family = CounterMetricFamily(
                    f"gradlane_switch_port_{name}_{unit}", f"{unit.capitalize()} {meaning}", labels=["port"]
                )
                for port in ports:
                    family.add_metric([str(port["port"])], port[name][unit])
                yield family
            for name, meaning in _QUEUE_COUNTERS.items():
                family = CounterMetricFamily(
                    f"gradlane_switch_queue_{name}_{unit}", f"{unit.capitalize()} {meaning}", labels=["port", "queue"]
                )
                for port in ports:
                    for queue in port["queues"]:
                        family.add_metric([str(port["port"]), str(queue["queue"])], queue[name][unit])
                yield family
            yield _drops(ports, unit)


def _gauges(ports: list[dict[str, Any]]) -> Iterator[Metric]:
    up = GaugeMetricFamily("gradlane_switch_port_up", "1 if the port is up", labels=["port", "interface"])
    rate = GaugeMetricFamily("gradlane_switch_port_rate_bps", "Rate in bit/s; 0: no limit", labels=["port"])
    depth = GaugeMetricFamily("gradlane_switch_queue_depth_bytes", "Bytes that wait", labels=["port", "queue"])
    for port in ports:
        number = str(port["port"])
        up.add_metric([number, port["interface"]], port["up"])
        rate.add_metric([number], port["rate"])
        for queue in port["queues"]:
            depth.add_metric([number, str(queue["queue"])], queue["depth_bytes"])
    yield from (up, rate, depth)


def _drops(ports: list[dict[str, Any]], unit: str) -> Metric:
    """By reason: a queue's number where it was a queue's, else empty."""
    family = CounterMetricFamily(
        f"gradlane_switch_dropped_{unit}", f"{unit.capitalize()} dropped", labels=["port", "queue", "reason"]
    )
    for port in ports:
        number = str(port["port"])
        for queue in port["queues"]:
            for reason in ("tail_dropped", "flushed"):
                family.add_metric([number, str(queue["queue"]), reason], queue[reason][unit])
        for reason, drop in port["drops"].items():
            family.add_metric([number, "", reason], drop[unit])
        for link in ("tx_link", "rx_link"):
            family.add_metric([number, "", f"{link}_lost"], port[link]["lost"][unit])
    return family


class MetricsServer:
    """Serves metrics over HTTP; port 0 is one that the system chooses. Raises SwitchError if it can't."""

    def __init__(self, host: str, port: int, accounts: Accounts, losses: Losses) -> None:
        registry = CollectorRegistry()
        registry.register(_Ports(accounts))
        registry.register(_Program(losses))
        try:
            self._server, self._thread = start_http_server(port, host, registry)
        except OSError as error:
            raise SwitchError(f"can't listen on {host}:{port}: {error.strerror or error}") from None
        self.address = f"{host}:{self._server.server_port}"

    def close(self) -> None:
        """Stops serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
