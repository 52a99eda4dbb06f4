# SPDX-License-Identifier: Apache-2.0
"""Prometheus metrics: what GET /v1/status and GET /v1/links say, and what hosts' ports have."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector


def metrics(status: Mapping[str, Any], links: Mapping[str, Any], host_ports: Sequence[Mapping[str, Any]]) -> bytes:
    """The text format of Prometheus, of what the controller's methods of these names give."""
    registry = CollectorRegistry()
    registry.register(_Status(status, links, host_ports))
    return generate_latest(registry)


class _Status(Collector):
    def __init__(
        self, status: Mapping[str, Any], links: Mapping[str, Any], host_ports: Sequence[Mapping[str, Any]]
    ) -> None:
        self._status = status
        self._links: list[dict[str, Any]] = links["links"]
        self._host_ports = host_ports

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
        yield from self._sent()
        text = "How many of a job's 16 buckets a root sums"
        buckets = GaugeMetricFamily("gradlane_controller_sum_buckets", text, labels=["job", "root"])
        for job in self._status["jobs"]:
            for root, count in (job["sums"] or {"roots": {}})["roots"].items():
                buckets.add_metric([job["name"], root], count)
        yield buckets

    def _sent(self) -> Iterator[Metric]:
        """Of each port that is known, of links and of hosts."""
        text = "Bits that a port sends in a second, by queue class"
        sent = GaugeMetricFamily("gradlane_controller_port_sent_bits", text, labels=["switch", "port", "queue_class"])
        text = "Bits that a port sends in a second of what follows trees: sums and multicasts"
        trees = GaugeMetricFamily("gradlane_controller_port_tree_bits", text, labels=["switch", "port"])
        ports = [
            (*end.rsplit(":", 1), it["sent"][n], it["trees"][n])
            for it in self._links
            for n, end in enumerate(it["ends"])
        ]
        ports += [(it["switch"], str(it["port"]), it["sent"], it["trees"]) for it in self._host_ports]
        for switch, port, classes, following in ports:
            if classes is not None:
                for queue_class, bits in enumerate(classes):
                    sent.add_metric([switch, port, str(queue_class)], bits)
                trees.add_metric([switch, port], following)
        yield sent
        yield trees
