# SPDX-License-Identifier: Apache-2.0
"""Fully sharded training (FSDP) with all of its collectives over Gradlane, exact.

On every host, with the agent running (`gradlane agent --address ...`):

    GRADLANE_JOB=job.toml torchrun --nnodes 2 --node-rank 0 --master-addr 10.0.1.2 pytorch_fsdp.py
"""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import gradlane.torch  # noqa: F401 # pyright: ignore[reportUnusedImport] - it registers the backend


def main() -> None:
    """Trains; every rank keeps its part of parameters, gradients and optimizer state."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200, help="optimizer steps")
    steps = parser.parse_args().steps

    dist.init_process_group("gradlane")
    rank, mesh = dist.get_rank(), init_device_mesh("cpu", (dist.get_world_size(),))
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
    for layer in (*model, model):
        fully_shard(layer, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)

    data = torch.Generator().manual_seed(rank)
    for step in range(steps):
        inputs = torch.randn(32, 16, generator=data)
        loss = (model(inputs) - inputs.sum(1, keepdim=True).sin()).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 50 == 0:
            print(f"step {step}: loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
