# SPDX-License-Identifier: Apache-2.0
"""A process of a replica group of torchft's: `worker_torchft.py ddp|local|diloco`. REPLICA says of which.

It tells the sum of its model after each step that torchft commits, until the file `enough` is there.
"""

import os
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
import torchft
from torchft.local_sgd import DiLoCo, LocalSGD

from gradlane.torchft import ProcessGroupGradlane

mode = sys.argv[1]
torch.distributed.init_process_group("gloo")  # within the group; its store is the manager's, too
replica, rank = os.environ["REPLICA"], torch.distributed.get_rank()
torch.manual_seed(10 * int(replica) + rank)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
optimizer: Any = torch.optim.AdamW(model.parameters(), 0.01)
inner = optimizer


def load(state: Any) -> None:
    model.load_state_dict(state["model"])
    inner.load_state_dict(state["optimizer"])


manager = torchft.Manager(
    pg=ProcessGroupGradlane(),
    load_state_dict=load,
    state_dict=lambda: {"model": model.state_dict(), "optimizer": inner.state_dict()},
    min_replica_size=1,
    replica_id=f"replica{replica}_",
    use_async_quorum=mode == "ddp",
)
parallel: Any = model
scheme: Any = nullcontext()
if mode == "ddp":
    parallel = torchft.DistributedDataParallel(manager, model)
    optimizer = torchft.Optimizer(manager, inner)
elif mode == "local":
    scheme = LocalSGD(manager, model, inner, sync_every=4)
else:
    outer = torch.optim.SGD(model.parameters(), 0.7, momentum=0.9, nesterov=True)
    scheme = DiLoCo(manager, [model], inner, outer, sync_every=4)
told = manager.current_step()
with scheme:
    while not Path("enough").exists():
        inputs = torch.randn(32, 8)
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(parallel(inputs), inputs.sum(1, keepdim=True)).backward()
        optimizer.step()
        if manager.current_step() != told:
            told = manager.current_step()
            total = sum(it.double().sum().item() for it in model.parameters())
            print(f"step {told} of {manager.num_participants()}: {total}", flush=True)
