# SPDX-License-Identifier: Apache-2.0
"""What switches have decided for packets, as counts that only grow: a switch that restarts counts from 0 again, and the
cells of a job that has gone are not read any more."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from prometheus_client.core import Metric

from gradlane.metric_families import Families
from gradlane_controller.network.growth import growth

_counter = Families("gradlane_controller_").counter
_Cell = tuple[Any, ...]


class Decided:
    """Adds up what `Counters.to_json` says, each time it says something new. Of jobs and switches that are there."""

    def __init__(self) -> None:
        self._taken: Mapping[str, Any] | None = None
        self._cells: dict[str, dict[_Cell, list[int]]] = {}  # of each switch, as they were read last
        self._by_switch, self._by_job = Counter[tuple[str, str, str]](), Counter[tuple[str, str, str, str]]()
        self._by_magnitude, self._summed = Counter[tuple[int, str]](), Counter[tuple[str, str]]()

    def take(self, counters: Mapping[str, Any] | None, switches: Collection[str], jobs: Collection[str]) -> None:
        """The counters were read, if they are not those of before; the network has these switches and jobs now."""
        if counters is not None and counters is not self._taken:
            self._taken, found = counters, _by_switch(counters)
            for switch in switches:
                if switch not in counters["away"]:
                    self._add(switch, found.get(switch, {}))
        self._cells = {switch: it for switch, it in self._cells.items() if switch in switches}
        self._by_switch = Counter({key: it for key, it in self._by_switch.items() if key[0] in switches})
        self._by_job = Counter({key: it for key, it in self._by_job.items() if key[0] in jobs})
        self._summed = Counter({key: it for key, it in self._summed.items() if key[0] in jobs})

    def families(self) -> Iterator[Metric]:
        """The metrics."""
        for unit in ("packets", "bytes"):
            rows = [((switch, reason), float(it)) for (switch, reason, of), it in self._by_switch.items() if of == unit]
            text = f"{unit.capitalize()} for which a switch has decided something"
            yield _counter(f"switch_{unit}", text, ("switch", "reason"), rows)
            of_jobs = [((job, *kind), float(it)) for (job, *kind, of), it in self._by_job.items() if of == unit]
            text = f"{unit.capitalize()} of a job for which switches have decided something"
            yield _counter(f"job_{unit}", text, ("job", "reason", "queue_class"), of_jobs)
            taken = [((f"{n}-{n + 15}",), float(it)) for (n, of), it in self._by_magnitude.items() if of == unit]
            text = f"{unit.capitalize()} that the gradient policy has dropped or trimmed, by magnitude"
            yield _counter(f"gradient_dropped_{unit}", text, ("magnitude",), taken)
        summed = [(key, float(it)) for key, it in self._summed.items()]
        yield _counter("job_sum_packets", "Packets of a job that switches sum, by event", ("job", "event"), summed)

    def _add(self, switch: str, now: dict[_Cell, list[int]]) -> None:
        before = self._cells.get(switch, {})
        self._cells[switch] = now
        for cell, counts in now.items():
            more = dict(zip(("packets", "bytes"), growth(before.get(cell), counts), strict=False))
            match cell:
                case ("decision", job, reason, queue_class):
                    for unit, count in more.items():
                        self._by_switch[switch, reason, unit] += count
                        if job is not None:
                            self._by_job[job, reason, str(queue_class), unit] += count
                case ("drop", magnitude):
                    for unit, count in more.items():
                        self._by_magnitude[magnitude, unit] += count
                case ("sum", job, event):
                    self._summed[job, event] += more["packets"]
                case _:
                    raise AssertionError(f"{cell}: it is one of the above")


def _by_switch(counters: Mapping[str, Any]) -> Mapping[str, dict[_Cell, list[int]]]:
    """What each switch has counted, in so many parts as there are metrics of it."""
    found: defaultdict[str, dict[_Cell, list[int]]] = defaultdict(dict)

    def add(switch: str, cell: _Cell, *counts: int) -> None:
        known = found[switch].setdefault(cell, [0] * len(counts))
        for n, count in enumerate(counts):
            known[n] += count

    for row in counters["decisions"]:
        cell = "decision", row["job"], row["reason"], row["queue_class"]
        add(row["switch"], cell, row["packets"], row["bytes"])
    for row in counters["drop_map"]:
        add(row["switch"], ("drop", row["magnitude"]), row["packets"], row["bytes"])
    for row in counters["sums"]:
        for event, packets in row["events"].items() if row["job"] is not None else ():
            add(row["switch"], ("sum", row["job"], event), packets)
    return found
