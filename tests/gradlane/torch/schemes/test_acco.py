# SPDX-License-Identifier: Apache-2.0
"""ACCO: it is the paper's recursion with any optimizer, goes on while another worker is late, and what can't be done is
refused by name."""

import copy
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import gradlane.torch
from tests.gradlane.torch.ranks import job_file
from tests.gradlane.torch.schemes.synchronised_workers import PATIENCE, Workers, connect
from tests.support.agents import Agent

STEPS = 7
OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.05),
}


def network() -> nn.Module:
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))


def loss(model: nn.Module, rank: int, step: int) -> torch.Tensor:
    inputs = torch.randn(8, 4, generator=torch.Generator().manual_seed(100 * rank + step))
    return model(inputs).square().mean()


def count(rank: int, step: int) -> float:
    """Of how many gradients a worker's is the mean in a step; in one step a worker has none."""
    return 0.0 if (rank, step) == (1, 3) else 1.0 + rank * (step % 3)


def recursion(name: str, steps: int) -> list[list[torch.Tensor]]:
    """The parameters after each step, in one process; an estimate is made of copies, and these are thrown away."""
    true = network()
    optimizer = OPTIMIZERS[name](true.parameters())
    point = true
    half: list[torch.Tensor] = []
    weight = 0.0
    flying: tuple[list[torch.Tensor], float] | None = None
    found: list[list[torch.Tensor]] = []
    for step in range(steps):
        sums = [torch.zeros_like(p) for p in point.parameters()]
        for rank in range(2):
            gradients = torch.autograd.grad(loss(point, rank, step), list(point.parameters()))
            for total, gradient in zip(sums, gradients, strict=True):
                total.add_(gradient, alpha=count(rank, step))
        sent = sums, count(0, step) + count(1, step)
        if flying is not None and step % 2 == 1:  # the first half of a round has arrived
            half, weight = flying
            model = copy.deepcopy(true)
            other = OPTIMIZERS[name](model.parameters())
            other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
            updated(model, other, [value / weight for value in half])
            point = model
        elif flying is not None:
            both = [(a + b) / (weight + flying[1]) for a, b in zip(half, flying[0], strict=True)]
            updated(true, optimizer, both)
            point = true
        flying = sent
        found.append([p.detach().clone() for p in point.parameters()])
    return found


def updated(model: nn.Module, optimizer: torch.optim.Optimizer, gradients: list[torch.Tensor]) -> None:
    for parameter, gradient in zip(model.parameters(), gradients, strict=True):
        parameter.grad = gradient
    optimizer.step()


@pytest.fixture
def pair(agents: list[Agent], tmp_path: Path) -> Iterator[Workers]:
    """It must be fit to leave the job at the end of a test."""
    workers = connect(agents[:2], job_file(tmp_path / "job.toml", agents[:2]))
    yield workers
    workers.all(lambda rank: workers.sessions[rank].close())


def accumulate(workers: Workers, name: str = "momentum") -> None:
    workers.use(network)
    inner = [OPTIMIZERS[name](model.parameters()) for model in workers.models]

    def make(rank: int) -> Any:
        return gradlane.torch.synchronise(
            workers.models[rank], inner[rank], workers.sessions[rank], "acco", bucket_bytes=40
        )

    workers.optimizers = workers.all(make)


def train(workers: Workers, rank: int, steps: range) -> list[list[torch.Tensor]]:
    model, optimizer = workers.models[rank], workers.optimizers[rank]
    found: list[list[torch.Tensor]] = []
    for step in steps:
        optimizer.zero_grad()
        with optimizer.no_sync():
            loss(model, rank, step).backward()
        optimizer.gradients = count(rank, step)
        optimizer.step()
        found.append([p.detach().clone() for p in model.parameters()])
    return found


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_it_is_the_papers_recursion(pair: Workers, name: str) -> None:
    accumulate(pair, name)
    expected = recursion(name, STEPS)
    for found in pair.all(lambda rank: train(pair, rank, range(STEPS))):
        for step in range(STEPS):
            torch.testing.assert_close(found[step], expected[step], rtol=1e-5, atol=1e-6)


def test_a_whole_step_is_computed_while_another_worker_is_late(pair: Workers) -> None:
    accumulate(pair)
    late = threading.Event()

    def act(rank: int) -> None:
        for step in range(3):
            if rank and step == 1:
                assert late.wait(PATIENCE), "the other one waits"
            loss(pair.models[rank], rank, step).backward()
            pair.optimizers[rank].step()
            if not rank and step == 1:
                late.set()

    pair.all(act)


def test_a_restored_run_equals_an_uninterrupted_one(agents: list[Agent], tmp_path: Path) -> None:
    file = job_file(tmp_path / "job.toml", agents[:2], push="0.1", wire="bfloat16")

    def training(restored: bool) -> list[list[torch.Tensor]]:
        workers = connect(agents[:2], file)
        accumulate(workers, "adamw")
        workers.all(lambda rank: train(workers, rank, range(3)))
        with pytest.raises(RuntimeError, match="an even number of steps"):
            workers.optimizers[0].state_dict()
        workers.all(lambda rank: train(workers, rank, range(3, 4)))
        workers.all(lambda rank: workers.optimizers[rank].synchronize())
        saved = workers.all(lambda rank: (workers.models[rank].state_dict(), workers.optimizers[rank].state_dict()))
        if restored:
            torch.save(saved, tmp_path / "saved")
            saved = torch.load(tmp_path / "saved")
            workers.all(lambda rank: workers.sessions[rank].close())
            workers = connect(agents[:2], file)
            accumulate(workers, "adamw")
            for rank, (model, optimizer) in enumerate(saved):
                workers.models[rank].load_state_dict(model)
                workers.optimizers[rank].load_state_dict(optimizer)
        workers.all(lambda rank: train(workers, rank, range(4, 9)))
        workers.all(lambda rank: workers.optimizers[rank].average())
        result = workers.parameters()
        workers.all(lambda rank: workers.sessions[rank].close())
        return result

    expected, found = training(False), training(True)
    for a, b in zip(expected, found, strict=True):
        assert all(torch.equal(x, y) for x, y in zip(a, b, strict=True))
    assert all(torch.equal(x, y) for x, y in zip(*found, strict=True))


def test_a_worker_whose_gradients_are_not_finite_counts_for_nothing(pair: Workers) -> None:
    """With a gradient scaler; if no worker's are finite there is no update."""
    pair.use(lambda: nn.Linear(2, 1, bias=False))

    def act(rank: int) -> list[float]:
        model = pair.models[rank]
        inner = torch.optim.SGD(model.parameters(), lr=0.5)
        optimizer: Any = gradlane.torch.synchronise(model, inner, pair.sessions[rank], "acco")
        with torch.no_grad():
            model.weight.zero_()
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        found: list[float] = []
        for step in range(5):
            optimizer.zero_grad()
            broken = step >= 2 or (rank == 1 and step == 0)
            scaler.scale(model(torch.full((1, 2), float("inf") if broken else 1.0 + rank)).sum()).backward()
            scaler.step(optimizer)
            scaler.update()
            found.append(float(model.weight.detach()[0, 0]))
        return found

    # Gradients: 1 of rank 0 alone; then 1 and 2; then none.
    expected = [0, -0.5, -0.5 * (1 + 1 + 2) / 3, -0.5 * (1 + 1 + 2) / 3, -0.5 * (1 + 1 + 2) / 3]
    for found in pair.all(act):
        assert found == pytest.approx(expected)


def test_statistics_of_batch_norm_are_averaged_and_closed_it_leaves_an_ordinary_model(pair: Workers) -> None:
    pair.use(lambda: nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)))

    def act(rank: int) -> torch.Tensor:
        model = pair.models[rank]
        optimizer: Any = gradlane.torch.synchronise(
            model, torch.optim.SGD(model.parameters(), lr=0.1), pair.sessions[rank], "acco"
        )
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.full((4, 2), float(rank)) + torch.eye(4)[:, :2]).square().sum().backward()
            optimizer.step()
        assert optimizer.group == (0, 1)
        optimizer.average()
        optimizer.close()
        with pytest.raises(RuntimeError, match="was closed"):
            optimizer.step()
        return torch.cat([value.flatten().float() for value in model.state_dict().values()])

    first, second = pair.all(act)
    assert torch.equal(first, second)


def test_what_can_not_be_done_is_refused_by_name(pair: Workers) -> None:
    accumulate(pair)
    model, optimizer = pair.models[0], pair.optimizers[0]
    optimizer.close()
    with pytest.raises(ValueError, match="LBFGS computes gradients itself"):
        gradlane.torch.synchronise(model, torch.optim.LBFGS(model.parameters()), pair.sessions[0], "acco")
    pair.optimizers[1].close()
    accumulate(pair)
    with pytest.raises(ValueError, match="takes no closure"):
        pair.optimizers[0].step(lambda: 0.0)
    pair.optimizers[0].gradients = -1
    with pytest.raises(ValueError, match="gradients is -1"):
        pair.optimizers[0].step()
