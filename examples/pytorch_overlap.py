# SPDX-License-Identifier: Apache-2.0
"""Training without the barrier at the end of the backward pass: each layer waits for its own gradient alone.

On every host, with the agent running (`gradlane agent --address ...`):

    GRADLANE_JOB=job.toml torchrun --nnodes 2 --node-rank 0 --master-addr 10.0.1.2 pytorch_overlap.py
"""

import argparse

import torch
import torch.distributed as dist
from torch import nn

import gradlane.torch


def main() -> None:
    """Trains; the last loss is of the model after all updates."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200, help="optimizer steps")
    steps = parser.parse_args().steps

    dist.init_process_group("gradlane")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
    session = gradlane.torch.default_session()
    session.watch(model)
    # Takes the place of DistributedDataParallel; scheduler and loop are as ever.
    optimizer = gradlane.torch.overlap(model, torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9), session)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)

    data = torch.Generator().manual_seed(rank)
    for step in range(steps):
        inputs = torch.randn(32, 16, generator=data)
        loss = (model(inputs) - inputs.sum(1, keepdim=True).sin()).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()  # returns at once
        scheduler.step()
        if rank == 0 and step % 50 == 0:
            print(f"step {step}: loss {loss.item():.4f}", flush=True)

    optimizer.close()  # waits for the last updates
    with torch.no_grad():
        inputs = torch.randn(256, 16, generator=torch.Generator().manual_seed(-1))
        loss = (model(inputs) - inputs.sum(1, keepdim=True).sin()).square().mean()
    print(f"rank {rank}: loss {loss.item():.4f} on other data", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
