# SPDX-License-Identifier: Apache-2.0
"""How each kind of arm keeps its workers' models together."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.distributed import GradBucket  # pyright: ignore[reportPrivateImportUsage]
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from lab.training.clock import ExchangeClock, Hook
from lab.training.config import Config
from lab.training.ps_client import Client
from lab.training.ps_wire import PeerError


@dataclass(frozen=True)
class Joint:
    """Model and optimizer as they train together with the other workers'.

    lockstep: whether all workers take equally many steps. group: the ranks with which this one exchanges in the step
    that it takes, or after the one that it has taken; empty without an exchange. average: gives all workers the mean of
    their parameters after the last step; None where they are the same anyway.
    """

    model: nn.Module
    optimizer: torch.optim.Optimizer
    group: Callable[[], Sequence[int]]
    lockstep: bool = True
    average: Callable[[], None] | None = None


Join = Callable[[nn.Module, torch.optim.Optimizer, ExchangeClock], Joint]


@dataclass(frozen=True)
class GradientSync:
    """`join` makes model and optimizer train together, once; the clock notes the exchanges.

    statistics: the transport's own figures so far; empty where it has none. close: leaves; returns the last of them.
    """

    join: Join
    statistics: Callable[[], dict[str, Any]]
    close: Callable[[], dict[str, Any]]


def connect(config: Config, rank: int, model: nn.Module) -> GradientSync:
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

        return GradientSync(_with_hook(config, hook, client), _no_statistics, close)
    hook = default_hooks.fp16_compress_hook if arm.wire == "float16" else default_hooks.allreduce_hook
    return GradientSync(_with_hook(config, hook, None), _no_statistics, _no_statistics)


def _with_hook(config: Config, hook: Hook, state: Any) -> Join:
    """DistributedDataParallel with a communication hook: a barrier at the end of the backward pass."""

    def join(model: nn.Module, optimizer: torch.optim.Optimizer, clock: ExchangeClock) -> Joint:
        size = config.effective_arm.bucket_bytes / 2**20
        parallel = DistributedDataParallel(model, bucket_cap_mb=size, gradient_as_bucket_view=True)
        parallel.register_comm_hook(state, clock.around(hook))
        return Joint(parallel, optimizer, lambda: _all(config))

    return join


def _gradlane(config: Config, rank: int, model: nn.Module) -> GradientSync:
    import gradlane.torch  # only here: a baseline's process has nothing of Gradlane in it

    session = gradlane.torch.connect(config.job, rank, config.worker(rank).socket, model)
    arm = config.effective_arm

    def overlap(model: nn.Module, optimizer: torch.optim.Optimizer, clock: ExchangeClock) -> Joint:
        session.observe(clock.observe)
        overlapped = gradlane.torch.overlap(model, optimizer, session, bucket_bytes=arm.bucket_bytes)
        return Joint(model, overlapped, lambda: _all(config))

    def synchronise(model: nn.Module, optimizer: torch.optim.Optimizer, clock: ExchangeClock) -> Joint:
        session.observe(clock.observe)
        local = gradlane.torch.synchronise(model, optimizer, session)
        return Joint(model, local, lambda: local.group or (rank,), local.scheme.lockstep, local.average)

    join = _with_hook(config, gradlane.torch.allreduce_hook, session)
    if arm.by_scheme:
        join = synchronise
    elif arm.overlap:
        join = overlap
    return GradientSync(join, session.statistics, session.close)


def _all(config: Config) -> Sequence[int]:
    return range(len(config.workers))


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
