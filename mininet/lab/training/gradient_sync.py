# SPDX-License-Identifier: Apache-2.0
"""How each kind of arm synchronises gradients: a DDP communication hook, and what goes with it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.distributed import GradBucket  # pyright: ignore[reportPrivateImportUsage]
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.futures import Future

from lab.training.config import Config
from lab.training.ps_client import Client
from lab.training.ps_wire import PeerError

Hook = Callable[[Any, GradBucket], Future[torch.Tensor]]
Observer = Callable[[float, float], None]
Overlap = Callable[[torch.nn.Module, torch.optim.Optimizer, Observer], torch.optim.Optimizer]


@dataclass(frozen=True)
class GradientSync:
    """`hook` and its `state`, as DistributedDataParallel.register_comm_hook takes them.

    statistics: the transport's own figures so far; empty where it has none. close: leaves; returns the last of them.
    overlap: makes model and optimizer train without a barrier, in place of DistributedDataParallel, and calls the
    observer with the start and the end of each all-reduce, in CLOCK_MONOTONIC seconds. None for arms with the barrier.
    """

    hook: Hook
    state: Any
    statistics: Callable[[], dict[str, Any]]
    close: Callable[[], dict[str, Any]]
    overlap: Overlap | None = None


def connect(config: Config, rank: int, model: torch.nn.Module) -> GradientSync:
    """Joins what the arm needs. Raises GradlaneError that names the culprit."""
    arm = config.effective_arm
    if arm.kind == "gradlane":
        return _gradlane(config, rank, model)
    if arm.kind == "ps":
        client = Client(config, rank)
        hook = _push_pull_float16 if arm.wire == "float16" else _push_pull

        def close() -> dict[str, Any]:
            client.close()
            return {}

        return GradientSync(hook, client, _no_statistics, close)
    hook = default_hooks.fp16_compress_hook if arm.wire == "float16" else default_hooks.allreduce_hook
    return GradientSync(hook, None, _no_statistics, _no_statistics)


def _gradlane(config: Config, rank: int, model: torch.nn.Module) -> GradientSync:
    import gradlane.torch  # only here: a baseline's process has nothing of Gradlane in it

    session = gradlane.torch.connect(config.job, rank, config.worker(rank).socket, model)
    arm = config.effective_arm

    def overlap(model: torch.nn.Module, optimizer: torch.optim.Optimizer, observer: Observer) -> torch.optim.Optimizer:
        session.observe(observer)
        return gradlane.torch.overlap(model, optimizer, session, bucket_bytes=arm.bucket_bytes)

    hook = gradlane.torch.allreduce_hook
    return GradientSync(hook, session, session.statistics, session.close, overlap if arm.overlap else None)


def _push_pull(client: Client, bucket: GradBucket) -> Future[torch.Tensor]:
    """The mean of the bucket over all workers, in place: no copy between DDP's memory and the sockets."""
    buffer = bucket.buffer()
    return _reduced(client, buffer, lambda: buffer)


def _push_pull_float16(client: Client, bucket: GradBucket) -> Future[torch.Tensor]:
    """The same with float16 elements on the wire; the servers sum in float32."""
    buffer = bucket.buffer()
    wire = buffer.half()
    return _reduced(client, wire, lambda: buffer.copy_(wire))


def _reduced(client: Client, wire: torch.Tensor, result: Callable[[], torch.Tensor]) -> Future[torch.Tensor]:
    future: Future[torch.Tensor] = Future()

    def done(problem: PeerError | None) -> None:
        if problem is None:
            future.set_result(result())
        else:
            future.set_exception(problem)  # pyright: ignore[reportArgumentType] - PyTorch's annotation is wrong

    client.reduce(wire.numpy(), done)
    return future


def _no_statistics() -> dict[str, Any]:
    return {}
