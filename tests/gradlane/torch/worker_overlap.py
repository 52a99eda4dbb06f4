# SPDX-License-Identifier: Apache-2.0
"""What a rank does in the tests of training without a barrier, beside DistributedDataParallel on Gloo."""

import contextlib
import copy
import os
from collections.abc import Callable, Generator
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import gradlane.torch
from tests.gradlane.torch.ranks import init, process_group

STEPS = 5
WORDS = 11


class Net(nn.Module):
    """Tied weights, modules that read others' parameters (attention) or keep theirs twice (LSTM), one seldom used.

    Buffers of three types, of which some have an odd length and one is replaced in each forward pass.
    """

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, 8)
        self.memory = nn.LSTM(8, 8, batch_first=True)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.norm = nn.LayerNorm(8)
        self.batch_norm = nn.BatchNorm1d(6)  # over the words
        self.register_buffer("seen", torch.zeros(WORDS, dtype=torch.bool))
        self.register_buffer("mean", torch.zeros(1))
        self.linear = nn.Linear(8, 8)
        self.seldom = nn.Linear(8, 8)
        self.output = nn.Linear(8, WORDS, bias=False)
        self.output.weight = self.embedding.weight

    def forward(self, words: torch.Tensor, seldom: bool) -> torch.Tensor:
        x, _ = self.memory(self.embedding(words))
        self.seen[words] = True
        self.mean = 0.9 * self.mean + x.detach().mean()
        x = self.batch_norm(x)
        x = x + self.attention(x, x, x)[0]
        x = torch.relu(self.linear(self.norm(x)))
        return self.output(self.seldom(x) if seldom else x)


def network() -> Net:
    torch.manual_seed(3)
    return Net()


def loss(model: nn.Module, rank: int, step: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(100 * rank + step)
    words = torch.randint(0, WORDS, (4, 6), generator=generator)
    # At one rank in one step, at both in another, at none in most.
    seldom = step == 1 or (step == 3 and rank == 0)
    return nn.functional.cross_entropy(model(words, seldom)[:, :-1].reshape(-1, WORDS), words[:, 1:].reshape(-1))


OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=1e-3, nesterov=True),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1),
}


def groups(model: nn.Module) -> list[dict[str, Any]]:
    """Two parameter groups with options of their own, which cut across the model."""
    matrices = [p for p in model.parameters() if p.dim() > 1]
    return [{"params": matrices}, {"params": [p for p in model.parameters() if p.dim() == 1], "lr": 0.03}]


Train = Callable[[nn.Module, torch.optim.Optimizer, Any, int], None]


def plainly(model: nn.Module, optimizer: torch.optim.Optimizer, either: Any, rank: int) -> None:
    """With a schedule that changes the learning rate in each step, after step() and before the update happens."""
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.7)
    for step in range(STEPS):
        optimizer.zero_grad()
        loss(model, rank, step).backward()
        optimizer.step()
        scheduler.step()


def accumulating(model: nn.Module, optimizer: torch.optim.Optimizer, either: Any, rank: int) -> None:
    """Gradients of three passes make a step, and the parameters keep theirs until after the next forward pass."""
    for step in range(STEPS):
        with either.no_sync():
            loss(model, rank, 10 * step).backward()
            loss(model, rank, 10 * step + 4).backward()
        loss(model, rank, 10 * step + 5).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)


def never_zeroed(model: nn.Module, optimizer: torch.optim.Optimizer, either: Any, rank: int) -> None:
    """Each step's gradient is added to the mean of the last."""
    for step in range(STEPS):
        loss(model, rank, 10 * step).backward()
        optimizer.step()


def clipped(model: nn.Module, optimizer: torch.optim.Optimizer, either: Any, rank: int) -> None:
    """The norm is that of the mean gradient, so this needs the barrier."""
    for step in range(STEPS):
        optimizer.zero_grad()
        loss(model, rank, step).backward()
        getattr(optimizer, "synchronize", lambda: None)()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()


def with_ddp(name: str, train: Train, rank: int, unused: bool) -> tuple[Any, Any]:
    model = network()
    optimizer = OPTIMIZERS[name](groups(model))
    parallel = DistributedDataParallel(model, find_unused_parameters=unused)
    train(parallel, optimizer, parallel, rank)
    for buffer in model.buffers():  # as it does before the next forward pass
        dist.broadcast(buffer, 0)
    return model.state_dict(), optimizer.state_dict()


def overlapping(session: Any, name: str, train: Train, rank: int, unused: bool) -> tuple[Any, Any]:
    model = network()
    if rank:
        torch.nn.init.zeros_(model.linear.weight)  # all begin with rank 0's parameters
    session.watch(model)
    inner = OPTIMIZERS[name](groups(model))
    optimizer = gradlane.torch.overlap(model, inner, session, bucket_bytes=300, unused_parameters=unused)
    train(model, optimizer, optimizer, rank)
    # A copy of the model is an ordinary model, up to date.
    result = copy.deepcopy(model).state_dict(), copy.deepcopy(optimizer.state_dict())
    optimizer.close()
    return result


def same(a: Any, b: Any) -> bool:
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b


@contextlib.contextmanager
def connected(rank: int) -> Generator[gradlane.torch.Session]:
    session = gradlane.torch.connect(os.environ["GRADLANE_JOB"], rank, os.environ["GRADLANE_SOCKET"])
    yield session
    session.close()


def as_ddp(rank: int, size: int, folder: str) -> None:
    """Every optimizer and every way of training ends with DDP's parameters and optimizer state, bit for bit."""
    assert size == 2  # the sum of two has one order
    ways: list[tuple[str, Train, bool]] = [(name, plainly, True) for name in OPTIMIZERS]
    ways += [("momentum", clipped, True), ("adam", accumulating, True), ("momentum", never_zeroed, True)]
    with process_group("gloo", rank, size, folder), connected(rank) as session:
        for name, train, unused in ways:
            expected = with_ddp(name, train, rank, unused)
            found = overlapping(session, name, train, rank, unused)
            assert same(found, expected), (name, train.__name__)


def ends_without_a_word(rank: int, size: int, folder: str) -> list[float]:
    """A program that neither watches its model nor destroys its process group."""
    init("gradlane", rank, size, folder)
    model = nn.Linear(4, 1)
    optimizer = gradlane.torch.overlap(
        model, torch.optim.SGD(model.parameters(), lr=0.1), gradlane.torch.default_session()
    )
    for step in range(3):
        optimizer.zero_grad()
        model(torch.full((2, 4), float(rank + step))).square().mean().backward()
        optimizer.step()
    return [value for parameter in model.parameters() for value in parameter.detach().flatten().tolist()]
