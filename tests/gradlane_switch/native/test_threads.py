# SPDX-License-Identifier: Apache-2.0
"""The runtime's threads share nothing without a lock: ThreadSanitizer watches them forward, inject, read and write."""

import json
import subprocess
from pathlib import Path

import pytest

from gradlane_switch.bmv2_json.program import load
from gradlane_switch.codegen.program import generate
from gradlane_switch.native.build import RUNTIME
from tests.gradlane_switch.flooding import punting
from tests.support.effort import tries

_FLAGS = ("-std=gnu11", "-D_GNU_SOURCE", "-O1", "-g", "-pthread", "-fsanitize=thread", "-Wno-unused-function")
# Where programs lie in memory is not left to chance: on newer kernels ThreadSanitizer does not find room else.
_FIXED = ("setarch", "-R")


def build(folder: Path, *sources: Path, include: Path = RUNTIME) -> Path:
    """The program of C files. Skips the test if the compiler, or its runtime, can't do that."""
    program = folder / "program"
    command = ["cc", *_FLAGS, f"-I{include}", "-o", str(program), *map(str, sources)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr
    return program


@pytest.fixture(scope="module")
def sanitizer(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Skips the tests where the compiler has no ThreadSanitizer, or its runtime does not run."""
    folder = tmp_path_factory.mktemp("sanitizer")
    (folder / "none.c").write_text("int main(void) { return 0; }\n")
    command = ["cc", "-fsanitize=thread", "-o", str(folder / "none"), str(folder / "none.c")]
    for step in (command, [*_FIXED, str(folder / "none")]):
        done = subprocess.run(step, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"needs a compiler with ThreadSanitizer (libtsan): {done.stderr.strip()[-200:]}")


@pytest.mark.usefixtures("sanitizer")
def test_threads_that_forward_inject_read_and_write_do_not_race(tmp_path: Path) -> None:
    document, _ = punting()
    (tmp_path / "punting.c").write_text(generate(load(json.dumps(document).encode())))
    sources = [*sorted(RUNTIME.rglob("*.c")), tmp_path / "punting.c", Path(__file__).with_name("threads.c")]
    program = build(tmp_path, *sources)
    command = [*_FIXED, str(program), str(tries(2000))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[:4000]
    received, taken, learned, written = map(int, done.stdout.split())
    assert min(received, taken, learned) > 100
    assert written == 8 * tries(2000)
