# SPDX-License-Identifier: Apache-2.0
"""Gradlane in PyTorch: a communication hook, training without a barrier, and a backend of torch.distributed.

session = gradlane.torch.connect("job.toml", rank, "/run/gradlane/agent.sock", model)

model = DistributedDataParallel(model)                            # either
model.register_comm_hook(session, gradlane.torch.allreduce_hook)

optimizer = gradlane.torch.overlap(model, optimizer, session)     # or

optimizer = gradlane.torch.synchronise(model, optimizer, session)  # or: by a scheme that needs no global step
"""

import torch.distributed as _dist

from gradlane.torch.accumulated import AccumulatedOptimizer
from gradlane.torch.overlapped import OverlappedOptimizer, overlap
from gradlane.torch.schemes import synchronise
from gradlane.torch.session import Session, allreduce_hook, connect
from gradlane.torch.synchronised import SynchronisedOptimizer
from gradlane.torch.world import create as _create
from gradlane.torch.world import default_session

_dist.Backend.register_backend("gradlane", _create, extended_api=True, devices=["cpu", "cuda"])

__all__ = [
    "AccumulatedOptimizer",
    "OverlappedOptimizer",
    "Session",
    "SynchronisedOptimizer",
    "allreduce_hook",
    "connect",
    "default_session",
    "overlap",
    "synchronise",
]
