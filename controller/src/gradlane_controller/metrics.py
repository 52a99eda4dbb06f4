# SPDX-License-Identifier: Apache-2.0
"""Prometheus metrics: what GET /status says of the switches, and how many jobs there are."""

from collections.abc import Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector


def metrics(status: Mapping[str, Any]) -> bytes:
    """The text format of Prometheus."""
    registry = CollectorRegistry()
    registry.register(_Status(status))
    return generate_latest(registry)


class _Status(Collector):
    def __init__(self, status: Mapping[str, Any]) -> None:
        self._status = status

    def collect(self) -> Iterator[Metric]:
        """One value per switch of each metric."""
        switches: list[dict[str, Any]] = self._status["switches"]
        gauges = {"ready": "Whether the switch holds what it should", "primary": "Whether this controller writes to it"}
        for name, text in gauges.items():
            gauge = GaugeMetricFamily(f"gradlane_controller_switch_{name}", text, labels=["switch"])
            for switch in switches:
                gauge.add_metric([switch["name"]], float(switch[name]))
            yield gauge
        counts = {
            "times": "Times that another client's changes were put right",
            "entities": "What was written for that",
        }
        for name, text in counts.items():
            counter = CounterMetricFamily(f"gradlane_controller_switch_mended_{name}", text, labels=["switch"])
            for switch in switches:
                counter.add_metric([switch["name"]], float(switch["mended"][name]))
            yield counter
        yield GaugeMetricFamily("gradlane_controller_jobs", "Jobs in the network", value=len(self._status["jobs"]))
