# SPDX-License-Identifier: Apache-2.0
"""DistributedDataParallel with gradients over Gradlane, within the loss that the job tolerates; with checkpoints.

On every host, with the agent running (`gradlane agent --address ...`):

    GRADLANE_JOB=job.toml torchrun --nnodes 2 --node-rank 0 --master-addr 10.0.1.2 pytorch_ddp.py

Where a controller runs there is no job file: GRADLANE_CONTROLLER=https://10.0.0.9:9560 GRADLANE_JOB_NAME=ddp
GRADLANE_TOKEN_FILE=token instead of GRADLANE_JOB.
"""

import argparse
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import gradlane.torch


def main() -> None:
    """Trains, or goes on where the checkpoint ends."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200, help="optimizer steps in all")
    parser.add_argument("--checkpoint", type=Path, default=Path("checkpoint"), help="folder of the checkpoint")
    options = parser.parse_args()

    dist.init_process_group("gradlane")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 1))
    session = gradlane.torch.default_session()
    session.watch(model)  # before the model is wrapped
    parallel = DistributedDataParallel(model)
    parallel.register_comm_hook(session, gradlane.torch.allreduce_hook)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

    # Every rank keeps what the network owes to its gradients; the model is the same everywhere.
    file = options.checkpoint / f"{rank}.pt"
    first = 0
    if file.exists():
        state = torch.load(file)
        first = state["step"]
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        session.load_state_dict(state["session"])

    data = torch.Generator().manual_seed(1000 * rank + first)
    for step in range(first, options.steps):
        inputs = torch.randn(32, 16, generator=data)
        loss = (parallel(inputs) - inputs.sum(1, keepdim=True).sin()).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 50 == 0:
            print(f"step {step}: loss {loss.item():.4f}", flush=True)

    options.checkpoint.mkdir(parents=True, exist_ok=True)
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "session": session.state_dict()}
    torch.save({**state, "step": options.steps}, file)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
