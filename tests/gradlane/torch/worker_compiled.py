# SPDX-License-Identifier: Apache-2.0
"""What a rank does in the test of compiled models."""

import torch
import torch._dynamo
from torch import nn

import gradlane.torch
from tests.gradlane.torch.ranks import process_group
from tests.gradlane.torch.worker_training import hooked, network, sgd, train


def compiled(rank: int, size: int, folder: str, device: str, backend: str) -> None:
    """DDP compiled with the hook, DDP of a compiled model, and the wrapper's."""
    with process_group("gradlane", rank, size, folder):
        session = gradlane.torch.default_session()
        expected = hooked(rank, session, device)

        def whole() -> nn.Module:
            model = network(device)
            session.watch(model)
            parallel = nn.parallel.DistributedDataParallel(model)
            parallel.register_comm_hook(session, gradlane.torch.allreduce_hook)
            train(torch.compile(parallel, backend=backend), sgd(model), rank)
            return model

        def inner() -> nn.Module:
            model = network(device)
            session.watch(model)
            parallel = nn.parallel.DistributedDataParallel(torch.compile(model, backend=backend))
            parallel.register_comm_hook(session, gradlane.torch.allreduce_hook)
            train(parallel, sgd(model), rank)
            return model

        def overlapped() -> nn.Module:
            model = network(device)
            optimizer = gradlane.torch.overlap(model, sgd(model), session)
            train(torch.compile(model, backend=backend), optimizer, rank)
            optimizer.close()
            return model

        for way in (whole, inner, overlapped):
            for ours, theirs in zip(way().parameters(), expected, strict=False):
                torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5, msg=way.__name__)
            assert torch._dynamo.utils.counters["frames"]["ok"] > 0  # something was compiled
            torch._dynamo.reset()
            torch._dynamo.utils.counters.clear()
