# SPDX-License-Identifier: Apache-2.0
"""How JAX calls Gradlane: through the handler in C, which has JAX's arrays where they lie, and where that does not fit
through io_callback. Both give the same."""

from pathlib import Path

import pytest

from tests.frameworks.ranks import needs, run, within
from tests.support.agents import loopback
from tests.support.members import job_file


def environment(tmp_path: Path, more: str = "") -> dict[str, str]:
    """Of two ranks, which may share 9 MiB each with their agents; `more` of the job's file."""
    config = tmp_path / "agent.toml"
    config.write_text('[limits]\nshared = "9MiB"\n')
    lines = f'buffer = "4MB"\n{more}[loss]\npush = 0.0\n'
    return within(job_file(tmp_path, loopback(2), lines=lines)) | {"GRADLANE_SOCKET": f"process:{config}"}


@pytest.fixture
def places(tmp_path: Path) -> dict[str, str]:
    return environment(tmp_path)


@needs("jax")
@pytest.mark.parametrize("wire", ["float32", "bfloat16"])
def test_the_handler_and_the_callback_give_the_same_for_all_types(wire: str, tmp_path: Path) -> None:
    places = environment(tmp_path, f'wire = "{wire}"\n')
    first, second = run("worker_calls", "handler", **places)
    assert first == second
    assert run("worker_calls", "callback", **places) == [first, second]


@needs("jax")
def test_a_program_for_several_devices_goes_through_the_callback(places: dict[str, str]) -> None:
    run("worker_calls", "devices", XLA_FLAGS="--xla_force_host_platform_device_count=2", **places)


@needs("jax")
def test_what_was_compiled_is_taken_from_the_disk_by_another_process(places: dict[str, str], tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    options = {"JAX_COMPILATION_CACHE_DIR": str(cache), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    first = run("worker_jax", "jit", **options, **places)
    kept = sorted(it.name for it in cache.iterdir() if it.name.endswith("-cache"))
    assert any(name.startswith("jit_eager-") for name in kept), kept
    assert run("worker_jax", "jit", **options, **places) == first
    assert sorted(it.name for it in cache.iterdir() if it.name.endswith("-cache")) == kept
