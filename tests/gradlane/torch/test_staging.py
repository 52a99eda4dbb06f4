# SPDX-License-Identifier: Apache-2.0
"""Gradients of an accelerator: what is copied when. On the CPU torch's streams are empty shells, so the order shows."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch

from gradlane.errors import AgentError
from gradlane.torch.staging import Staging


class Exchange:
    """One that ends when the test says so."""

    def __init__(self) -> None:
        self.over = threading.Event()
        self.callbacks: list[Callable[[Any], None]] = []

    def wait(self, timeout: float | None = None) -> None:
        if not self.over.wait(timeout):
            raise TimeoutError

    def done(self) -> bool:
        return self.over.is_set()

    def add_done_callback(self, done: Callable[[Any], None]) -> None:
        self.callbacks.append(done)


def test_an_exchange_starts_when_all_has_been_copied() -> None:
    staging = Staging(torch.device("cpu"))
    source, host = torch.arange(6.0), torch.zeros(6)
    inner = Exchange()
    seen: list[torch.Tensor] = []

    def start() -> Exchange:
        seen.append(host.clone())
        return inner

    exchange = staging.fetch([(source[:2], host[:2]), (source[2:], host[2:])], start)
    staging.close()  # waits for the thread
    assert torch.equal(seen[0], source)
    told: list[Any] = []
    exchange.add_done_callback(told.append)
    with pytest.raises(TimeoutError):
        exchange.wait(0)
    assert not exchange.done()
    inner.over.set()
    inner.callbacks[0](None)
    exchange.wait()
    assert exchange.done()
    assert told == [None]


def test_an_exchange_that_can_not_start_says_so_to_all_who_wait() -> None:
    staging = Staging(torch.device("cpu"))

    def start() -> Exchange:
        raise AgentError("rank 1 is gone")

    exchange = staging.fetch([(torch.ones(1), torch.ones(1))], start)
    told: list[Any] = []
    exchange.add_done_callback(told.append)
    with pytest.raises(AgentError, match="rank 1"):
        exchange.wait()
    staging.close()
    assert exchange.done()
    assert "rank 1" in str(told[0])


def test_a_result_is_in_the_device_tensor_when_it_is_told() -> None:
    staging = Staging(torch.device("cpu"))
    target = torch.zeros(3)
    seen: list[torch.Tensor] = []
    staging.deliver(torch.ones(3), target, lambda: seen.append(target.clone()))
    staging.close()
    assert torch.equal(seen[0], torch.ones(3))
