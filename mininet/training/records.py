# SPDX-License-Identifier: Apache-2.0
"""What a process of a run says about it: JSON lines, each written at once, so that nothing is lost with a process."""

import json
import re
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from training.config import Config, Node

_ADDRESS = re.compile(r"(?<![0-9.])\d{1,3}(?:\.\d{1,3}){3}(?![0-9.])")
_RANK = re.compile(r"\brank (\d+)\b")


class Records:
    """Appends to one file. Every line has `event`, `rank` and `at`, the CLOCK_MONOTONIC seconds of writing."""

    def __init__(self, path: str | Path, rank: int) -> None:
        """Creates the file or makes it empty. Raises OSError."""
        self._rank = rank
        self._file = Path(path).open("w", encoding="utf-8", buffering=1)  # noqa: SIM115 - closed by __exit__

    def write(self, event: str, **fields: Any) -> None:
        """One line."""
        line = {"event": event, "rank": self._rank, "at": time.monotonic(), **fields}
        self._file.write(json.dumps(line, separators=(",", ":")) + "\n")

    def __enter__(self) -> "Records":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()


def culprit(config: Config, rank: int, message: str) -> Node | None:
    """The other rank that an error message names, by address or else by rank; None if it names nobody.

    A library says which connection broke, not which rank. When a rank leaves because of an error, it is in turn what
    its own neighbours name, so of several processes' errors the earliest tells the origin.
    """
    others = [node for node in config.nodes if node.rank != rank]
    by_address = {node.address: node for node in others}
    for address in _ADDRESS.findall(message):
        if address in by_address:
            return by_address[address]
    by_rank = {node.rank: node for node in others}
    for number in _RANK.findall(message):
        if int(number) in by_rank:
            return by_rank[int(number)]
    return None
