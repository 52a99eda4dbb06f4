# SPDX-License-Identifier: Apache-2.0
"""From the records of an arm's processes (JSON lines) to its figures; and, while it runs, to its progress."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.model.errors import RecordsError
from lab.model.results import ArmResult, Distribution, Point, SwitchFigures, Transport

Record = dict[str, Any]


class RecordFile:
    """One process's records, read as they are written."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.records: list[Record] = []
        self._offset = 0

    def read_new(self) -> list[Record]:
        """The records written since the last call; a half-written last line waits for the next. Raises RecordsError."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return []  # the process has not come that far
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        try:
            new = [json.loads(line) for line in whole.splitlines()]
        except ValueError as problem:
            raise RecordsError(f"{self.path}: a line is not JSON: {problem}") from None
        self.records += new
        return new

    def last(self, event: str) -> Record | None:
        """The latest record of that kind."""
        return next((record for record in reversed(self.records) if record["event"] == event), None)

    def all(self, event: str) -> list[Record]:
        """Every record of that kind, in order."""
        return [record for record in self.records if record["event"] == event]

    def need(self, event: str) -> Record:
        """The latest record of that kind. Raises RecordsError if there is none."""
        found = self.last(event)
        if found is None:
            raise RecordsError(f"{self.path} has no {event!r} record, though the process ended well")
        return found


@dataclass(frozen=True)
class Progress:
    """Where an arm is. Slices are those of all agents so far."""

    arm: str
    step: int
    steps: int
    seconds: float
    loss: float | None
    delivered: int
    repaired: int
    dropped: int


def progress(arm: str, steps: int, files: Sequence[RecordFile], dropped: int) -> Progress:
    """The state of an arm by what its workers (rank 0 first) have recorded; `dropped` is the switch's count."""
    latest = files[0].last("step")
    known = [record["statistics"] for file in files if (record := file.last("statistics"))]
    return Progress(
        arm=arm,
        step=latest["step"] + 1 if latest else 0,
        steps=steps,
        seconds=latest["t"] if latest else 0.0,
        loss=latest["loss"] if latest else None,
        delivered=sum(statistics["slices_delivered"] for statistics in known),
        repaired=sum(statistics["slices_repaired"] for statistics in known),
        dropped=dropped,
    )


def arm_result(
    scenario: str,
    arm: str,
    seed: int,
    workers: Sequence[RecordFile],
    statistics: Sequence[Record],
    switch: SwitchFigures,
    failed: float | None = None,
    links: Mapping[str, int] | None = None,
) -> ArmResult:
    """The figures of a finished arm. `workers` are the records in rank order, `statistics` those of every agent (of
    workers and servers), none for an arm without agents; `failed` is the CLOCK_MONOTONIC time of a switch's failure,
    `links` the bytes that the ends of links have sent.

    A step is as long as its slowest worker's; so is an all-reduce. Raises RecordsError.
    """
    start, final = workers[0].need("start"), workers[0].need("final")
    step_seconds = _slowest(workers, "step_seconds")
    step = Distribution.of(step_seconds)
    if step is None:
        raise RecordsError(f"{workers[0].path} has no step")
    return ArmResult(
        scenario=scenario,
        arm=arm,
        seed=seed,
        seconds=final["seconds"],
        metric=start["metric"],
        target=start["target"],
        curve=tuple(Point(r["t"], r["step"], r["value"]) for r in workers[0].all("evaluation")),
        seconds_to_target=final["seconds_to_target"],
        step_seconds=tuple(step_seconds),
        step=step,
        allreduce=Distribution.of(_slowest(workers, "allreduce_seconds")),
        transport=transport(statistics),
        switch=switch,
        step_ends=tuple(_slowest(workers, "t")),
        failed_at=None if failed is None else failed - start["start"],
        links=links or {},
    )


def transport(statistics: Sequence[Record]) -> Transport | None:
    """The sums over all agents; None without any."""
    if not statistics:
        return None
    total = {key: sum(record[key] for record in statistics) for key in statistics[0] if _is_count(statistics, key)}
    return Transport(
        sent=total["slices_sent"],
        expected=total["slices_expected"],
        delivered=total["slices_delivered"],
        lost=total["slices_lost"],
        repaired=total["slices_repaired"],
        duplicate=total["slices_duplicate"],
        bad_datagrams=sum(value for key, value in total.items() if key.startswith("bad_")),
        budget=total["budget_total"],
        budget_violations=total["budget_violations"],
    )


def _is_count(statistics: Iterable[Record], key: str) -> bool:
    return all(isinstance(record[key], int) for record in statistics)


def _slowest(workers: Sequence[RecordFile], key: str) -> list[float]:
    """Per step the largest value over the workers."""
    columns = [[record[key] for record in file.all("step")] for file in workers]
    return [max(values) for values in zip(*columns, strict=True)]
