# SPDX-License-Identifier: Apache-2.0
"""Workers of a job in one process, which train by a scheme."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from torch import nn

import gradlane.torch
from gradlane.sync import Scheme
from gradlane.torch import SynchronisedOptimizer
from gradlane.torch.session import Session
from tests.support.agents import Agent

PATIENCE = 30.0


class Workers:
    """Of a job, in this process: a session and a model each."""

    def __init__(self, sessions: list[Session]) -> None:
        self.sessions = sessions
        self.use(lambda: nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)))

    def use(self, make: Callable[[], nn.Module]) -> None:
        self.models: list[Any] = [make() for _ in self.sessions]

    def synchronise(self, scheme: Scheme | str = "ds-sync", lr: float = 0.1, **options: Any) -> None:
        def make(rank: int) -> SynchronisedOptimizer:
            inner = torch.optim.SGD(self.models[rank].parameters(), lr=lr, momentum=0.5)
            return gradlane.torch.synchronise(self.models[rank], inner, self.sessions[rank], scheme, **options)

        self.optimizers = self.all(make)

    def all(self, act: Callable[[int], Any]) -> list[Any]:
        """`act(rank)` at the same time; raises what the first has raised."""
        with ThreadPoolExecutor(len(self.sessions)) as pool:
            return [f.result(PATIENCE) for f in [pool.submit(act, rank) for rank in range(len(self.sessions))]]

    def train(self, steps: range) -> None:
        """On inputs that are each rank's and step's own."""

        def act(rank: int) -> None:
            for step in steps:
                inputs = torch.randn(8, 4, generator=torch.Generator().manual_seed(100 * rank + step))
                self.optimizers[rank].zero_grad()
                self.models[rank](inputs).square().sum().mul(0.01).backward()
                self.optimizers[rank].step()

        self.all(act)

    def parameters(self) -> list[list[torch.Tensor]]:
        return [[value.clone() for value in model.state_dict().values()] for model in self.models]


def connect(agents: list[Agent], file: Path) -> Workers:
    with ThreadPoolExecutor(len(agents)) as pool:
        ranks = range(len(agents))
        return Workers(list(pool.map(lambda rank: gradlane.torch.connect(file, rank, agents[rank].socket), ranks)))
