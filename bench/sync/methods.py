# SPDX-License-Identifier: Apache-2.0
"""How a worker trains by each method: DistributedDataParallel, or Gradlane's optimizers, around one plain model."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import PostLocalSGDState, post_localSGD_hook
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.optim import PostLocalSGDOptimizer
from torch.nn.parallel import DistributedDataParallel

import gradlane.torch
from gradlane.torch.session import Session

BUCKET_BYTES = 128 << 10
"""In all arms: about half of the model's widest layer, so that each layer of it travels by itself."""
_EVERY, _GLOBAL_STEPS = 8, 10  # of post-local SGD: as local-sgd, after so many global steps at the start


@dataclass(frozen=True)
class Training:
    """A model and an optimizer, as a training loop uses them. lockstep: all workers take equally many steps."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    close: Callable[[], object]
    lockstep: bool = True


class Ddp:
    """The methods of torch's own. Made once in a process; the default process group is there."""

    def __init__(self) -> None:
        groups = [dist.new_group([rank]) for rank in range(dist.get_world_size())]
        self._alone = groups[dist.get_rank()]

    def ddp(self, model: nn.Module, inner: torch.optim.Optimizer) -> Training:
        """All-reduces of float16."""
        parallel = _parallel(model)
        parallel.register_comm_hook(None, default_hooks.fp16_compress_hook)
        return Training(parallel, inner, _nothing)

    def post_local(self, model: nn.Module, inner: torch.optim.Optimizer) -> Training:
        """A few global steps, then local ones, and the mean of all parameters after each round."""
        parallel = _parallel(model)
        # A worker alone is the "node" within which torch would still average gradients.
        state = PostLocalSGDState(None, self._alone, _GLOBAL_STEPS)
        parallel.register_comm_hook(state, post_localSGD_hook)
        averager = PeriodicModelAverager(_EVERY, _GLOBAL_STEPS)
        return Training(parallel, PostLocalSGDOptimizer(inner, averager), _nothing)


def overlap(model: nn.Module, inner: torch.optim.Optimizer, session: Session) -> Training:
    """A global step without the barrier after the backward pass."""
    optimizer = gradlane.torch.overlap(model, inner, session, bucket_bytes=BUCKET_BYTES)
    return Training(model, optimizer, session.close)


def synchronise(model: nn.Module, inner: torch.optim.Optimizer, session: Session) -> Training:
    """The scheme of the job file."""
    optimizer = gradlane.torch.synchronise(model, inner, session, bucket_bytes=BUCKET_BYTES)
    return Training(model, optimizer, session.close, optimizer.scheme.lockstep)


def _parallel(model: nn.Module) -> Any:
    return DistributedDataParallel(model, bucket_cap_mb=BUCKET_BYTES / 2**20, gradient_as_bucket_view=True)


def _nothing() -> None:
    pass
