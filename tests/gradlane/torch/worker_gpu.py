# SPDX-License-Identifier: Apache-2.0
"""What a rank does in the tests on a GPU."""

import gc
import os
from collections.abc import Callable

import torch
import torch.distributed as dist

import gradlane.torch
from gradlane.sync import LocalSgd
from tests.gradlane.torch.ranks import process_group
from tests.gradlane.torch.worker_training import ddp, fsdp, hooked, network, sgd, sharded, train

GPU = "cuda:0"
SLEEP = 100_000_000  # cycles, some 50 ms


def wrapped(rank: int, session: gradlane.torch.Session) -> list[torch.Tensor]:
    model = network(GPU)
    optimizer = gradlane.torch.overlap(model, sgd(model), session)
    train(model, optimizer, rank)
    optimizer.close()
    return list(model.parameters())


def local(rank: int, session: gradlane.torch.Session) -> list[torch.Tensor]:
    """The mean after each step: without momentum's decay of its own that is the step with the mean of gradients."""
    model = network(GPU)
    optimizer = gradlane.torch.synchronise(model, sgd(model), session, LocalSgd(1))
    train(model, optimizer, rank)
    optimizer.close()
    return list(model.parameters())


def every_way(rank: int, size: int, folder: str) -> None:
    with process_group("gloo", rank, size, folder):
        expected = ddp(rank)
    with process_group("gradlane", rank, size, folder):
        session = gradlane.torch.default_session()
        ways: dict[str, Callable[[], list[torch.Tensor]]] = {
            "the backend": lambda: ddp(rank, GPU),
            "the backend, with views": lambda: ddp(rank, GPU, gradient_as_bucket_view=True),
            "fsdp": lambda: fsdp(rank, GPU),
            "fully_shard": lambda: sharded(rank, GPU),
            "the hook": lambda: hooked(rank, session, GPU),
            "the hook, with views": lambda: hooked(rank, session, GPU, gradient_as_bucket_view=True),
            "the wrapper": lambda: wrapped(rank, session),
            "local SGD": lambda: local(rank, session),
        }
        for name, way in ways.items():
            for ours, theirs in zip(way(), expected, strict=False):  # some without buffers
                assert ours.device.type == "cuda", name
                torch.testing.assert_close(ours.cpu(), theirs, rtol=1e-4, atol=1e-5, msg=name)


def on_a_stream(rank: int, size: int, folder: str) -> None:
    """The stream is behind when a collective is called, and with what is done to its results."""

    def later(value: float, shape: int = 1000) -> torch.Tensor:
        """A tensor that will hold it when the stream has slept."""
        tensor = torch.full((shape,), -1.0, device=GPU)
        torch.cuda._sleep(SLEEP)
        return tensor.fill_(value)

    def all_reduce() -> torch.Tensor:
        tensor = later(rank + 1)
        dist.all_reduce(tensor)
        return tensor * 2

    def asynchronously() -> torch.Tensor:
        tensor = later(rank + 1)
        work = dist.all_reduce(tensor, async_op=True)
        torch.cuda._sleep(SLEEP)
        assert work is not None
        work.wait()
        return tensor * 2

    def by_future() -> torch.Tensor:
        tensor = later(rank + 1)
        work = dist.all_reduce(tensor, async_op=True)
        assert work is not None
        return work.get_future().then(lambda done: done.value()[0] * 2).wait()

    def broadcast() -> torch.Tensor:
        tensor = later(6 if rank == 0 else 0)  # at rank 1 the stream still writes when the value comes
        dist.broadcast(tensor, 0)
        return tensor

    def all_gather() -> torch.Tensor:
        output = later(0, 2000)
        dist.all_gather_into_tensor(output, later(3 * rank, 1000))
        return output.view(2, 1000).sum(0) * 2

    def reduce_scatter() -> torch.Tensor:
        output = later(0)
        dist.reduce_scatter_tensor(output, later(rank + 1, 2000))
        return output * 2

    def to_the_other() -> torch.Tensor:
        output = later(0)
        if rank == 0:
            dist.send(later(6), 1)
            dist.recv(output, 1)
        else:
            dist.recv(output, 0)
            dist.send(output, 0)
        return output

    with process_group("gradlane", rank, size, folder):
        torch.cuda.set_device(0)
        ways = (all_reduce, asynchronously, by_future, broadcast, all_gather, reduce_scatter, to_the_other)
        for collective in ways:
            with torch.cuda.stream(torch.cuda.Stream()):
                result = collective()
                assert torch.equal(result.cpu(), torch.full((1000,), 6.0)), (collective.__name__, result)


def in_bfloat16(rank: int, size: int, folder: str) -> None:
    """A model of bfloat16, whose gradients travel as such: all ranks get the same means."""
    session = gradlane.torch.connect(os.environ["GRADLANE_JOB"], rank, os.environ["GRADLANE_SOCKET"])
    model = network(GPU).to(torch.bfloat16)
    optimizer = gradlane.torch.overlap(model, sgd(model), session)
    generator = torch.Generator(GPU).manual_seed(rank)
    means: list[torch.Tensor] = []
    for _ in range(3):
        inputs = torch.randn(8, 10, generator=generator, device=GPU, dtype=torch.bfloat16)
        optimizer.zero_grad()
        (model(inputs).float().square().mean()).backward()
        optimizer.synchronize()
        means = [parameter.grad.float() for parameter in model.parameters() if parameter.grad is not None]
        optimizer.step()
    digest = torch.stack([mean.abs().sum() for mean in means]).cpu()
    optimizer.close()
    session.close()
    with process_group("gloo", rank, size, folder):
        both = [torch.empty_like(digest) for _ in range(size)]
        dist.all_gather(both, digest)
        assert torch.equal(both[0], both[1])
        assert digest.isfinite().all()
        assert digest.sum() > 0


def again(rank: int, size: int, folder: str) -> None:
    """Sessions one after the other, whose memory may come to lie where that of earlier ones was."""
    with process_group("gloo", rank, size, folder):
        for _ in range(4):
            session = gradlane.torch.connect(os.environ["GRADLANE_JOB"], rank, os.environ["GRADLANE_SOCKET"])
            model = torch.nn.Sequential(*(torch.nn.Linear(1000, 1000) for _ in range(4))).to(GPU)
            optimizer = gradlane.torch.overlap(model, sgd(model), session)
            for step in range(3):
                optimizer.zero_grad()
                model(torch.full((8, 1000), float(rank + step), device=GPU)).square().mean().backward()
                optimizer.step()
            optimizer.synchronize()
            digest = torch.stack([parameter.detach().sum() for parameter in model.parameters()]).cpu()
            session.close()
            del session, model, optimizer
            gc.collect()
            both = [torch.empty_like(digest) for _ in range(size)]
            dist.all_gather(both, digest)
            assert torch.equal(both[0], both[1])
