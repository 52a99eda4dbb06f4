# SPDX-License-Identifier: Apache-2.0
"""Prometheus metrics made from rows: label values, and the value (None: not known, so it is left out)."""

from collections.abc import Iterable, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric

Rows = Iterable[tuple[Sequence[str], float | None]]


class Families:
    """Makes metrics whose names begin with `prefix`."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix

    def gauge(self, name: str, text: str, labels: Sequence[str], rows: Rows) -> Metric:
        """What goes up and down."""
        return _filled(GaugeMetricFamily(f"{self._prefix}{name}", text, labels=labels), rows)

    def counter(self, name: str, text: str, labels: Sequence[str], rows: Rows) -> Metric:
        """What only grows. Its name gets the ending "_total", unless it has it already."""
        return _filled(CounterMetricFamily(f"{self._prefix}{name.removesuffix('_total')}", text, labels=labels), rows)

    def info(self, name: str, text: str, labels: Sequence[str], rows: Iterable[Sequence[str]]) -> Metric:
        """Texts, as labels; the name gets the ending "_info"."""
        family = InfoMetricFamily(f"{self._prefix}{name}", text, labels=labels)
        for values in rows:
            family.add_metric(values, {})
        return family


def _filled(family: GaugeMetricFamily | CounterMetricFamily, rows: Rows) -> Metric:
    for values, value in rows:
        if value is not None:
            family.add_metric(values, value)
    return family
