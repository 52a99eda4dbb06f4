# SPDX-License-Identifier: Apache-2.0
"""A training script for torchrun. Rank 1 dies in its first life; every rank writes down what happens to it."""

import os
import signal
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import gradlane
import gradlane.torch

rank = int(os.environ["RANK"])
folder, *sockets = sys.argv[1:]
os.environ["GRADLANE_SOCKET"] = sockets[rank]  # as if each rank had a host of its own

signal.signal(signal.SIGTERM, signal.SIG_IGN)  # torchrun's, so that it ends by the error that it gets from its agent

life = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
torch.set_num_threads(1)
torch.manual_seed(rank)
dist.init_process_group("gradlane")
model = nn.Linear(3, 1)
session = gradlane.torch.default_session()
session.watch(model)
parallel = DistributedDataParallel(model)
parallel.register_comm_hook(session, gradlane.torch.allreduce_hook)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
try:
    for step in range(3):
        if (life, rank, step) == (0, 1, 2):
            os._exit(9)
        optimizer.zero_grad()
        parallel(torch.randn(4, 3)).square().mean().backward()
        optimizer.step()
except (gradlane.AgentError, RuntimeError) as error:  # torch quotes the former in the latter
    Path(folder, f"{life}.{rank}.error").write_text(str(error))
    raise
Path(folder, f"{life}.{rank}.done").write_text(str(model.weight.tolist()))
dist.destroy_process_group()
