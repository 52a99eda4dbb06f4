# SPDX-License-Identifier: Apache-2.0
"""Training by a scheme: it equals the scheme's definition, overlaps, and what can't be done is refused by name."""

import copy
import functools
import gc
import math
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import gradlane.torch
from gradlane.job import JobError
from gradlane.sync import Acco, AdPsgd, DsSync, LocalSgd, RFast, Ringmaster, Scheme
from gradlane.sync.worker import Worker
from gradlane.torch import SynchronisedOptimizer
from gradlane.torch.staging import Staging
from tests.gradlane.torch.ranks import job_file, run
from tests.gradlane.torch.schemes import worker_synchronised
from tests.gradlane.torch.schemes.synchronised_workers import PATIENCE, Workers, connect
from tests.support.agents import Agent


def test_it_is_what_the_scheme_is_defined_as(agents: list[Agent], tmp_path: Path) -> None:
    run(worker_synchronised.by_itself, agents, job_file(tmp_path / "job.toml", agents))


@pytest.mark.parametrize(
    "scheme",
    [
        '"ds-sync"',
        '"ds-sync"\nschedule = "pairs"',
        '"diloco"\nevery = 5',
        '"diloco"\nevery = 5\nfragments = 3\ndelay = 2\nalpha = 0.5',
        '"ripples"',
    ],
)
def test_a_model_learns_by_the_job_files_scheme(agents: list[Agent], tmp_path: Path, scheme: str) -> None:
    job = job_file(tmp_path / "job.toml", agents[:3], loss=f"[sync]\nscheme = {scheme}\n")
    results = [result[0] for result in run(worker_synchronised.learns, agents[:3], job)]
    for wrong, parameters in results:
        assert wrong < 0.2
        assert parameters == results[0][1]


@pytest.mark.parametrize(("scheme", "groups"), [(LocalSgd(2), [(), (0, 1)]), (DsSync(), [(0, 1), (0, 1)])])
def test_it_says_who_averages_with_whom(pair: Workers, scheme: Scheme, groups: list[tuple[int, ...]]) -> None:
    pair.synchronise(scheme)
    for step in range(4):
        pair.train(range(step, step + 1))
        assert [optimizer.group for optimizer in pair.optimizers] == [groups[step % 2]] * 2


def test_a_layers_forward_runs_before_later_layers_have_been_averaged(pair: Workers) -> None:
    """By the order of events: the other worker sends a layer when the one before has gone forward."""
    events: list[str] = []
    forward = [threading.Event() for _ in range(3)]

    def other_worker() -> None:
        session, model = pair.sessions[1], pair.models[1]
        session.watch(model)
        session.broadcast(list(model.parameters()))
        worker = Worker(session.connection, DsSync(), session.name("sync", list(model.parameters())))
        blocks = [worker.block(20, "float32") for _ in model]
        exchanges = worker.next()
        assert [block for block, _ in exchanges] == blocks
        for number, (block, start) in enumerate(exchanges):
            if number:
                assert forward[number - 1].wait(PATIENCE), f"layer {number - 1} waits for {number}"
            events.append(f"sent {number}")
            block.values[:] = 7
            start().wait()

    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(other_worker)
        model = pair.models[0]
        inner = torch.optim.SGD(model.parameters(), lr=0.0)
        optimizer = gradlane.torch.synchronise(model, inner, pair.sessions[0], "ds-sync", bucket_bytes=80)
        before = [p.detach().clone() for p in model.parameters()]
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
    for number in range(3):
        assert events.index(f"sent {number}") < events.index(f"forward {number}")
        assert number == 2 or events.index(f"forward {number}") < events.index(f"sent {number + 1}")
    for parameter, was in zip(model.parameters(), before, strict=True):
        torch.testing.assert_close(parameter.detach(), (was + 7) / 2)


@pytest.mark.parametrize("staged", [False, True])
def test_whoever_reads_model_or_optimizer_gets_them_up_to_date(pair: Workers, staged: bool) -> None:
    """Also on the way that an accelerator's tensors take, which is there on the CPU too."""
    readers: list[Callable[[Any, SynchronisedOptimizer], Any]] = [
        lambda model, optimizer: model.state_dict()["2.weight"],
        lambda model, optimizer: list(model.parameters())[4],
        lambda model, optimizer: copy.deepcopy(model)[2].weight,
        lambda model, optimizer: (optimizer.synchronize(), dict.__getitem__(model[2]._parameters, "weight"))[1],
        lambda model, optimizer: (optimizer.state_dict(), dict.__getitem__(model[2]._parameters, "weight"))[1],
    ]
    if staged:
        cpu = torch.device("cpu")
        for session in pair.sessions:
            session._stagings[cpu] = Staging(cpu)
    pair.synchronise(lr=1.0)
    weights = [model[2].weight for model in pair.models]
    for reader in readers:
        before = weights[0].detach().clone()
        torch.testing.assert_close(weights[1].detach(), before)

        def act(rank: int, reader: Any = reader) -> torch.Tensor:
            pair.optimizers[rank].zero_grad()
            for group in pair.optimizers[rank].param_groups:
                group["momentum"] = 0.0
            weights[rank].grad = torch.full_like(weights[rank], 2.0 * rank)
            pair.optimizers[rank].step()
            return reader(pair.models[rank], pair.optimizers[rank]).detach().clone()

        for found in pair.all(act):
            torch.testing.assert_close(found, before - 1.0)


def test_fragments_are_mixed_in_when_their_delay_is_over(pair: Workers) -> None:
    """Layer by layer, against the definition."""
    pair.use(lambda: nn.Sequential(*(nn.Linear(3, 1, bias=False) for _ in range(2))))
    pair.synchronise(LocalSgd(4, 0.7, 0.9, fragments=2, delay=1, alpha=0.25), bucket_bytes=12)
    common = [pair.models[0][layer].weight.detach().clone() for layer in range(2)]
    momentum = [torch.zeros(1, 3) for _ in range(2)]
    expected = [[value.clone() for value in common] for _ in range(2)]
    late: dict[int, tuple[int, torch.Tensor]] = {}
    for step in range(1, 12):

        def act(rank: int, step: int = step) -> list[torch.Tensor]:
            model, optimizer = pair.models[rank], pair.optimizers[rank]
            optimizer.param_groups[0].update(momentum=0.0, lr=1.0)
            optimizer.zero_grad()
            for layer in range(2):
                model[layer].weight.grad = torch.full((1, 3), float(rank + step + layer))
            optimizer.step()
            return [model[layer].weight.detach().clone() for layer in range(2)]

        found = pair.all(act)
        for rank in range(2):
            for layer in range(2):
                expected[rank][layer] = expected[rank][layer] - float(rank + step + layer)
        if step in late:
            layer, gradient = late.pop(step)
            momentum[layer] = 0.9 * momentum[layer] + gradient
            common[layer] = common[layer] - 0.7 * (gradient + 0.9 * momentum[layer])
            for own in expected:
                own[layer] = 0.25 * own[layer] + 0.75 * common[layer]
        if step % 2 == 0:
            layer = 0 if step % 4 == 2 else 1
            late[step + 1] = layer, common[layer] - (expected[0][layer] + expected[1][layer]) / 2
        for rank in range(2):
            for layer in range(2):
                torch.testing.assert_close(found[rank][layer], expected[rank][layer], rtol=1e-4, atol=1e-4)


def test_a_worker_whose_gradients_are_not_finite_takes_part_in_the_exchange(pair: Workers) -> None:
    """With a gradient scaler, whose scales then differ."""
    pair.use(lambda: nn.Linear(3, 1, bias=False))
    pair.synchronise(lr=0.5)
    start = pair.models[0].weight.detach().clone()

    def act(rank: int) -> tuple[float, torch.Tensor]:
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        model, optimizer = pair.models[rank], pair.optimizers[rank]
        for step in range(2):
            optimizer.zero_grad()
            inputs = torch.full((1, 3), float("inf") if rank == 1 and step == 0 else 1.0)
            scaler.scale(model(inputs).sum()).backward()
            if step:
                scaler.unscale_(optimizer)
                assert torch.equal(model.weight.grad, torch.ones(1, 3))
            scaler.step(optimizer)
            scaler.update()
        return scaler.get_scale(), model.weight.detach().clone()

    (scale, weight), (lower, other) = pair.all(act)
    assert (scale, lower) == (1024, 512)
    # Rank 0 has gone 0.5 down, rank 1 not; then both by 0.5, and rank 0 by its momentum as well.
    torch.testing.assert_close(weight, start - 0.25 - (0.75 + 0.5) / 2)
    assert torch.equal(weight, other)


def test_statistics_of_batch_norm_are_averaged_and_counts_stay(pair: Workers) -> None:
    def act(rank: int) -> tuple[torch.Tensor, int]:
        norm = pair.models[rank][1]
        pair.models[rank](torch.full((4, 2), float(rank)) + torch.eye(4)[:, :2]).sum().backward()
        if rank:
            norm.num_batches_tracked += 5
        own = dict.__getitem__(norm._buffers, "running_mean").clone()
        pair.optimizers[rank].step()
        return own, int(norm.num_batches_tracked)

    for averaged in (True, False):
        pair.use(lambda: nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)))
        # The outer optimizer would go half the way.
        pair.synchronise(LocalSgd(1, 0.5), average_buffers=averaged)
        (first, count), (second, other) = pair.all(act)
        assert (count, other) == (1, 6)
        assert not torch.equal(first, second)
        expected = [(first + second) / 2] * 2 if averaged else [first, second]
        for model, mean in zip(pair.models, expected, strict=True):
            torch.testing.assert_close(model[1].running_mean, mean)


def test_narrow_parameters_are_averaged_as_float32(pair: Workers) -> None:
    pair.use(lambda: nn.Linear(3, 2).to(torch.bfloat16))
    pair.synchronise()
    with torch.no_grad():
        pair.models[0].weight.fill_(1.0)
        pair.models[1].weight.fill_(1.03125)
    pair.all(lambda rank: pair.optimizers[rank].step())
    for model in pair.models:
        assert model.weight.dtype == torch.bfloat16
        assert (model.weight.float() == 1.015625).all()


def test_an_optimizer_that_evaluates_several_times_is_as_good_as_another(pair: Workers) -> None:
    """LBFGS, which a global step can't have."""
    pair.use(lambda: nn.Linear(3, 1, bias=False))

    def act(rank: int) -> float:
        model = pair.models[rank]
        inner = torch.optim.LBFGS(model.parameters(), lr=0.5)
        optimizer = gradlane.torch.synchronise(model, inner, pair.sessions[rank], LocalSgd(2))

        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            loss = (model.weight - 3 - rank).square().sum()
            loss.backward()
            return loss

        for _ in range(20):
            optimizer.step(closure)
        optimizer.close()
        return float(model.weight.detach().mean())

    assert pair.all(act) == pytest.approx([3.5, 3.5], abs=0.1)


def test_closed_it_leaves_an_ordinary_model(pair: Workers) -> None:
    pair.synchronise()
    pair.train(range(2))
    pair.all(lambda rank: pair.optimizers[rank].close())
    for rank, optimizer in enumerate(pair.optimizers):
        assert type(pair.models[rank][0]._parameters) is dict
        with pytest.raises(RuntimeError, match="was closed"):
            optimizer.step()
        pair.models[rank](torch.ones(1, 4)).sum().backward()
        optimizer._inner.step()
    pair.synchronise("diloco")
    pair.train(range(2))


def test_the_sessions_end_finishes_what_is_due(agents: list[Agent], tmp_path: Path) -> None:
    workers = connect(agents[:2], job_file(tmp_path / "job.toml", agents[:2]))
    workers.synchronise()
    workers.train(range(1))
    workers.all(lambda rank: workers.sessions[rank].close())
    assert all(type(model[2]._parameters) is dict for model in workers.models), "reading them would wait"
    first, second = workers.parameters()
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    workers.models[0](torch.ones(1, 4)).sum().backward()


def test_what_can_not_be_done_is_refused_by_name(pair: Workers) -> None:
    model, session = pair.models[0], pair.sessions[0]

    def refused(error: type[Exception], words: str, model: Any, parameters: Any, scheme: Any = "ds-sync") -> None:
        with pytest.raises(error, match=words):
            gradlane.torch.synchronise(model, torch.optim.SGD(parameters, lr=0.1), session, scheme)

    wrapped = DistributedDataParallel.__new__(DistributedDataParallel)
    nn.Module.__init__(wrapped)
    wrapped.module = model
    refused(
        ValueError, "DistributedDataParallel, which averages gradients: pass its module", wrapped, model.parameters()
    )
    refused(ValueError, "1 parameters that are not the model's", model, [nn.Parameter(torch.ones(1))])
    meta = nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1, device="meta"))
    refused(ValueError, "are on cpu, meta: a scheme needs them on one device", meta, meta.parameters())
    refused(ValueError, "no parameters that need gradients", *_frozen())
    refused(JobError, "sync: is missing", model, model.parameters(), None)
    overlapped = pair.all(
        lambda rank: gradlane.torch.overlap(
            pair.models[rank], torch.optim.SGD(pair.models[rank].parameters()), pair.sessions[rank]
        )
    )
    with pytest.raises(ValueError, match="a OverlappedOptimizer already: close"):
        gradlane.torch.synchronise(model, overlapped[0], session, "ds-sync")
    refused(ValueError, "goes with another optimizer of overlap.. or synchronise.. already", model, model.parameters())


@pytest.mark.parametrize("original", [False, True])
def test_a_sharded_model_is_refused_before_its_parts_are_overwritten(pair: Workers, original: bool) -> None:
    from torch.distributed.fsdp import FullyShardedDataParallel  # it takes longer to import than these tests

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        cpu = torch.device("cpu")
        model = FullyShardedDataParallel(nn.Linear(2, 2), device_id=cpu, use_orig_params=original)
        for wrap in (gradlane.torch.overlap, functools.partial(gradlane.torch.synchronise, scheme="ds-sync")):
            with pytest.raises(ValueError, match=r"sharded .FSDP, DTensor.: each worker must have a whole model"):
                wrap(model, torch.optim.SGD(model.parameters(), lr=0.1), pair.sessions[0])
    finally:
        dist.destroy_process_group()


@pytest.mark.parametrize("scheme", ["ds-sync", "acco"])
def test_a_parameter_that_was_frozen_may_not_learn_for_itself(pair: Workers, scheme: str) -> None:
    for model in pair.models:
        model[1].weight.requires_grad_(False)
    pair.synchronise(scheme)
    pair.train(range(1))
    for model in pair.models:
        model[1].weight.requires_grad_(True)
    with pytest.raises(RuntimeError, match=r"parameter 1.weight was frozen when the optimizer was wrapped"):
        pair.train(range(1, 2))


@pytest.mark.parametrize("scheme", [DsSync(), DsSync("pairs", delay=1), AdPsgd(), Ringmaster(), RFast(), Acco()])
def test_masks_are_no_statistics(pair: Workers, scheme: Scheme) -> None:
    """Infinity less infinity is no number."""

    def masked() -> Any:
        model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
        model.register_buffer("mask", torch.full((4, 4), -math.inf).triu(1))
        return model

    pair.use(masked)
    pair.synchronise(scheme)
    pair.train(range(4))
    pair.all(lambda rank: pair.optimizers[rank].average())
    for model in pair.models:
        assert torch.equal(model.mask, masked().mask)
        assert not torch.equal(model[1].running_mean, torch.zeros(4))
        assert all(value.isfinite().all() for value in (*model.parameters(), model[1].running_mean))


def test_closed_it_is_forgotten(pair: Workers) -> None:
    pair.synchronise()
    pair.train(range(2))
    pair.all(lambda rank: pair.optimizers[rank].close())
    kept = [weakref.ref(optimizer) for optimizer in pair.optimizers]
    pair.optimizers.clear()
    gc.collect()
    assert [it() for it in kept] == [None, None]


def test_wrong_use_is_refused_with_what_to_do(pair: Workers) -> None:
    pair.use(lambda: nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)))
    pair.synchronise()
    taken = [list(model.parameters()) for model in pair.models]

    def act(rank: int) -> None:
        model, optimizer = pair.models[rank], pair.optimizers[rank]
        optimizer.step()
        with pytest.raises(RuntimeError, match=r"0.weight was used before its exchange.*synchronize\(\)"):
            (taken[rank][0] * 2).sum().backward()
        optimizer.synchronize()
        with pytest.raises(ValueError, match="wrap it again"):
            optimizer.add_param_group({"params": []})
        optimizer.load_state_dict(optimizer._inner.state_dict())  # one that has no state of the scheme
        assert optimizer._worker.step == 1
        model[1].running_mean = torch.zeros(5)
        with pytest.raises(RuntimeError, match="buffers had 4 floats, and now have 7"):
            optimizer.step()

    pair.all(act)


def _frozen() -> tuple[nn.Module, Any]:
    model = nn.Linear(2, 2).requires_grad_(False)
    return model, model.parameters()
