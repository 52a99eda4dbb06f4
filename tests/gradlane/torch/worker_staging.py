# SPDX-License-Identifier: Apache-2.0
"""What a rank does in the test with a GPU: all ranks share one."""

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import gradlane.torch
from tests.gradlane.torch.ranks import process_group
from tests.gradlane.torch.worker_training import network, sgd, train


def on_gpu(rank: int, size: int, folder: str) -> None:
    """The hook, the wrapper and the backend."""
    device = torch.device("cuda", 0)
    with process_group("gloo", rank, size, folder):
        session = gradlane.torch.connect(os.environ["GRADLANE_JOB"], rank, os.environ["GRADLANE_SOCKET"])
        expected = DistributedDataParallel(network().to(device))
        hooked, overlapped = network().to(device), network().to(device)
        session.watch(hooked)
        session.watch(overlapped)
        parallel = DistributedDataParallel(hooked)
        parallel.register_comm_hook(session, gradlane.torch.allreduce_hook)
        optimizer = gradlane.torch.overlap(overlapped, sgd(overlapped), session)
        for model, its_optimizer in ((expected, sgd(expected)), (parallel, sgd(parallel)), (overlapped, optimizer)):
            train(model, its_optimizer, rank, device)
        for model in (hooked, overlapped):
            for ours, theirs in zip(model.parameters(), expected.module.parameters(), strict=True):
                torch.testing.assert_close(ours, theirs)
        session.close()
    with process_group("gradlane", rank, size, folder):
        tensor = torch.full((1000,), float(rank + 1), device=device)
        dist.all_reduce(tensor)
        assert torch.equal(tensor.cpu(), torch.full((1000,), 3.0))
