# SPDX-License-Identifier: Apache-2.0
"""Prometheus metrics: what GET /v1/status and GET /v1/links say."""

from collections.abc import Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector


def metrics(status: Mapping[str, Any], links: Mapping[str, Any]) -> bytes:
    """The text format of Prometheus."""
    registry = CollectorRegistry()
    registry.register(_Status(status, links))
    return generate_latest(registry)


class _Status(Collector):
    def __init__(self, status: Mapping[str, Any], links: Mapping[str, Any]) -> None:
        self._status = status
        self._links: list[dict[str, Any]] = links["links"]

    def collect(self) -> Iterator[Metric]:
        """One value of each metric per switch, end of a link, or job and root."""
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
        text = "Bits that an end of a link sends in a second of what follows no tree"
        load = GaugeMetricFamily("gradlane_controller_link_load_bits", text, labels=["switch", "port"])
        ends = ((end, it["load"][n]) for it in self._links for n, end in enumerate(it["ends"]))
        for end, bits in ends:
            if bits is not None:
                load.add_metric(end.rsplit(":", 1), bits)
        yield load
        text = "How many of a job's 16 buckets a root sums"
        buckets = GaugeMetricFamily("gradlane_controller_sum_buckets", text, labels=["job", "root"])
        for job in self._status["jobs"]:
            for root, count in (job["sums"] or {"roots": {}})["roots"].items():
                buckets.add_metric([job["name"], root], count)
        yield buckets
