# SPDX-License-Identifier: Apache-2.0
"""AD-PSGD's workers on a network that takes any time, one move after the other: whoever is slow, nobody waits for one
that waits."""

from collections import defaultdict, deque
from collections.abc import Callable
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from gradlane.client.handle import Operation
from gradlane.sync import AdPsgd
from gradlane.sync.ad_psgd import Answering
from gradlane.sync.asynchronous import OwnBlock
from tests.support.effort import tries

Edge = tuple[int, int, int]  # sender, receiver, tag


class Half:
    """A send or a receive."""

    def __init__(self, network: "Network", array: np.ndarray) -> None:
        self.array = array
        self._network = network
        self._over = False
        self._callbacks: list[Callable[[Any], None]] = []

    def end(self) -> None:
        self._over = True
        for callback in self._callbacks:
            callback(None)

    def done(self) -> bool:
        return self._over

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        self._callbacks.append(callback)

    def wait(self, _: float | None = None) -> None:
        """Others go on meanwhile."""
        while not self._over:
            self._network.deliver()


class Network:
    """What has been sent, and what is to be received; `random` says what comes next."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._posted: dict[str, dict[Edge, deque[Half]]] = {
            kind: defaultdict(deque[Half]) for kind in ("send", "receive")
        }
        self.ready: list[Edge] = []  # those of which both ends are there, once for each message

    def post(self, kind: str, edge: Edge, array: np.ndarray) -> Half:
        half = Half(self, array)
        self._posted[kind][edge].append(half)
        other = self._posted["receive" if kind == "send" else "send"][edge]
        if len(other) >= len(self._posted[kind][edge]):
            self.ready.append(edge)
        return half

    def deliver(self) -> None:
        """The next message of some edge."""
        assert self.ready, "a deadlock"
        edge = self.ready.pop(self._random.randrange(len(self.ready)))
        ends = [self._posted[kind][edge].popleft() for kind in ("send", "receive")]
        ends[1].array[:] = ends[0].array
        self._random.shuffle(ends)
        for half in ends:
            half.end()


class Host:
    """A connection."""

    def __init__(self, network: Network, rank: int, size: int) -> None:
        self.rank = rank
        self.job = SimpleNamespace(workers=[None] * size)
        self.link = self
        self.asks = -1  # the one that it has sent to last
        self._checks = 0
        self._network = network

    def check(self) -> None:
        """Once for each that may have asked, if it has closed."""
        self._checks += 1
        assert self._checks < len(self.job.workers), "a deadlock"

    def empty(self, count: int, dtype: str) -> np.ndarray:
        return np.empty(count, dtype)

    def collective(
        self, kind: str, source: Any, target: Any, root: int, tag: int, tolerance: float = 0, standing: bool = False
    ) -> Half:
        if kind == "receive":
            return self._network.post(kind, (root, self.rank, tag), target)
        self.asks = root
        return self._network.post(kind, (self.rank, root, tag), source)


def held(block: OwnBlock) -> float:
    """The parameter that others average with."""
    return float(block.saved()["own"][0] if isinstance(block, Answering) else block.values[0])


@settings(max_examples=tries(100), deadline=None)
@given(st.integers(2, 64), st.integers(0, 9), st.randoms(use_true_random=True))
def test_in_whatever_order_they_step_nobody_waits_for_one_that_waits(size: int, seed: int, random: Random) -> None:
    network = Network(random)
    hosts: list[Any] = [Host(network, rank, size) for rank in range(size)]
    blocks = [AdPsgd(seed).block(host, 7, 1, "float64", False) for host in hosts]
    for rank, block in enumerate(blocks):
        block.values[:] = rank
        block.begin()
    steps: dict[int, Operation] = {}  # of workers, what the latest one has begun
    live = list(range(size))
    for _ in range(random.randrange(8 * size)):
        able = [rank for rank in live if rank not in steps or steps[rank].done()]
        if network.ready and random.random() < 0.5:
            network.deliver()
        elif able:
            rank = random.choice(able)
            if rank % 2 == 0 and random.random() < 0.02:
                blocks[rank].close()
                live.remove(rank)
            else:
                steps[rank] = blocks[rank].start()
        waiting = {rank for rank, step in steps.items() if not step.done()}
        assert waiting.isdisjoint(hosts[rank].asks for rank in waiting)
    while network.ready:
        network.deliver()
    assert all(step.done() for step in steps.values()), "each question is answered"
    assert np.isclose(sum(map(held, blocks)), sum(range(size))), "averages keep the mean"
    for rank in sorted(live, key=lambda rank: (rank % 2, random.random())):
        blocks[rank].close()
