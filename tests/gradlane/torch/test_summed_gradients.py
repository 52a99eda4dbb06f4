# SPDX-License-Identifier: Apache-2.0
"""Integers that a switch sums know neither infinity nor NaN, but all workers see those of any. It needs root."""

import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

from gradlane.torch.bucket import Bucket
from tests.gradlane.sums.test_summed_jobs import SUMS, TRANSPORT
from tests.gradlane.torch.schemes.synchronised_workers import Workers, connect
from tests.support import members
from tests.support.needs import needs, needs_root
from tests.support.sum_relay import SumLan

pytestmark = [needs_root, needs("ethtool")]

HOSTS = 3


@pytest.fixture(scope="module", name="joined")
def _joined(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workers]:
    folder = tmp_path_factory.mktemp("summed")
    with SumLan(HOSTS) as lan, lan.agents(folder) as hosts, lan.switch(SUMS):
        workers = connect(hosts, members.job_file(folder, lan.addresses, lines=TRANSPORT))
        yield workers
        workers.all(lambda rank: workers.sessions[rank].close())


@pytest.fixture(name="workers")
def _workers(joined: Workers) -> Workers:
    """With new models that their sessions know."""
    joined.use(lambda: nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)))
    for session, model in zip(joined.sessions, joined.models, strict=True):
        session.watch(model)
    return joined


def test_what_is_finite_is_no_less_so_where_its_sum_is_not(workers: Workers) -> None:
    def mean(rank: int) -> torch.Tensor:
        bucket = workers.sessions[rank].bucket(list(workers.models[rank][0].parameters()))
        operation = bucket.start([torch.full(p.shape, 0.0 if rank else 2e38) for p in bucket.parameters])
        operation.wait(30)
        return torch.cat([part.reshape(-1) for part in bucket.means()])

    for found in workers.all(mean):
        torch.testing.assert_close(found, torch.full_like(found, 2e38 / len(workers.sessions)))


def test_what_is_not_finite_at_one_worker_is_nan_at_all_and_the_next_step_is_as_ever(workers: Workers) -> None:
    layers = [[list(part.parameters()) for part in model] for model in workers.models]
    buckets: list[list[Bucket]] = workers.all(
        lambda rank: [workers.sessions[rank].bucket(members) for members in layers[rank]]
    )

    def step(rank: int, number: int, bad: dict[int, float]) -> list[list[float]]:
        """The means of three buckets at once; in the second one, the worker's gradient has its `bad` value."""
        operations: list[Any] = []
        for k, bucket in enumerate(buckets[rank]):
            gradients = [torch.full(p.shape, float(rank + number)) for p in bucket.parameters]
            if k == 1 and rank in bad:
                gradients[0][2, 3] = bad[rank]
            operations.append(bucket.start(gradients))
        for operation in operations:
            operation.wait(30)
            assert operation.done()
        return [torch.cat([mean.reshape(-1) for mean in bucket.means()]).tolist() for bucket in buckets[rank]]

    counts = [session.statistics() for session in workers.sessions]
    cases: list[dict[int, float]] = [{}, {}, {1: math.nan}, {0: math.inf, 2: -math.inf}, {2: -math.inf}, {}, {}]
    for number, bad in enumerate(cases):
        for first, second, third in workers.all(lambda rank, number=number, bad=bad: step(rank, number, bad)):
            assert first == third == [1.0 + number] * 20
            assert all(map(math.isnan, second)) if bad else second == [1.0 + number] * 20
    for session, before in zip(workers.sessions, counts, strict=True):
        summed = session.statistics()["summed_bytes"] - before["summed_bytes"]
        assert summed == (len(cases) - 1) * 3 * 21 * 4  # the first step is by hosts; an element says what is finite


def test_a_scaler_skips_the_step_at_all_workers(workers: Workers) -> None:
    """As over any other all-reduce, and with the scale halved alike."""

    def train(rank: int) -> tuple[list[float], list[bool]]:
        model, scaler = workers.models[rank], torch.amp.GradScaler("cpu", init_scale=8.0)
        bucket = workers.sessions[rank].bucket(list(model.parameters()))
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        scales: list[float] = []
        moved: list[bool] = []
        for number in range(4):
            optimizer.zero_grad()
            scaler.scale(model(torch.ones(2, 4)).sum()).backward()
            if number == 2 and rank == 1:
                next(model.parameters()).grad[0, 0] = math.inf
            bucket.start([p.grad for p in bucket.parameters]).wait(30)
            for parameter, mean in zip(bucket.parameters, bucket.means(), strict=True):
                parameter.grad = mean.clone()
            before = [p.detach().clone() for p in model.parameters()]
            scaler.step(optimizer)
            scaler.update()
            scales.append(scaler.get_scale())
            moved.append(any(not torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True)))
        return scales, moved

    for scales, moved in workers.all(train):
        assert scales == [8.0, 8.0, 4.0, 4.0]
        assert moved == [True, True, False, True]


def test_what_is_owed_can_be_put_into_another_bucket(workers: Workers) -> None:
    def train(rank: int) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        parameters = list(workers.models[rank].parameters())
        bucket = workers.sessions[rank].bucket(parameters)
        for _ in range(2):
            bucket.start([torch.rand(p.shape) for p in parameters]).wait(30)
        owed = bucket.residuals()
        another = workers.sessions[rank].bucket(parameters)
        another.load_residuals(owed)
        return owed, another.residuals()

    for owed, found in workers.all(train):
        assert any(part.any() for part in owed)
        assert [part.shape for part in owed] == [part.shape for part in found]
        assert all(map(torch.equal, owed, found))
