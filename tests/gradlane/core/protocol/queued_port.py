# SPDX-License-Identifier: Apache-2.0
"""A switch's port in simulated time.

Its queue is a number: when it will have sent all that it holds. Control datagrams go before the rest, as in a class of
their own, unless it has no classes.
"""

import random
from collections import defaultdict
from dataclasses import dataclass, field


@dataclass
class Port:
    """A switch's port: bytes/us, bytes of buffer, and the depth in bytes from which slices are ECN-marked."""

    rate: float
    buffer: int
    mark: int | None = None
    delay: int = 10  # us of the link behind it
    classes: bool = True  # what is no slice overtakes those that wait
    loss: float = 0.0  # of what passes, slices and control alike
    free_at: float = 0.0
    dropped: int = 0
    lost: int = 0
    chance: random.Random = field(default_factory=lambda: random.Random(1))
    depths: list[tuple[int, float]] = field(default_factory=list)
    carried: defaultdict[int, int] = field(default_factory=lambda: defaultdict(int))  # bytes of slices, by job

    def forward(self, now: int, size: int, job: int, is_slice: bool) -> tuple[float, bool] | None:
        """When a frame is at the link's other end, and whether it was marked; None if it was dropped."""
        if self.loss and self.chance.random() < self.loss:
            self.lost += 1
            return None
        depth = max(0.0, self.free_at - now) * self.rate
        if self.classes and not is_slice:
            self.free_at = max(self.free_at, now) + size / self.rate
            return now + size / self.rate + self.delay, False
        self.depths.append((now, depth))
        if depth + size > self.buffer:
            self.dropped += 1
            return None
        self.carried[job] += size
        self.free_at = max(self.free_at, now) + size / self.rate
        return self.free_at + self.delay, self.mark is not None and depth > self.mark
