# SPDX-License-Identifier: Apache-2.0
"""When a step's gradients or parameters are exchanged, measured alike for every arm."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.distributed import GradBucket  # pyright: ignore[reportPrivateImportUsage]
from torch.futures import Future

Hook = Callable[[Any, GradBucket], Future[torch.Tensor]]


@dataclass(frozen=True)
class Exchange:
    """Of a step, in CLOCK_MONOTONIC seconds: when its first part was handed over, when its last one was, and when the
    last one was done."""

    began: float
    ready: float
    done: float


class ExchangeClock:
    """Notes the parts (buckets) of the exchanges, of which the earlier ones overlap with the backward pass."""

    def __init__(self) -> None:
        self._parts: list[tuple[float, float]] = []

    def take(self, before: float = math.inf) -> Exchange | None:
        """The exchange whose parts are over since the last call; None without any.

        A part is noted a little after its result is there: without a barrier, one of a step of a few milliseconds may
        count as part of the next exchange. `before`: parts that began later are left out.
        """
        parts, self._parts = self._parts, []
        parts = [part for part in parts if part[0] < before]
        if not parts:
            return None
        starts, ends = zip(*parts, strict=True)
        return Exchange(min(starts), max(starts), max(ends))

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
