# SPDX-License-Identifier: Apache-2.0
"""What fails is an error of the framework's kind that says why, as the agent says it."""

import signal
from pathlib import Path

import pytest

from tests.frameworks.ranks import needs, run_to_end, within
from tests.support.agents import loopback
from tests.support.members import job_file

# Of each arm: the program, its environment, and what kind of error ends a step.
ARMS = {
    "eager": ("worker_tensorflow", "eager", {}, "gradlane.errors.AgentError: "),
    "function": ("worker_tensorflow", "function", {}, "tensorflow.python.framework.errors_impl.UnknownError: "),
    "keras": (
        *("worker_keras", "fit", {"KERAS_BACKEND": "tensorflow"}),
        "tensorflow.python.framework.errors_impl.UnknownError: ",
    ),
    "eager jax": ("worker_jax", "eager", {}, "gradlane.errors.AgentError: "),
    "jit": ("worker_jax", "jit", {}, "jax.errors.JaxRuntimeError: INTERNAL: AgentError: "),
    "callback": ("worker_jax", "callback", {}, "jax.errors.JaxRuntimeError: "),
    "jax": ("worker_keras", "fit", {"KERAS_BACKEND": "jax"}, "jax.errors.JaxRuntimeError: "),
    "torch": ("worker_keras", "fit", {"KERAS_BACKEND": "torch"}, "gradlane.errors.AgentError: "),
    "mxnet": ("worker_mxnet", "trainer", {}, "gradlane.errors.AgentError: "),
}
NEEDS = {
    "eager": ("tensorflow",),
    "function": ("tensorflow",),
    "keras": ("keras", "tensorflow"),
    "eager jax": ("jax",),
    "jit": ("jax",),
    "callback": ("jax",),
    "jax": ("keras", "jax"),
    "torch": ("keras", "torch"),
    "mxnet": ("mxnet",),
}


@pytest.mark.parametrize(
    "arm",
    [pytest.param(arm, marks=needs(*NEEDS[arm])) for arm in ARMS],
)
def test_a_killed_worker_is_named(arm: str, tmp_path: Path) -> None:
    program, kind, environment, error = ARMS[arm]
    job = job_file(tmp_path, loopback(2), lines="[loss]\npush = 0.0\n")
    living, killed = run_to_end(program, kind, "--die", 3, **within(job), **environment)
    assert killed.returncode == -signal.SIGKILL
    assert living.returncode == 1
    assert error in living.stderr, living.stderr
    assert "rank 1 (h1, " in living.stderr.split(error)[1], living.stderr


@pytest.mark.parametrize(
    ("program", "arm"),
    [
        pytest.param("worker_tensorflow", "eager", marks=needs("tensorflow")),
        pytest.param("worker_jax", "jit", marks=needs("jax")),
    ],
)
def test_a_missing_agent_and_a_wrong_job_file_are_named(program: str, arm: str, tmp_path: Path) -> None:
    job = job_file(tmp_path, loopback(2))
    [ended] = run_to_end(program, arm, ranks=1, GRADLANE_JOB=str(job), GRADLANE_SOCKET=str(tmp_path / "no.sock"))
    assert ended.returncode == 1
    assert "gradlane.errors.AgentError: " in ended.stderr
    assert f"{tmp_path / 'no.sock'} (No such file or directory): start it with `gradlane agent`" in ended.stderr
    job.write_text(job.read_text().replace("rate =", "rat ="))
    [ended] = run_to_end(program, arm, ranks=1, **within(job))
    assert ended.returncode == 1
    assert f"JobError: {job}:15: transport.rate: is missing; is 'rat' meant to be it?" in ended.stderr
