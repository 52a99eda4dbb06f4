# SPDX-License-Identifier: Apache-2.0
"""When a step's gradients or parameters are exchanged, measured alike for every arm."""

import math
import time
from bisect import bisect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.distributed import GradBucket  # pyright: ignore[reportPrivateImportUsage]
from torch.futures import Future

Hook = Callable[[Any, GradBucket], Future[torch.Tensor]]


@dataclass(frozen=True)
class Exchange:
    """Of a step, in CLOCK_MONOTONIC seconds: when its first part was handed over, when its last one was, and when the
    last one was done. `group`: the ranks among which it was."""

    group: Sequence[int]
    began: float
    ready: float
    done: float


class ExchangeClock:
    """Notes the parts (buckets) of the exchanges, of which the earlier ones overlap with the backward pass."""

    def __init__(self) -> None:
        self._parts: list[tuple[float, float]] = []
        self._since: list[float] = []
        self._groups: list[Sequence[int]] = []

    def turn(self, since: float, group: Sequence[int]) -> None:
        """What begins from then on is exchanged in that group. Called before `take`, and with later and later times."""
        self._since.append(since)
        self._groups.append(group)

    def take(self, before: float = math.inf) -> list[Exchange]:
        """The exchanges whose parts are over since the last call. Parts that began later than `before` are left.

        A part is noted a little after its result is there. So without a barrier the latest exchange is better left for
        the next time; one that was noted later still is an exchange of its own.
        """
        parts, self._parts = self._parts, []
        self._parts.extend(part for part in parts if part[0] >= before)
        turns: dict[int, list[tuple[float, float]]] = {}
        for part in sorted(parts):
            if part[0] < before:
                turns.setdefault(max(0, bisect(self._since, part[0]) - 1), []).append(part)
        return [
            Exchange(self._groups[turn], some[0][0], some[-1][0], max(end for _, end in some))
            for turn, some in turns.items()
        ]

    def around(self, inner: Hook) -> Hook:
        """A communication hook that also notes when it was called and when it was done."""

        def hook(state: Any, bucket: GradBucket) -> Future[torch.Tensor]:
            started = time.monotonic()

            def done(future: Future[torch.Tensor]) -> torch.Tensor:
                self.observe(started, time.monotonic())
                return future.value()

            return inner(state, bucket).then(done)

        return hook

    def observe(self, started: float, ended: float) -> None:
        """A part is over; from any thread."""
        self._parts.append((started, ended))
