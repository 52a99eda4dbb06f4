# SPDX-License-Identifier: Apache-2.0
"""A rank in PyTorch: DistributedDataParallel with Gradlane's `hook`, or over `gloo`. `--die STEP`: rank 1 does."""

import itertools
import os
import signal
import sys
from typing import Any

import torch
import torch.distributed as dist

import gradlane.torch
from tests.frameworks import problem


def main(arm: str, death: int) -> None:
    rank = int(os.environ["RANK"])
    torch.set_num_threads(1)
    layers: list[torch.nn.Module] = []
    for inputs, outputs in itertools.pairwise(problem.WIDTHS):
        layers += [torch.nn.Linear(inputs, outputs), torch.nn.Tanh()]
    model = torch.nn.Sequential(*layers[:-1])
    with torch.no_grad():
        for parameter, value in zip(model.parameters(), problem.start(), strict=True):
            parameter.copy_(torch.from_numpy(value.T if value.ndim == 2 else value))
    session = gradlane.torch.connect(os.environ["GRADLANE_JOB"], rank, model=model) if arm == "hook" else None
    store = dist.FileStore(os.environ["STORE"], problem.RANKS)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=problem.RANKS)
    parallel = torch.nn.parallel.DistributedDataParallel(model)
    if session is not None:
        parallel.register_comm_hook(session, gradlane.torch.allreduce_hook)
    optimizer = torch.optim.SGD(model.parameters(), problem.RATE)
    inputs, labels = map(torch.from_numpy, problem.examples(rank))
    losses: list[float] = []
    for k in range(problem.STEPS):
        if k == death and rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        optimizer.zero_grad()
        loss: Any = torch.nn.functional.cross_entropy(parallel(inputs[k]), labels[k].long())
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    if session is not None:
        session.close()
    problem.tell(losses, [parameter.detach().numpy() for parameter in model.parameters()])


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[3]) if len(sys.argv) > 2 else -1)
