# SPDX-License-Identifier: Apache-2.0
"""What a process of a run says about it: JSON lines, each written at once, so that nothing is lost with a process."""

import json
import re
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from lab.training.config import Config, Node

_ADDRESS = re.compile(r"(?<![0-9.])\d{1,3}(?:\.\d{1,3}){3}(?![0-9.])")
_RANK = re.compile(r"\brank (\d+)\b")
# What PyTorch and Gloo put around a message: that it came through a callback, the source line, advice, a stack.
_WRAPPING = re.compile(
    r"Got the following error when running the callback: (?:\w+: )?|\[\S+\.cc:\d+\] |\.? This is typically caused by .*"
    r"|\s+At:\s.*",
    re.DOTALL,
)


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


def explain(config: Config, rank: int, problem: Exception) -> tuple[str, Node | None]:
    """One line about an error, and the rank it blames, which the line names in any case."""
    message = " ".join(_WRAPPING.sub("", str(problem)).split()) or type(problem).__name__
    who = culprit(config, rank, message)
    if who is not None and f"rank {who.rank} " not in message:
        message = f"{who} is lost: {message}"
    return message, who


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
