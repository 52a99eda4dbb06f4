# SPDX-License-Identifier: Apache-2.0
"""Recorded runs: JSON lines (gzipped, if the name says so) of what a controller's stream has said.

The first line is {"recording": 1, "title": ..., "fabric": ..., "jobs": {name: job file}}; each other one is
{"state": ...} or {"event": ...}, as in GET /v1/stream, in the order in which they came, with a state each second.
"""

import gzip
import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import IO, Any

VERSION = 1


class Recording:
    """Plays a recording again and again, as if it were now. Raises ValueError if the file is none."""

    def __init__(self, path: Path, base: float) -> None:
        self.base = base
        with _open(path, "rt") as file:
            head, *lines = (json.loads(line) for line in file)
        if not isinstance(head, dict) or head.get("recording") != VERSION:
            raise ValueError(f"{path} is no recording of version {VERSION}: its first line lacks `recording`")
        self.title: str = head["title"]
        self._head = head
        self._states = [it["state"] for it in lines if "state" in it]
        if not self._states:
            raise ValueError(f"{path} has no `state`, so there is nothing to play")
        self._events = [it["event"] for it in lines if "event" in it]
        self._begin = _time(self._states[0]["at"])
        self._length = max(1, round((_time(self._states[-1]["at"]) - self._begin).total_seconds()) + 1)

    def fabric(self) -> dict[str, Any]:
        """What GET /v1/fabric answers."""
        return self._head["fabric"]

    def job_files(self) -> dict[str, str]:
        """By name."""
        return self._head["jobs"]

    def snapshot(self, second: int) -> dict[str, Any]:
        """The recorded state, with its times moved to that second's."""
        state = self._states[min(second % self._length, len(self._states) - 1)]
        return _moved(state, self._shift(second // self._length))

    def events(self, first: int, last: int) -> list[dict[str, Any]]:
        """Those between these seconds, with their times moved and their numbers going on."""
        found: list[dict[str, Any]] = []
        for turn in range(max(0, first) // self._length, last // self._length + 1):
            for number, event in enumerate(self._events):
                second = turn * self._length + (_time(event["at"]) - self._begin).total_seconds()
                if first <= second <= last:
                    found.append(_moved({**event, "id": turn * len(self._events) + number + 1}, self._shift(turn)))
        return found

    def _shift(self, turn: int) -> timedelta:
        return timedelta(seconds=self.base + turn * self._length - self._begin.timestamp())


def write(path: Path, title: str, fabric: Any, jobs: dict[str, str], messages: Iterator[tuple[str, Any]]) -> None:
    """Makes a recording of what comes: pairs of "state" or "event" and its content."""
    with _open(path, "wt") as file:
        head = {"recording": VERSION, "title": title, "fabric": fabric, "jobs": jobs}
        file.write(json.dumps(head, separators=(",", ":")) + "\n")
        for kind, content in messages:
            file.write(json.dumps({kind: content}, separators=(",", ":")) + "\n")


def _open(path: Path, mode: str) -> IO[str]:
    if path.suffix != ".gz":
        return path.open(mode)
    # Without a time and a name, so that the same recording is the same file.
    return gzip.open(path, mode) if "r" in mode else _TextGzip(path)  # type: ignore[return-value]


class _TextGzip:
    def __init__(self, path: Path) -> None:
        self._raw = path.open("wb")
        self._file = gzip.GzipFile("", "wb", 9, self._raw, mtime=0)

    def write(self, text: str) -> None:
        self._file.write(text.encode())

    def __enter__(self) -> "_TextGzip":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._file.close()
        self._raw.close()


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


def _moved(value: Any, by: timedelta, key: str = "") -> Any:
    """A copy with `at` and `since` moved, wherever they are."""
    if isinstance(value, dict):
        return {name: _moved(it, by, name) for name, it in value.items()}
    if isinstance(value, list):
        return [_moved(it, by) for it in value]
    if key in ("at", "since") and isinstance(value, str):
        return (_time(value) + by).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return value
