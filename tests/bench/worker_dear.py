# SPDX-License-Identifier: Apache-2.0
"""What a rank does in the test of DeAR, beside DistributedDataParallel."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from bench.agent.dear import Dear
from tests.gradlane.torch.ranks import process_group

STEPS = 5


def network() -> nn.Sequential:
    """Layers of sizes that no number of ranks divides."""
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 11), nn.Tanh(), nn.Linear(11, 3))


def loss(model: nn.Module, rank: int, step: int) -> torch.Tensor:
    inputs = torch.randn(4, 5, generator=torch.Generator().manual_seed(100 * rank + step))
    return model(inputs).square().mean()


def as_ddp(rank: int, size: int, folder: str) -> list[float]:
    """The largest differences between the parameters of both ways, after each step; zeroing before and after."""
    with process_group("gloo", rank, size, folder):
        expected = DistributedDataParallel(network())
        optimizer = torch.optim.SGD(expected.parameters(), lr=0.1, momentum=0.9)
        model = network()
        if rank:
            nn.init.zeros_(model[0].weight)  # pyright: ignore[reportArgumentType]: all begin with rank 0's
        dear = Dear(model[::2], lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9))
        differences: list[float] = []
        for step in range(STEPS):
            optimizer.zero_grad()
            loss(expected, rank, step).backward()
            optimizer.step()
            if step % 2:
                dear.zero_grad()
            made = loss(model, rank, step)
            dear.zero_grad()
            made.backward()
            dear.step()
            dear.synchronize()  # so that DistributedDataParallel has the process group for itself
            pairs = zip(model.parameters(), expected.parameters(), strict=True)
            differences.append(max(float((a - b).abs().max()) for a, b in pairs))
            dist.barrier()
        dear.close()
    return differences
