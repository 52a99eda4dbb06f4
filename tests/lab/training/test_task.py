# SPDX-License-Identifier: Apache-2.0
"""Data and models: what must be the same in every arm, and of the size that the experiment needs."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lab.training import data
from lab.training.data import Sampler
from lab.training.models import TASKS

torch.set_num_threads(1)  # as the workers do: more threads only wait for each other on a busy machine


@given(batch=st.integers(1, 20), world=st.integers(1, 8), examples=st.integers(1, 100), seed=st.integers(0, 2**31 - 1))
def test_workers_walk_through_the_examples_together(batch: int, world: int, examples: int, seed: int) -> None:
    samplers = [Sampler(examples, batch, rank, world, seed) for rank in range(world)]
    steps = 2 * examples // (batch * world) + 1
    taken = np.concatenate([sampler.indices(step) for step in range(steps) for sampler in samplers])
    whole = len(taken) // examples * examples
    for epoch in taken[:whole].reshape(-1, examples):
        assert sorted(epoch) == list(range(examples))
    assert set(taken[whole:]) <= set(range(examples))
    assert len(set(taken[whole:])) == len(taken[whole:])


def test_the_order_depends_on_seed_and_step_alone() -> None:
    forward, again = Sampler(1000, 16, 1, 4, seed=3), Sampler(1000, 16, 1, 4, seed=3)
    steps = [forward.indices(step) for step in range(40)]
    for step in reversed(range(40)):
        np.testing.assert_array_equal(again.indices(step), steps[step])
    assert not np.array_equal(Sampler(1000, 16, 1, 4, seed=4).indices(0), steps[0])


def test_digits_are_scikit_learns() -> None:
    from sklearn.datasets import load_digits

    ours, theirs = data.digits(), load_digits()
    images = np.concatenate([ours.test_inputs, ours.train_inputs]).reshape(-1, 64) * 16
    labels = np.concatenate([ours.test_targets, ours.train_targets])
    pairs = np.column_stack([images, labels])
    expected = np.column_stack([theirs.data, theirs.target])
    np.testing.assert_array_equal(pairs[np.lexsort(pairs.T)], expected[np.lexsort(expected.T)])
    assert len(ours.test_targets) == 360


def test_language_targets_are_the_next_bytes() -> None:
    text = data.language_reference()
    np.testing.assert_array_equal(text.train_inputs[:, 1:], text.train_targets[:, :-1])
    np.testing.assert_array_equal(text.train_inputs[1:, 0], text.train_targets[:-1, -1])
    assert len(text.train_inputs) > 5000
    assert not {bytes(row) for row in text.test_inputs.astype(np.uint8)} <= {
        bytes(row) for row in text.train_inputs.astype(np.uint8)
    }


@pytest.mark.parametrize(("name", "width"), [("cnn", 256), ("transformer", 96)])
def test_a_gradient_takes_long_enough_on_the_wire(name: str, width: int) -> None:
    model = TASKS[name].build(width)
    size = 4 * sum(parameter.numel() for parameter in model.parameters())
    assert 1_000_000 < size < 2_500_000
    assert 4 * sum(p.numel() for p in TASKS[name].build(2 * width).parameters()) > 1.5 * size


@pytest.mark.parametrize(("name", "width"), [("cnn", 32), ("transformer", 16)])
def test_a_model_starts_equal_and_learns(name: str, width: int) -> None:
    task = TASKS[name]
    dataset = task.load()
    torch.manual_seed(1)
    model = task.build(width)
    torch.manual_seed(1)
    twin = task.build(width)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), twin.parameters(), strict=True))
    optimizer = torch.optim.Adam(model.parameters(), lr=task.learning_rate)
    sampler = Sampler(len(dataset.train_inputs), 32, 0, 1, seed=1)
    test = torch.from_numpy(dataset.test_inputs), torch.from_numpy(dataset.test_targets)
    before = task.evaluate(model, *test)
    for step in range(80):
        indices = sampler.indices(step)
        optimizer.zero_grad()
        examples = torch.from_numpy(dataset.train_inputs[indices]), torch.from_numpy(dataset.train_targets[indices])
        task.loss(model, *examples).backward()
        optimizer.step()
    after = task.evaluate(model, *test)
    assert not task.reached(before)
    if task.metric == "accuracy":
        assert after > before + 0.3
    else:
        assert after < before - 1.5


def test_the_learning_rate_rises_and_then_falls_to_nothing() -> None:
    task = TASKS["cnn"]
    rates = [task.rate(step, 100) for step in range(100)]
    top = rates.index(max(rates))
    assert top == task.warmup
    assert rates[: top + 1] == sorted(rates[: top + 1])
    assert rates[top:] == sorted(rates[top:], reverse=True)
    assert 0.9 * task.learning_rate < rates[top] <= task.learning_rate
    assert rates[-1] < 0.01 * task.learning_rate


def test_transformer_sees_no_later_byte() -> None:
    model = TASKS["transformer"].build(16)
    inputs = torch.randint(0, 256, (1, data.CONTEXT))
    changed = inputs.clone()
    changed[0, 20:] = (changed[0, 20:] + 1) % 256
    torch.testing.assert_close(model(inputs)[0, :20], model(changed)[0, :20])
    assert not torch.allclose(model(inputs)[0, 20:], model(changed)[0, 20:])
