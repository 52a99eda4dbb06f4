# SPDX-License-Identifier: Apache-2.0
"""Which jobs there must be: those that controllers have acknowledged, whatever becomes of controllers."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from gradlane import job
from gradlane.job import Job

MOST_TRIED = 256  # combinations of what may be


@dataclass
class _Entry:
    """Of a job: what it is by the latest acknowledged change (None: it is not there), and what it may be since, as
    nobody knows whether a change was made, by the version that it was for (None: any)."""

    text: str | None = None
    version: int = 0
    unsure: list[tuple[int | None, str | None]] = field(default_factory=list[tuple[int | None, str | None]])

    @property
    def possible(self) -> set[str | None]:
        return {self.text, *(text for _, text in self.unsure)}


class Record:
    """What clients were told. Every job but those that are `shared` has one client that changes it, one change after
    the other."""

    def __init__(self, files: Mapping[str, str]) -> None:
        """`files`: jobs that controllers have from files, by name."""
        self._entries = {name: _Entry(text) for name, text in files.items()}
        self._based_on: dict[tuple[str, int], int] = {}  # by name and version, the version that came of it
        self._lock = threading.Lock()
        self.broken: list[str] = []
        self.acknowledged = 0

    def acknowledge(self, name: str, text: str | None) -> None:
        """A change was made."""
        with self._lock:
            self.acknowledged += 1
            self._entries[name] = _Entry(text)

    def acknowledge_version(self, name: str, text: str, expected: int, version: int) -> None:
        """A change of the version `expected` was made (0: of none), which is that one now: nobody else can have changed
        that one, too."""
        with self._lock:
            self.acknowledged += 1
            if (other := self._based_on.get((name, expected))) is not None:
                self.broken.append(f"job {name}: two changes of version {expected} were made: {other} and {version}")
            elif version <= expected:
                self.broken.append(f"job {name}: version {version} came of {expected}")
            self._based_on[name, expected] = version
            entry = self._entries.setdefault(name, _Entry())
            if version > entry.version:
                entry.text, entry.version = text, version
                entry.unsure = [it for it in entry.unsure if it[0] is None or it[0] > expected]

    def unsure(self, name: str, text: str | None, expected: int | None = None) -> None:
        """A change may have been made."""
        with self._lock:
            self._entries.setdefault(name, _Entry()).unsure.append((expected, text))

    def complain(self, what: str) -> None:
        """A controller has said something that it must never say."""
        with self._lock:
            self.broken.append(what)

    def possible(self, present: Collection[int]) -> Iterator[dict[str, Job]]:
        """All that there may be, where the jobs of these ids are there; not more than MOST_TRIED."""
        with self._lock:
            texts = {name: entry.possible for name, entry in self._entries.items()}
        choices: list[list[Job | None]] = []
        for name in texts:
            jobs = [None if text is None else job.parse(text, name) for text in sorted(texts[name], key=str)]
            choices.append([it for it in jobs if it is None or it.id in present] or [None])
            if any(it is not None and it.id in present for it in jobs):
                choices[-1] = [it for it in choices[-1] if it is not None]
        for chosen in itertools.islice(itertools.product(*choices), MOST_TRIED):
            yield {it.name: it for it in chosen if it is not None}

    def settle(self, jobs: Mapping[str, Job]) -> None:
        """It has turned out that there are just these."""
        with self._lock:
            for name, entry in self._entries.items():
                if entry.unsure:
                    texts = entry.possible
                    found = jobs.get(name)
                    entry.text = next(it for it in texts if (job.parse(it, name) if it else None) == found)
                    entry.unsure.clear()

    def describe(self) -> str:
        """For people."""
        with self._lock:
            return "; ".join(
                f"{name}: {' or '.join(sorted({'there' if it else 'gone' for it in entry.possible}))}"
                for name, entry in sorted(self._entries.items())
            )
