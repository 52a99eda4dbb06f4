# SPDX-License-Identifier: Apache-2.0
"""Means of a model's gradients, in buckets, as every framework uses them."""

import gc
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gradlane.client.communicator import Communicator
from gradlane.data_parallel.bucket import neighbours
from gradlane.data_parallel.model import Form, Models
from gradlane.errors import AgentError
from tests.gradlane.sums.test_summed_jobs import SUMS, TRANSPORT
from tests.support import members
from tests.support.agents import Agent
from tests.support.communicators import Ranks, each, job_file, join, joined
from tests.support.needs import needs, needs_root
from tests.support.sum_relay import SumLan

F32 = np.dtype(np.float32)


class Variable:
    """What a framework's gradient belongs to."""


@pytest.fixture(name="ranks")
def _ranks(hosts: list[Agent], tmp_path: Path) -> Iterator[Ranks]:
    with joined(hosts, job_file(tmp_path, 2, loss="push = 0.0"), 2) as ranks:
        yield ranks


def test_neighbours_travel_together_from_the_last_one_on_and_no_bias_is_alone() -> None:
    weight_and_bias = [1000, 10] * 3
    assert neighbours(["f"] * 6, weight_and_bias, 1000) == [range(2), range(2, 4), range(4, 6)]
    assert neighbours(["f"] * 6, weight_and_bias, 1011) == [range(3), range(3, 6)]
    assert neighbours(["f", "f", "h", "f"], [1] * 4, 100) == [range(2), range(2, 3), range(3, 4)]
    assert neighbours([], [], 100) == []


def test_gradients_of_all_types_become_means_and_those_that_are_not_there_stay_away(ranks: Ranks) -> None:
    def work(rank: int) -> None:
        models = Models(ranks[rank].connection, 1000)
        gradients: list[Any] = [
            np.full((10, 30), rank, np.float32),
            None,
            np.full(3, 2 * rank, np.float16),
            np.zeros((0, 4), np.float32),
            np.array(float(rank)),
            np.full((30, 10), 4.0 * rank, np.float32).T,  # not contiguous
        ]
        forms = [None if value is None else Form(value.shape, value.dtype) for value in gradients]
        owners = [Variable() for _ in gradients]
        for step in range(3):
            model = models.of(owners, forms)
            means = model.means_of_arrays(
                [None if value is None else value + value.dtype.type(step) for value in gradients]
            )
            assert means[1] is None
            assert [m.dtype for m in means if m is not None] == [form.dtype for form in forms if form is not None]
            assert [m.shape for m in means if m is not None] == [form.shape for form in forms if form is not None]
            values = [float(m.flat[0]) for m in means if m is not None and m.size]
            assert values == [0.5 + step, 1.0 + step, 0.5 + step, 2.0 + step]
            assert all((m == m.flat[0]).all() for m in means if m is not None and m.size)

    each(range(2), work)


def test_a_model_is_known_by_its_variables_and_given_back_when_they_are_gone(ranks: Ranks) -> None:
    def work(rank: int) -> None:
        models = Models(ranks[rank].connection, 1000)
        forms = [Form((5,), F32)] * 2
        first, second = [Variable(), Variable()], [Variable(), Variable()]
        model = models.of(first, forms)
        assert models.of(first, forms) is model
        assert models.of(second, forms) is not model
        names = {bucket.name for owners in (first, second) for bucket in models.of(owners, forms).buckets}
        assert len(names) == 2
        model.means_of_arrays([np.ones(5, np.float32)] * 2)
        first.clear()
        gc.collect()
        models.of([Variable()], forms[:1])
        with pytest.raises(AgentError):  # the agent does not know it any more
            model.buckets[0].residual()
        models.of(second, forms).buckets[0].residual()

    each(range(2), work)


def test_integers_have_no_mean(ranks: Ranks) -> None:
    with pytest.raises(ValueError, match="gradients of type int32 can't be averaged"):
        Models(ranks[0].connection, 1000).of([Variable()], [Form((5,), np.dtype(np.int32))])


def test_a_step_that_was_given_up_does_not_disturb_the_next(ranks: Ranks) -> None:
    def work(rank: int) -> None:
        models, owner = Models(ranks[rank].connection, 1000), Variable()
        [bucket] = models.of([owner], [Form((5,), F32)]).buckets
        bucket.start([np.full(5, 7, np.float32)])
        bucket.start([np.full(5, rank, np.float32)])
        assert (bucket.finish()[0] == 0.5).all()
        with pytest.raises(ValueError, match="was not started"):
            bucket.finish()

    each(range(2), work)


def test_what_was_owed_goes_on_whether_its_model_is_known_by_then_or_not(hosts: list[Agent], tmp_path: Path) -> None:
    forms, owner = [Form((5,), F32)], Variable()
    owed = np.full(5, 2, np.float32)

    def work(rank: int, before: bool) -> None:
        models = Models(ranks[rank].connection, 1000)
        name = Models(ranks[rank].connection, 1000).of([owner], forms).buckets[0].name
        if before:
            models.load_residuals({name: owed})
        [bucket] = models.of([owner], forms).buckets
        if not before:
            models.load_residuals({name: owed})
        assert (models.residuals()[name] == owed).all()
        bucket.start([np.full(5, rank, np.float32)])
        assert (bucket.finish()[0] == 2.5).all()  # 0 + 2 and 1 + 2
        assert models.residuals() == {}

    with joined(hosts, job_file(tmp_path, 2, loss="push = 0.1"), 2) as ranks:
        for before in (True, False):
            each(range(2), lambda rank, before=before: work(rank, before))


@needs_root
@needs("ethtool")
def test_what_is_not_finite_at_one_worker_is_nan_at_all_where_a_switch_adds(tmp_path: Path) -> None:
    def work(communicator: Communicator) -> list[list[float]]:
        models, owners = Models(communicator.connection, 100), [Variable(), Variable()]
        found: list[list[float]] = []
        for step, bad in enumerate((0.0, 0.0, math.nan, -math.inf, 0.0)):
            gradient = np.full(40, communicator.rank + step, np.float32)
            if communicator.rank == 1:
                gradient[7] += bad
            forms = [Form((40,), F32), Form((), np.dtype(np.float64))]
            mean, double = models.of(owners, forms).means_of_arrays([gradient, np.array(0.5 * communicator.rank)])
            assert double == 0.5
            found.append(np.asarray(mean).tolist())
        return found

    with SumLan(3) as lan, lan.agents(tmp_path) as running, lan.switch(SUMS):
        ranks = join(members.job_file(tmp_path, lan.addresses, lines=TRANSPORT), running, 3)
        for steps in each(ranks, work):
            assert [steps[k] for k in (0, 1, 4)] == [[1.0 + k] * 40 for k in (0, 1, 4)]
            assert all(map(math.isnan, steps[2] + steps[3]))
        each(ranks, Communicator.close)
