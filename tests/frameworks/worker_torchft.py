# SPDX-License-Identifier: Apache-2.0
"""A process of a replica group of torchft's: `worker_torchft.py SCHEME [gloo]`. REPLICA says of which.

SCHEME: ddp, local, diloco, and of DiLoCo with buckets `fragments`, each of which fits into one, and `buckets`, two of
one fragment. After each step that torchft commits it tells the sums of the parameters that were averaged, until the
file `enough` is there.
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
adamw = optimizer


def load(state: Any) -> None:
    model.load_state_dict(state["model"])
    adamw.load_state_dict(state["optimizer"])


manager = torchft.Manager(
    pg=torchft.ProcessGroupGloo() if sys.argv[2:] == ["gloo"] else ProcessGroupGradlane(),
    load_state_dict=load,
    state_dict=lambda: {"model": model.state_dict(), "optimizer": adamw.state_dict()},
    min_replica_size=1,
    replica_id=f"replica{replica}_",
    use_async_quorum=mode == "ddp",
)
parallel: Any = model
scheme: Any = nullcontext()
fragments: list[torch.nn.Module] = [model]
if mode == "ddp":
    parallel = torchft.DistributedDataParallel(manager, model)
    optimizer = torchft.Optimizer(manager, adamw)
elif mode == "local":
    scheme = LocalSGD(manager, model, adamw, sync_every=4)
else:
    outer = torch.optim.SGD(model.parameters(), 0.7, momentum=0.9, nesterov=True)
    if mode == "fragments":
        fragments = [model[0], model[2]]
        outer = [torch.optim.SGD(it.parameters(), 0.7, momentum=0.9, nesterov=True) for it in fragments]
    first = sum(it.nbytes for it in model[0].parameters()) / 2**20  # MiB: model[2] is smaller
    buckets = {"use_bucketization": mode != "diloco", "bucket_cap_mb": first}
    scheme = DiLoCo(manager, fragments, adamw, outer, sync_every=4, **buckets)
told = manager.current_step()
with scheme:
    while not Path("enough").exists():
        inputs = torch.randn(32, 8)
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(parallel(inputs), inputs.sum(1, keepdim=True)).backward()
        optimizer.step()
        if manager.current_step() != told:
            told = manager.current_step()
            averaged = fragments[(told - 1) % len(fragments)].parameters()
            sums = ",".join(str(it.double().sum().item()) for it in averaged)
            print(f"step {told} of {manager.num_participants()}: {sums}", flush=True)
