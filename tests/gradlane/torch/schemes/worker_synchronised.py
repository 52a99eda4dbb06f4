# SPDX-License-Identifier: Apache-2.0
"""What a rank does in the tests of training by a scheme, beside all ranks' training in one process."""

import os
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import gradlane.torch
from gradlane.sync import DsSync, LocalSgd
from gradlane.sync.schedule import SCHEDULES
from tests.gradlane.torch.worker_overlap import OPTIMIZERS, connected, groups, loss, network, same

STEPS = 7


def floats(model: nn.Module) -> list[torch.Tensor]:
    """What is averaged."""
    return [t.detach() for t in [*model.parameters(), *model.buffers()] if t.is_floating_point()]


def averaged(models: list[nn.Module]) -> None:
    """All go on with their mean, added in the order of ranks."""
    with torch.no_grad():
        for tensors in zip(*map(floats, models), strict=True):
            mean = sum(tensors[1:], tensors[0]) / len(tensors)
            for tensor in tensors:
                tensor.copy_(mean)


def together(name: str, size: int, mix: Callable[[int, list[nn.Module]], None]) -> list[tuple[Any, Any]]:
    """All ranks' training in this process: states of models and optimizers. `mix`: after each step."""
    models: list[nn.Module] = [network() for _ in range(size)]
    optimizers = [OPTIMIZERS[name](groups(model)) for model in models]
    for step in range(STEPS):
        for rank, (model, optimizer) in enumerate(zip(models, optimizers, strict=True)):
            optimizer.zero_grad()
            loss(model, rank, step).backward()
            optimizer.step()
        mix(step, models)
    return [(m.state_dict(), o.state_dict()) for m, o in zip(models, optimizers, strict=True)]


def by_itself(rank: int, size: int, folder: str) -> None:
    """A scheme over agents ends with the very parameters, statistics and optimizers that its definition gives."""
    assert size == 4  # groups of two, whose sum has one order; and then the job's, in the order of ranks
    for name in ("momentum", "adamw"):
        for schedule in SCHEDULES:
            plan = SCHEDULES[schedule](size)

            def mix(step: int, models: list[nn.Module], plan: Any = plan) -> None:
                for group in plan.partitions[step % len(plan.partitions)]:
                    averaged([models[k] for k in group])

            expected = together(name, size, mix)[rank]
            with connected(rank) as session:
                assert same(trained(session, name, rank, DsSync(schedule)), expected), (name, schedule)

    def rounds(step: int, models: list[nn.Module]) -> None:
        if step % 3 == 2:
            averaged(models)

    expected, _ = together("sgd", size, rounds)[rank]
    with connected(rank) as session:
        found, _ = trained(session, "sgd", rank, LocalSgd(3))
    for key, value in expected.items():  # the mean of changes is rounded otherwise
        torch.testing.assert_close(found[key], value, rtol=1e-5, atol=1e-6)


def trained(session: Any, name: str, rank: int, scheme: Any) -> tuple[Any, Any]:
    model = network()
    if rank:
        nn.init.zeros_(model.linear.weight)  # all begin with rank 0's parameters
    inner = OPTIMIZERS[name](groups(model))
    optimizer = gradlane.torch.synchronise(model, inner, session, scheme, bucket_bytes=300)
    scheduler = torch.optim.lr_scheduler.ConstantLR(optimizer, factor=1.0)
    for step in range(STEPS):
        optimizer.zero_grad()
        with optimizer.no_sync():
            loss(model, rank, step).backward()
        optimizer.step()
        scheduler.step()
    optimizer.close()
    optimizer.param_groups[0].pop("initial_lr")
    optimizer.param_groups[1].pop("initial_lr")
    return model.state_dict(), inner.state_dict()


def learns(rank: int, size: int, folder: str) -> list[tuple[float, list[float]]]:
    """Classifies points by the job file's scheme: the loss before the last average, and the parameters after it."""
    torch.manual_seed(rank)
    model = nn.Sequential(nn.Linear(2, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 2))
    session = gradlane.torch.connect(os.environ["GRADLANE_JOB"], rank, os.environ["GRADLANE_SOCKET"])
    optimizer = gradlane.torch.synchronise(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), session)
    for _ in range(60):
        points = torch.randn(64, 2)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(points), (points.prod(dim=1) > 0).long()).backward()
        optimizer.step()
    model.eval()
    points = torch.randn(1000, 2)
    wrong = float((model(points).argmax(dim=1) != (points.prod(dim=1) > 0).long()).float().mean())
    optimizer.average()
    session.close()
    return [(wrong, [float(value) for tensor in floats(model) for value in tensor.flatten()])]
