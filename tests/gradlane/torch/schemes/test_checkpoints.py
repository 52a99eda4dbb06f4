# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of a training by a scheme: as README has it, whoever loads them when, and which are refused."""

import copy
import io
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from gradlane.client.handle import Handle
from gradlane.sync import Acco, AdPsgd, DsSync, LocalSgd, RFast, Ringmaster, Ripples, Scheme
from tests.gradlane.torch.ranks import job_file
from tests.gradlane.torch.schemes.synchronised_workers import Workers, connect
from tests.support.agents import Agent

SCHEMES = [
    DsSync(),
    DsSync("pairs", 1),
    LocalSgd(4),
    LocalSgd(4, 0.7, 0.9, 2, 2, 0.5),
    Acco(),
    Ripples(2),
    AdPsgd(),
    Ringmaster(8),
    RFast(),
]


def network() -> nn.Module:
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 4))


def joined(agents: list[Agent], folder: Path, scheme: Scheme, **options: Any) -> Workers:
    workers = connect(agents, job_file(folder / f"{len(agents)}.toml", agents))
    workers.use(network)
    workers.synchronise(scheme, **options)
    return workers


def train(workers: Workers, rank: int, steps: range) -> None:
    for step in steps:
        inputs = torch.randn(8, 4, generator=torch.Generator().manual_seed(100 * rank + step))
        workers.optimizers[rank].zero_grad()
        workers.models[rank](inputs).sub(1).square().mean().mul(0.1).backward()
        workers.optimizers[rank].step()


def saved(workers: Workers, rank: int) -> Any:
    """In the order of the documentation, each as it is then."""
    return copied(workers.models[rank].state_dict()), copied(workers.optimizers[rank].state_dict())


def copied(state: Any) -> Any:
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file)


def load(workers: Workers, rank: int, state: Any) -> None:
    state = copied(state)  # or torch's optimizers would go on in it
    workers.models[rank].load_state_dict(state[0])
    workers.optimizers[rank].load_state_dict(state[1])


def values(model: nn.Module) -> list[torch.Tensor]:
    return [value.clone() for value in model.state_dict().values()]


def equal(first: list[torch.Tensor], second: list[torch.Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.fixture
def pair(agents: list[Agent], tmp_path: Path) -> Iterator[Workers]:
    """It must be fit to leave the job at the end of a test."""
    workers = joined(agents[:2], tmp_path, DsSync(delay=1))
    yield workers
    workers.all(lambda rank: workers.sessions[rank].close())


@pytest.mark.parametrize("scheme", SCHEMES[:5], ids=repr)
def test_a_restored_run_equals_the_one_that_has_saved(agents: list[Agent], tmp_path: Path, scheme: Scheme) -> None:
    workers = joined(agents[:3], tmp_path, scheme, bucket_bytes=80)

    def saves(rank: int) -> Any:
        train(workers, rank, range(4))
        state = saved(workers, rank)
        train(workers, rank, range(4, 10))
        return state, values(workers.models[rank])

    found = workers.all(saves)
    workers.all(lambda rank: workers.sessions[rank].close())
    workers = joined(agents[:3], tmp_path, scheme, bucket_bytes=80)

    def restored(rank: int) -> bool:
        state, expected = found[rank]
        load(workers, rank, state)
        train(workers, rank, range(4, 10))
        return equal(values(workers.models[rank]), expected)

    assert all(workers.all(restored))
    workers.all(lambda rank: workers.sessions[rank].close())


@pytest.mark.parametrize("scheme", SCHEMES, ids=repr)
@pytest.mark.parametrize(("before", "after", "saving"), [(3, 2, 0), (2, 3, 1)])
def test_another_number_of_workers_goes_on_from_what_one_has_saved_after_an_average(
    agents: list[Agent], tmp_path: Path, scheme: Scheme, before: int, after: int, saving: int
) -> None:
    """What an elastic restart needs."""
    workers = joined(agents[:before], tmp_path, scheme)

    def begin(rank: int) -> Any:
        train(workers, rank, range(5))
        workers.optimizers[rank].average()
        return saved(workers, rank)

    state = workers.all(begin)[saving]
    workers.all(lambda rank: workers.sessions[rank].close())
    more = joined(agents[:after], tmp_path, scheme)

    def go_on(rank: int) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        load(more, rank, state)
        more.optimizers[rank].average()
        first = values(more.models[rank])
        train(more, rank, range(5, 12))
        more.optimizers[rank].average()
        return first, values(more.models[rank])

    results = more.all(go_on)
    for first, last in results:
        for value, expected in zip(first, state[0].values(), strict=True):
            torch.testing.assert_close(value, expected)
        assert not torch.equal(last[0], first[0])
        for value, same in zip(last, results[0][1], strict=True):
            torch.testing.assert_close(value, same)
    more.all(lambda rank: more.sessions[rank].close())


@pytest.mark.parametrize("scheme", [*SCHEMES[:6], Ripples(2, delay=1)], ids=repr)
@pytest.mark.parametrize("steps", [3, 4])
def test_a_job_that_goes_back_has_what_was_saved(
    agents: list[Agent], tmp_path: Path, scheme: Scheme, steps: int
) -> None:
    """And not a mean with what was in flight; nor does anybody wait for who loads."""
    workers = joined(agents[:2], tmp_path, scheme)

    def act(rank: int) -> bool:
        model, optimizer = workers.models[rank], workers.optimizers[rank]
        train(workers, rank, range(4))
        state = saved(workers, rank)
        results: list[list[torch.Tensor]] = []
        for _ in range(2):
            train(workers, rank, range(20, 20 + steps))
            load(workers, rank, state)
            assert equal(values(model), list(state[0].values()))
            train(workers, rank, range(4, 8))
            results.append(values(model))
        optimizer.average()
        return equal(*results)

    assert all(workers.all(act)) or isinstance(scheme, Ripples)  # who meets whom is chance
    workers.all(lambda rank: workers.sessions[rank].close())


def test_a_state_that_does_not_fit_changes_nothing(pair: Workers) -> None:
    pair.all(lambda rank: pair.optimizers[rank].close())
    pair.synchronise(LocalSgd(2, 0.7, 0.9))
    pair.all(lambda rank: train(pair, rank, range(3)))
    for rank in range(2):
        optimizer = pair.optimizers[rank]
        before = copied(optimizer.state_dict())

        def refused(words: str, state: Any, optimizer: Any = optimizer, before: Any = before) -> None:
            with pytest.raises(ValueError, match=words):
                optimizer.load_state_dict(state)
            after = optimizer.state_dict()
            assert str(after) == str(before)

        for cast, name in ((torch.float16, "float16"), (torch.float64, "float64")):
            narrow = copied(before)
            arrays = narrow["synchronisation"]["arrays"]["float32"]
            arrays["start"] = arrays["start"].to(cast)
            narrow["synchronisation"]["step"] = 9
            narrow["param_groups"][0]["lr"] = 9.0
            refused(f"{name}: here are 48 values of float32", narrow)
        other = copied(before)
        other["synchronisation"]["step"] = 9
        other["param_groups"] *= 2
        refused("parameter group", other)
        optimizer.load_state_dict(before)


def test_what_the_network_owes_goes_on_with_its_own_host_alone(agents: list[Agent], tmp_path: Path) -> None:
    """If all took it over, it would count once for each. Nothing is lost on loopback, so it is put there."""
    workers = connect(agents[:2], job_file(tmp_path / "job.toml", agents[:2], push="0.1"))
    workers.use(network)
    workers.synchronise(Acco())
    workers.all(lambda rank: train(workers, rank, range(2)))
    state = workers.all(lambda rank: workers.optimizers[rank].state_dict())[0]
    assert state["synchronisation"]["owed"] == {}
    expected = state["synchronisation"]["owed"]["0.weight"] = torch.arange(1.0, 17.0)
    for optimizer in workers.optimizers:
        optimizer.load_state_dict(state)
    first, second = (optimizer.state_dict()["synchronisation"]["owed"] for optimizer in workers.optimizers)
    assert torch.equal(first["0.weight"], expected)
    assert second == {}
    state["synchronisation"]["owed"] = {"0.weight": torch.ones(15)}
    with pytest.raises(ValueError, match=r"owed of this state has 15 elements for 0.weight: it has 16 here"):
        workers.optimizers[0].load_state_dict(state)
    state["synchronisation"]["owed"] = {"7.weight": torch.ones(15)}
    with pytest.raises(ValueError, match=r"for 7.weight: the model has no such parameter"):
        workers.optimizers[0].load_state_dict(state)
    workers.all(lambda rank: workers.sessions[rank].close())


def test_closed_it_neither_saves_nor_loads(pair: Workers) -> None:
    """A state without the scheme's arrays would look like one."""
    state = pair.all(lambda rank: pair.optimizers[rank].state_dict())
    pair.all(lambda rank: pair.optimizers[rank].close())
    for optimizer in pair.optimizers:
        for use in (optimizer.state_dict, lambda: optimizer.load_state_dict(state[0]), optimizer.average):  # noqa: B023
            with pytest.raises(RuntimeError, match="was closed: save and average before"):
                use()


@pytest.mark.parametrize("scheme", [DsSync(), DsSync(delay=1), Acco()], ids=repr)
def test_an_interrupted_wait_does_not_lose_the_exchange(
    agents: list[Agent], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheme: Scheme
) -> None:
    workers = joined(agents[:2], tmp_path, scheme)
    waits, interrupt = Handle.wait, threading.Event()

    def wait(handle: Handle, timeout: float | None = None) -> None:
        if interrupt.is_set():
            raise KeyboardInterrupt
        waits(handle, timeout)

    monkeypatch.setattr(Handle, "wait", wait)
    workers.all(lambda rank: train(workers, rank, range(2)))
    interrupt.set()
    for optimizer in workers.optimizers:
        with pytest.raises(KeyboardInterrupt):
            optimizer.synchronize()
    interrupt.clear()
    first, second = workers.all(lambda rank: values(workers.models[rank]))
    for a, b in zip(first, second, strict=True):  # two, which average with one another
        torch.testing.assert_close(a, b)
    workers.all(lambda rank: workers.sessions[rank].close())


class Elsewhere(torch.Tensor):
    """As one on an accelerator, to which torch.load may put a checkpoint."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.numpy:
            raise TypeError("can't convert a tensor of another device to numpy")
        if func is torch.Tensor.cpu:
            return args[0].as_subclass(torch.Tensor)
        return super().__torch_function__(func, types, args, kwargs or {})


def test_a_checkpoint_may_be_loaded_to_an_accelerator(pair: Workers) -> None:
    pair.all(lambda rank: pair.optimizers[rank].close())
    pair.synchronise(LocalSgd(2))
    for optimizer in pair.optimizers:
        state = optimizer.state_dict()
        arrays = state["synchronisation"]["arrays"]["float32"]
        expected = arrays["start"] + 1
        arrays["start"] = expected.clone().as_subclass(Elsewhere)
        optimizer.load_state_dict(state)
        assert torch.equal(optimizer.state_dict()["synchronisation"]["arrays"]["float32"]["start"], expected)


def test_a_copy_of_the_model_is_an_ordinary_one(pair: Workers) -> None:
    """Saving it waits for nothing, and as a whole it can be saved."""
    copies = [copy.deepcopy(model) for model in pair.models]
    pair.all(lambda rank: train(pair, rank, range(1)))
    for parcels in (optimizer._parcels.values() for optimizer in pair.optimizers):
        assert all(parcel.due is not None for parcel in parcels)
    for model in copies:
        model.state_dict()
        torch.save(model, io.BytesIO())
    for parcels in (optimizer._parcels.values() for optimizer in pair.optimizers):
        assert all(parcel.due is not None for parcel in parcels)
    for model in pair.models:
        torch.save(model, io.BytesIO())
