# SPDX-License-Identifier: Apache-2.0
"""The core on aarch64: compiled by Debian's cross compiler, without a warning, and run in an emulator of the CPU."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.gradlane.core.core_programs import HERE, build_released
from tests.support.needs import needs

COMPILER = "aarch64-linux-gnu-gcc"
EMULATOR = "qemu-aarch64"
PROGRAMS = {
    "trains.c": (),
    "full_socket.c": ("sendmmsg",),
    "exhaustion.c": ("malloc", "calloc", "realloc", "aligned_alloc"),
}
pytestmark = [needs(COMPILER), needs(EMULATOR)]


def run(program: Path, prefix: Sequence[str] = (), arguments: Sequence[str] = ()) -> str:
    return subprocess.run(
        [*prefix, program, *arguments], check=True, capture_output=True, text=True, timeout=240
    ).stdout


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_cores_own_programs_pass(tmp_path: Path, program: str) -> None:
    sources = [HERE / program, *sorted(HERE.glob(f"{Path(program).stem}_*.c"))]
    run(build_released(tmp_path, sources, *PROGRAMS[program], compiler=COMPILER), [EMULATOR], ["25"])


def test_it_computes_the_same_bits_as_here(tmp_path: Path) -> None:
    here = run(build_released(tmp_path, [HERE / "arithmetic.c"], parts="arithmetic"))
    there = run(build_released(tmp_path, [HERE / "arithmetic.c"], compiler=COMPILER), [EMULATOR])
    assert len(here.splitlines()) == 20
    assert there == here
