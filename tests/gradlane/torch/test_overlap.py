# SPDX-License-Identifier: Apache-2.0
"""Training without a barrier: it equals DistributedDataParallel, it does overlap, and wrong use is refused."""

import copy
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import gradlane.torch
from gradlane.torch.overlapped import OverlappedOptimizer
from gradlane.torch.session import Session
from gradlane.torch.staging import Staging
from tests.gradlane.torch import worker_overlap
from tests.gradlane.torch.ranks import job_file, run
from tests.support.agents import Agent, until

PATIENCE = 20.0


def test_it_trains_as_distributed_data_parallel_bit_for_bit(agents: list[Agent], tmp_path: Path) -> None:
    run(worker_overlap.as_ddp, agents[:2], job_file(tmp_path / "job.toml", agents[:2]))


def test_a_worker_that_ends_leaves_the_job_in_order(agents: list[Agent], tmp_path: Path) -> None:
    before = [agent.status() for agent in agents[:2]]
    first, second = run(worker_overlap.ends_without_a_word, agents[:2], job_file(tmp_path / "job.toml", agents[:2]))
    assert first == second
    until(lambda: not any(agent.status()["jobs"] for agent in agents[:2]))
    for agent, was in zip(agents, before, strict=False):
        now = agent.status()
        assert (now["ended"], now["failed"]) == (was["ended"] + 1, was["failed"])


class Pair:
    """Two workers in this process: the test's own, and one in a thread."""

    def __init__(self, sessions: list[Session]) -> None:
        self.sessions = sessions
        self.models = [nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)) for _ in sessions]
        for session, model in zip(sessions, self.models, strict=True):
            session.watch(model)

    def overlap(self, **options: Any) -> list[OverlappedOptimizer]:
        return self.both(lambda rank: overlapping(self.sessions[rank], self.models[rank], **options))

    def both(self, act: Callable[[int], Any]) -> list[Any]:
        """`act(rank)` at the same time; raises what the first has raised."""
        with ThreadPoolExecutor(2) as pool:
            return [future.result(PATIENCE) for future in [pool.submit(act, rank) for rank in range(2)]]


def overlapping(session: Session, model: nn.Module, **options: Any) -> OverlappedOptimizer:
    return gradlane.torch.overlap(model, torch.optim.SGD(model.parameters(), lr=0.1), session, **options)


@pytest.fixture
def pair(agents: list[Agent], tmp_path: Path) -> Iterator[Pair]:
    """It must be fit to leave the job at the end of a test."""
    job = job_file(tmp_path / "job.toml", agents[:2])
    with ThreadPoolExecutor(2) as pool:
        sessions = list(pool.map(lambda rank: gradlane.torch.connect(job, rank, agents[rank].socket), range(2)))
        yield Pair(sessions)
        list(pool.map(Session.close, sessions))


def test_a_layers_forward_runs_before_later_layers_gradients_have_arrived(pair: Pair) -> None:
    """By the order of events: the other worker sends a layer's gradient when the one before has gone forward."""
    events: list[str] = []
    forward = [threading.Event() for _ in pair.models[0]]

    def other_worker() -> None:
        session, model = pair.sessions[1], pair.models[1]
        session.broadcast(list(model.parameters()))
        buckets = [session.bucket(list(layer.parameters())) for layer in model]
        for number, (bucket, layer) in enumerate(zip(buckets, model, strict=True)):
            if number:
                assert forward[number - 1].wait(PATIENCE), f"layer {number - 1} waits for the gradient of {number}"
            events.append(f"gradient {number}")
            bucket.start([torch.ones_like(parameter) for parameter in layer.parameters()]).wait()

    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(other_worker)
        model = pair.models[0]
        optimizer = overlapping(pair.sessions[0], model, bucket_bytes=80)  # a layer each
        before = model[2].weight.detach().clone()
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        events.append("step")
        for number, layer in enumerate(model):

            def went(_: Any, __: Any, ___: Any, number: int = number) -> None:
                events.append(f"forward {number}")
                forward[number].set()

            layer.register_forward_hook(went)
        model(torch.ones(2, 4))
        other.result(PATIENCE)
    assert not torch.equal(before, model[2].weight)
    for number in range(3):
        assert events.index(f"gradient {number}") < events.index(f"forward {number}")
        assert number == 2 or events.index(f"forward {number}") < events.index(f"gradient {number + 1}")


def test_whoever_reads_the_model_gets_it_up_to_date(pair: Pair) -> None:
    readers: list[Callable[[nn.Module, OverlappedOptimizer], torch.Tensor]] = [
        lambda model, optimizer: model.state_dict()["2.weight"],
        lambda model, optimizer: list(model.parameters())[4],
        lambda model, optimizer: model[2].weight,
        lambda model, optimizer: copy.deepcopy(model)[2].weight,
        lambda model, optimizer: model.double().float()[2].weight,
    ]
    optimizers = pair.overlap()

    def train(rank: int) -> None:
        model, optimizer = pair.models[rank], optimizers[rank]
        for reader in readers:
            expected = model[2].weight.detach().clone()
            optimizer.zero_grad()
            model(torch.ones(1, 4)).sum().backward()
            gradient = model[2].weight.grad
            assert gradient is not None
            expected -= 0.1 * gradient  # the same at both
            optimizer.step()
            torch.testing.assert_close(reader(model, optimizer).detach(), expected)

    pair.both(train)


@pytest.mark.parametrize("staged", [False, True])
def test_every_worker_has_rank_0s_buffers_after_a_step_and_may_evaluate_alone(pair: Pair, staged: bool) -> None:
    """Also on the way that an accelerator's tensors take, which is there on the CPU too."""
    pair.models = [nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)) for _ in range(2)]
    for session, model in zip(pair.sessions, pair.models, strict=True):
        session.watch(model)
        if staged:
            cpu = torch.device("cpu")
            session._stagings[cpu] = Staging(cpu)
    optimizers = pair.overlap()

    def train(rank: int) -> torch.Tensor:
        model, inputs = pair.models[rank], torch.randn(8, 4, generator=torch.Generator().manual_seed(rank))
        model(inputs).square().sum().backward()
        mean = model[1].running_mean.clone()
        optimizers[rank].step()
        if rank:
            model.eval()(inputs)  # what rank 0 does not do
        return mean

    means = pair.both(train)
    assert not torch.equal(*means), "the workers have seen other inputs"
    for model in pair.models:
        torch.testing.assert_close(model[1].running_mean, means[0], rtol=0, atol=0)
        assert model[1].num_batches_tracked == 1


def test_buffers_stay_each_workers_own_if_that_is_asked_for(pair: Pair) -> None:
    pair.models = [nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)) for _ in range(2)]
    for session, model in zip(pair.sessions, pair.models, strict=True):
        session.watch(model)
    optimizers = pair.overlap(broadcast_buffers=False)

    def train(rank: int) -> None:
        pair.models[rank](torch.full((8, 4), float(rank))).sum().backward()
        optimizers[rank].step()

    pair.both(train)
    assert not torch.equal(*(model[1].running_mean for model in pair.models))


def test_gradients_of_a_step_that_is_not_taken_are_forgotten(pair: Pair) -> None:
    optimizers = pair.overlap()

    def train(rank: int) -> None:
        model, optimizer = pair.models[rank], optimizers[rank]
        before = [p.detach().clone() for p in model.parameters()]
        for _ in range(2):
            model(torch.ones(1, 4)).sum().backward()
            optimizer.zero_grad()
        assert all(torch.equal(p, q) for p, q in zip(model.parameters(), before, strict=True))

    pair.both(train)


def test_wrong_use_is_refused_with_what_to_do(pair: Pair) -> None:
    optimizers = pair.overlap()

    def train(rank: int) -> None:
        model, optimizer = pair.models[rank], optimizers[rank]

        def backward() -> None:
            model(torch.ones(1, 4)).sum().backward()

        backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
        with pytest.raises(RuntimeError, match=r"gradient of .* was changed between.*optimizer.synchronize\(\)"):
            optimizer.step()
        optimizer.zero_grad()
        backward()
        with pytest.raises(RuntimeError, match=r"second gradient.*optimizer.no_sync\(\)"):
            backward()
        optimizer.zero_grad()
        model[0](torch.ones(1, 4)).sum().backward()
        with pytest.raises(RuntimeError, match=r"have no gradient, the first is 1.weight.*unused_parameters"):
            optimizer.step()
        optimizer.zero_grad()
        taken = list(model.parameters())
        backward()
        optimizer.step()
        with pytest.raises(RuntimeError, match=r"0.weight was used before its update.*synchronize\(\)"):
            (taken[0] * 2).sum().backward()
        optimizer.synchronize()
        with pytest.raises(ValueError, match="takes no closure"):
            optimizer.step(lambda: 0.0)  # pyright: ignore[reportArgumentType]
        with pytest.raises(ValueError, match="1 parameters that are not the model's"):
            gradlane.torch.overlap(model, torch.optim.SGD([nn.Parameter(torch.ones(1))]), pair.sessions[rank])

    pair.both(train)
