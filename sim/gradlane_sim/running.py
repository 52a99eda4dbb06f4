# SPDX-License-Identifier: Apache-2.0
"""Runs cases side by side, and keeps what they have shown: a case that was run before is not run again."""

import gzip
import hashlib
import json
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from gradlane_sim import measures
from gradlane_sim.carriers import Gradlane
from gradlane_sim.cases import Case
from gradlane_sim.document import document
from gradlane_sim.errors import SimulationError
from gradlane_sim.program import Program
from gradlane_sim.specification import Json, ideal_time, packets

# Told of the part of the work that is done, and how many cases are.
Progress: TypeAlias = Callable[[float, int], None]
# What a case that runs counts for at most before it is over, as nobody knows how long it will take.
_MOST_RUNNING = 0.95
# How many times the ideal time cases take, about.
_USUAL = 1.5


@dataclass(frozen=True)
class Outcome:
    """Of a case: what was measured, or why there is nothing."""

    case: Case
    measured: Json | None
    error: str = ""


class Work:
    """Cases to run. `kept`: the folder where results stay, by what they follow from: the program, of rivals without the
    engine, and its input."""

    def __init__(self, program: Program, kept: Path, progress: Progress = lambda part, cases: None) -> None:
        self._program, self._kept, self._progress = program, kept, progress
        self._lock = threading.Lock()
        self._parts: dict[int, float] = {}
        self._costs: list[int] = []
        self._over = 0
        self._measuring = hashlib.sha256(Path(measures.__file__).read_bytes()).hexdigest()

    def run(self, cases: Sequence[Case], processes: int) -> list[Outcome]:
        """In the order of the cases. A case that fails does not end the others. Raises SimulationError if the program
        is not there."""
        self._costs = [packets(case.specification) for case in cases]
        found: dict[int, Outcome] = {}
        _ = self._program.digest
        # The longest first, so that none is left alone at the end.
        order = sorted(range(len(cases)), key=lambda index: -self._costs[index])
        with ThreadPoolExecutor(max_workers=processes) as pool:
            waiting = {pool.submit(self._one, index, cases[index]): index for index in order}
            try:
                for future in as_completed(waiting):
                    found[waiting[future]] = future.result()
                    self._over += 1
                    self._tell(waiting[future], 1.0)
            except BaseException:
                self._program.stop()
                pool.shutdown(cancel_futures=True)
                raise
        return [found[index] for index in range(len(cases))]

    def kept(self, case: Case) -> Outcome | None:
        """What an earlier run has left of it, if it has."""
        found = _load(self._file(case, document(case.specification)))
        return Outcome(case, found) if found is not None else None

    def _one(self, index: int, case: Case) -> Outcome:
        try:
            told = document(case.specification)
            file = self._file(case, told)
            earlier = _load(file)
            if earlier is not None:
                return Outcome(case, earlier)
            expected = sum(
                _USUAL * ideal_time(case.specification.fabric, job) * job.steps for job in case.specification.jobs
            )
            result = self._program.run(
                told, lambda simulated, _: self._tell(index, min(_MOST_RUNNING, simulated / max(expected, 1e-9)))
            )
            kept = measures.measured(case.specification, result)
            _store(file, kept)
            return Outcome(case, kept)
        except SimulationError as problem:
            return Outcome(case, None, str(problem))

    def _file(self, case: Case, told: Json) -> Path:
        ours = any(isinstance(job.carrier, Gradlane) for job in case.specification.jobs)
        follows = [self._program.digest if ours else self._program.rivals_digest, self._measuring, told]
        return self._kept / f"{hashlib.sha256(json.dumps(follows, sort_keys=True).encode()).hexdigest()}.json.gz"

    def _tell(self, index: int, part: float) -> None:
        with self._lock:
            self._parts[index] = part
            done = sum(self._costs[it] * part for it, part in self._parts.items())
            self._progress(done / max(1, sum(self._costs)), self._over)


def _load(file: Path) -> Json | None:
    """None: it is not there, or was cut off."""
    try:
        return json.loads(gzip.decompress(file.read_bytes()))
    except (OSError, EOFError, ValueError):
        return None


def _store(file: Path, kept: Json) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    new = file.with_suffix(f".{os.getpid()}-{threading.get_ident()}")
    new.write_bytes(gzip.compress(json.dumps(kept).encode(), mtime=0))
    new.replace(file)
