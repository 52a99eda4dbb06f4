# SPDX-License-Identifier: Apache-2.0
"""From the records of an arm's processes (JSON lines) to its figures; and, while it runs, to its progress."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.model import waiting
from lab.model.errors import RecordsError
from lab.model.results import ArmResult, Distribution, Point, SwitchFigures, Transport
from lab.model.waiting import Awaited, Exchange, Part, most_awaited

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
    """Where an arm is. Slices are those of all agents so far.

    steps_of: those of each worker, where one is slow; awaited: for whom the others have waited most.
    """

    arm: str
    step: int
    steps: int
    seconds: float
    loss: float | None
    delivered: int
    repaired: int
    dropped: int
    steps_of: tuple[int, ...] = ()
    awaited: Awaited | None = None


def progress(arm: str, steps: int, files: Sequence[RecordFile], dropped: int, by_worker: bool = False) -> Progress:
    """The state of an arm by what its workers (rank 0 first) have recorded; `dropped` is the switch's count.
    `by_worker`: also how far each worker is."""
    latest = files[0].last("step")
    known = [record["statistics"] for file in files if (record := file.last("statistics"))]
    steps_of = tuple(record["step"] + 1 if (record := file.last("step")) else 0 for file in files)
    start = files[0].last("start")
    lockstep = start is None or start["lockstep"]
    return Progress(
        arm=arm,
        step=steps_of[0] if lockstep else sum(steps_of) // len(files),
        steps=steps,
        seconds=latest["t"] if latest else 0.0,
        loss=latest["loss"] if latest else None,
        delivered=sum(statistics["slices_delivered"] for statistics in known),
        repaired=sum(statistics["slices_repaired"] for statistics in known),
        dropped=dropped,
        steps_of=steps_of if by_worker else (),
        awaited=most_awaited(exchanges(files), len(files), latest["t"]) if by_worker and latest else None,
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
    with_exchanges: bool = False,
) -> ArmResult:
    """The figures of a finished arm. `workers` are the records in rank order, `statistics` those of every agent (of
    workers and servers), none for an arm without agents; `failed` is the CLOCK_MONOTONIC time of a switch's failure,
    `links` the bytes that the ends of links have sent. With or without the exchanges of each worker.

    Raises RecordsError.
    """
    start, final = workers[0].need("start"), workers[0].need("final")
    step_ends, step_seconds = _steps(workers, start["lockstep"])
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
        allreduce=Distribution.of(_allreduces(workers, start["lockstep"])),
        transport=transport(statistics),
        switch=switch,
        step_ends=tuple(step_ends),
        failed_at=None if failed is None else failed - start["start"],
        links=links or {},
        batches=tuple(len(file.all("step")) for file in workers),
        exchanges=exchanges(workers) if with_exchanges else (),
    )


def exchanges(workers: Sequence[RecordFile]) -> tuple[Exchange, ...]:
    """Those of all workers so far."""
    return waiting.exchanges(
        [[Part(tuple(r["group"]), r["ready"], r["done"]) for r in file.all("exchange")] for file in workers]
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
        reduced_bytes=total["reduced_bytes"],
        summed_bytes=total["summed_bytes"],
        sums_repaired=total["sums_repaired"],
        sums_left_out=total["sums_left_out"],
    )


def _is_count(statistics: Iterable[Record], key: str) -> bool:
    return all(isinstance(record[key], int) for record in statistics)


def _steps(workers: Sequence[RecordFile], lockstep: bool) -> tuple[list[float], list[float]]:
    """When each step ended, and how long it took."""
    if lockstep:
        columns = [file.all("step") for file in workers]
        return _slowest(columns, "t"), _slowest(columns, "step_seconds")
    ends = sorted(record["t"] for file in workers for record in file.all("step"))[len(workers) - 1 :: len(workers)]
    return ends, [end - began for began, end in zip([0.0, *ends], ends, strict=False)]


def _allreduces(workers: Sequence[RecordFile], lockstep: bool) -> list[float]:
    """How long each took: of all workers in lockstep at the slowest of them."""
    columns = [file.all("exchange") for file in workers]
    if lockstep:  # without a barrier a worker may lack the last one
        return _slowest([column[: min(map(len, columns))] for column in columns], "seconds")
    return [record["seconds"] for column in columns for record in column]


def _slowest(columns: Sequence[Sequence[Record]], key: str) -> list[float]:
    """Of records that belong together the largest value over the workers."""
    return [max(record[key] for record in records) for records in zip(*columns, strict=True)]
