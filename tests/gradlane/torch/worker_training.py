# SPDX-License-Identifier: Apache-2.0
"""What a rank does in the tests that train: small models, few steps, everything from a seed."""

import hashlib
import os
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision, fully_shard
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.nn.parallel import DistributedDataParallel

import gradlane
import gradlane.torch
from tests.gradlane.torch.ranks import init, process_group

STEPS = 3


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(24)
        self.inner = nn.Linear(24, 48)
        self.outer = nn.Linear(48, 24)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.outer(torch.relu(self.inner(self.norm(x))))


def network(device: str | torch.device = "cpu") -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(10, 24), Block(), nn.BatchNorm1d(24), Block(), nn.Linear(24, 3)).to(device)


def batch(rank: int, step: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(100 * rank + step)
    return torch.randn(8, 10, generator=generator), torch.randint(0, 3, (8,), generator=generator)


def train(model: nn.Module, optimizer: torch.optim.Optimizer, rank: int) -> None:
    device = next(model.parameters()).device
    for step in range(STEPS):
        inputs, targets = (tensor.to(device) for tensor in batch(rank, step))
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    # Not Adam: where the order of a sum shows, the sign of a gradient near zero would decide.
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def ddp(rank: int, device: str = "cpu", **options: Any) -> list[torch.Tensor]:
    model = network(device)
    parallel = DistributedDataParallel(model, bucket_cap_mb=0.004, **options)
    train(parallel, sgd(model), rank)
    return [*model.parameters(), *model.buffers()]


def hooked(rank: int, session: gradlane.torch.Session, device: str = "cpu", **options: Any) -> list[torch.Tensor]:
    model = network(device)
    session.watch(model)
    parallel = DistributedDataParallel(model, bucket_cap_mb=0.004, **options)
    parallel.register_comm_hook(session, gradlane.torch.allreduce_hook)
    train(parallel, sgd(model), rank)
    return [*model.parameters(), *model.buffers()]


def fsdp(rank: int, device: str = "cpu", **options: Any) -> list[torch.Tensor]:
    model = FullyShardedDataParallel(
        network(device), auto_wrap_policy=ModuleWrapPolicy({Block}), device_id=torch.device(device), **options
    )
    train(model, sgd(model), rank)
    with FullyShardedDataParallel.summon_full_params(model):
        return [parameter.detach().clone() for parameter in model.parameters()]


def sharded(rank: int, device: str = "cpu") -> list[torch.Tensor]:
    model = network(device)
    mesh = init_device_mesh(torch.device(device).type, (dist.get_world_size(),))
    for module in model:
        if isinstance(module, Block):
            fully_shard(module, mesh=mesh)
    fully_shard(model, mesh=mesh)
    train(model, sgd(model), rank)
    return [parameter.full_tensor().detach() for parameter in model.parameters()]


def half(rank: int) -> list[torch.Tensor]:
    types = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32, buffer_dtype=torch.bfloat16)
    return fsdp(rank, mixed_precision=types)


def everything(rank: int) -> dict[str, list[torch.Tensor]]:
    """The trained parameters of each way, on the process group that there is."""
    ways: dict[str, Callable[[int], list[torch.Tensor]]] = {
        "ddp": ddp,
        "ddp with views": lambda rank: ddp(rank, gradient_as_bucket_view=True),
        "fsdp": fsdp,
        "fsdp in bfloat16": half,
        "fully_shard": sharded,
    }
    return {name: [tensor.detach() for tensor in way(rank)] for name, way in ways.items()}


def both_backends(rank: int, size: int, folder: str) -> None:
    """Trains on Gloo and on gradlane; the session of the latter serves the hook and the wrapper, too."""
    with process_group("gloo", rank, size, folder):
        expected = everything(rank)
    with process_group("gradlane", rank, size, folder):
        found = everything(rank)
        session = gradlane.torch.default_session()
        # All in one session: each has buckets of its own, and after the first step others.
        found["hook"] = hooked(rank, session)
        for option in ("gradient_as_bucket_view", "static_graph", "find_unused_parameters"):
            found[f"hook, {option}"] = hooked(rank, session, **{option: True})
        expected |= dict.fromkeys(found.keys() - expected.keys(), expected["ddp"])
    assert found.keys() == expected.keys()
    for name, tensors in found.items():
        for ours, theirs in zip(tensors, expected[name], strict=True):
            if size == 2:  # the sum of two has one order
                assert torch.equal(ours, theirs), name
            else:
                torch.testing.assert_close(ours, theirs, msg=name)


def one_dies(rank: int, size: int, folder: str, way: str) -> str:
    """Rank 1 dies within a step; what the other is told by the backend or by the hook."""
    init("gradlane", rank, size, folder)
    parallel = DistributedDataParallel(network())
    if way == "hook":
        session = gradlane.torch.default_session()
        session.watch(parallel.module)
        parallel.register_comm_hook(session, gradlane.torch.allreduce_hook)
    train(parallel, sgd(parallel), rank)
    if rank == 1:
        os._exit(3)
    with pytest.raises(Exception, match="rank 1") as error:
        train(parallel, sgd(parallel), rank)
    with pytest.raises(gradlane.AgentError, match="rank 1"):
        dist.destroy_process_group()
    return f"{type(error.value).__name__}: {error.value}"


def _bits(tensors: list[torch.Tensor]) -> str:
    """A digest of them: pytest takes minutes to say how long texts differ."""
    return hashlib.sha256(b"".join(tensor.detach().numpy().tobytes() for tensor in tensors)).hexdigest()


def _connected(rank: int, size: int, folder: str, session: gradlane.torch.Session) -> str:
    with process_group("gloo", rank, size, folder):
        found = _bits(hooked(rank, session))
    session.close()
    return found


def from_the_job_file(rank: int, size: int, folder: str) -> str:
    """What a model becomes, in bits."""
    return _connected(rank, size, folder, gradlane.torch.connect(os.environ["GRADLANE_JOB"]))


def from_the_controller(rank: int, size: int, folder: str) -> str:
    """The same, twice: by `connect`, and by torch.distributed with another job, which has a name of its own."""
    found = _connected(rank, size, folder, gradlane.torch.connect())
    os.environ["GRADLANE_JOB_NAME"] += "-2"
    with process_group("gradlane", rank, size, folder):
        assert _bits(hooked(rank, gradlane.torch.default_session())) == found
    return found


def print_bits() -> None:
    """The same in a process of its own, of a job that the environment names."""
    torch.set_num_threads(1)
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    store = dist.FileStore(os.environ["RENDEZVOUS"], size)
    dist.init_process_group("gradlane", store=store, rank=rank, world_size=size)
    print(_bits(hooked(rank, gradlane.torch.default_session())))
    dist.destroy_process_group()
