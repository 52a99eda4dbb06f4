# SPDX-License-Identifier: Apache-2.0
"""Two workers by Gradlane learn as the framework's own distribution does, or one process with the mean gradient."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.frameworks.ranks import needs, run, within
from tests.support.agents import loopback
from tests.support.members import job_file
from tests.support.ports import free_ports


@pytest.fixture
def job(tmp_path: Path) -> Path:
    return job_file(tmp_path, loopback(2), lines="[loss]\npush = 0.0\n")


@needs("tensorflow")
@pytest.mark.parametrize("arm", ["eager", "function"])
def test_tensorflow_learns_bit_for_bit_as_one_process_with_the_mean_gradient(arm: str, job: Path) -> None:
    ours = run("worker_tensorflow", arm, **within(job))
    assert ours[0]["parameters"] == ours[1]["parameters"]
    assert ours[0]["losses"][-1] < 0.7 * ours[0]["losses"][0]
    [alone] = run("worker_tensorflow", "alone", ranks=1)
    assert (ours[0]["losses"], ours[0]["parameters"]) == (alone["losses"], alone["parameters"])


@needs("tensorflow")
def test_tensorflow_learns_bit_for_bit_as_its_own_strategy(job: Path) -> None:
    ours = run("worker_tensorflow", "function", **within(job))
    workers = [f"127.0.0.1:{port}" for port in free_ports(2)]
    theirs = run("worker_tensorflow", "strategy", WORKERS=json.dumps(workers))
    assert ours == theirs


@needs("jax", "optax")
@pytest.mark.parametrize("arm", ["eager", "jit", "callback", "optax"])
def test_jax_learns_bit_for_bit_as_one_process_with_the_mean_gradient(arm: str, job: Path) -> None:
    ours = run("worker_jax", arm, **within(job))
    assert ours[0]["parameters"] == ours[1]["parameters"]
    assert ours[0]["losses"][-1] < 0.7 * ours[0]["losses"][0]
    [alone] = run("worker_jax", "alone", ranks=1)
    assert (ours[0]["losses"], ours[0]["parameters"]) == (alone["losses"], alone["parameters"])


@needs("jax")
def test_jax_distributed_says_which_rank_a_process_is(job: Path) -> None:
    [port] = free_ports(1)
    first, second = run("worker_jax", "jit", COORDINATOR=f"127.0.0.1:{port}", **within(job))
    assert first["parameters"] == second["parameters"]


@needs("jax", "optax")
def test_jax_reduces_every_kind_of_tree_in_the_order_of_the_program(job: Path) -> None:
    run("worker_trees", **within(job))


@needs("mxnet")
def test_mxnet_learns_bit_for_bit_as_one_process_with_the_mean_gradient(job: Path) -> None:
    ours = run("worker_mxnet", "trainer", **within(job))
    assert ours[0]["parameters"] == ours[1]["parameters"]
    assert ours[0]["losses"][-1] < 0.7 * ours[0]["losses"][0]
    [alone] = run("worker_mxnet", "alone", ranks=1)
    assert (ours[0]["losses"], ours[0]["parameters"]) == (alone["losses"], alone["parameters"])


@needs("keras")
@pytest.mark.parametrize("backend", [pytest.param(name, marks=needs(name)) for name in ("tensorflow", "torch", "jax")])
def test_keras_learns_as_one_process_with_all_examples(backend: str, job: Path) -> None:
    ours = run("worker_keras", "fit", KERAS_BACKEND=backend, **within(job))
    assert ours[0] == ours[1]  # the replicas are the same, and the metrics were averaged
    [alone] = run("worker_keras", "alone", ranks=1, KERAS_BACKEND=backend)
    np.testing.assert_allclose(ours[0]["losses"], alone["losses"], rtol=1e-5)
    assert alone["losses"][-1] < 0.7 * alone["losses"][0]


@needs("tensorflow", "torch")  # in the environment of frameworks alone: tests/gradlane/torch has more of it
def test_torch_learns_bit_for_bit_as_over_gloo(job: Path, tmp_path: Path) -> None:
    ours, theirs = (run("worker_torch", arm, STORE=str(tmp_path / arm), **within(job)) for arm in ("hook", "gloo"))
    assert ours == theirs
    assert ours[0]["parameters"] == ours[1]["parameters"]


@needs("tensorflow")
def test_tensorflow_has_means_of_every_kind_of_gradient_and_values_of_every_kind_of_variable(job: Path) -> None:
    run("worker_types", **within(job))


@needs("tensorflow")
def test_keras_says_what_is_not_fit_for_several_ranks_and_skips_the_same_steps_at_all(job: Path) -> None:
    first, second = run("worker_fit", KERAS_BACKEND="tensorflow", **within(job))
    assert first == second


@needs("keras")
@pytest.mark.parametrize("backend", [pytest.param(name, marks=needs(name)) for name in ("tensorflow", "jax")])
def test_gradients_leave_as_the_backward_pass_makes_them_the_last_layers_first(backend: str, job: Path) -> None:
    for rank in run("worker_overlap", KERAS_BACKEND=backend, **within(job)):
        assert 0.2 < rank["part"] < 1  # of the step; after the backward pass it would be the time of a few copies
