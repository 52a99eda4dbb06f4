# SPDX-License-Identifier: Apache-2.0
"""The core's threads under ThreadSanitizer: runners, processes that command and wait, and those that look on."""

import subprocess
from pathlib import Path

import pytest

from tests.gradlane.core.core_programs import HERE, build


def has_thread_sanitizer(folder: Path) -> bool:
    """Whether the compiler has its runtime, and the kernel lets it place its shadow memory."""
    source = folder / "none.c"
    source.write_text("int main(void) { return 0; }\n")
    compiled = subprocess.run(["cc", "-fsanitize=thread", source, "-o", folder / "none"], check=False)
    return not compiled.returncode and not subprocess.run([folder / "none"], check=False).returncode


@pytest.mark.parametrize("source", ["threads.c", "shards.c"])
def test_no_thread_of_the_core_reads_what_another_writes(tmp_path: Path, source: str) -> None:
    if not has_thread_sanitizer(tmp_path):
        pytest.skip("needs a compiler with ThreadSanitizer (gcc: libtsan2)")
    program = build(tmp_path, [HERE / source], sanitize="thread")
    done = subprocess.run([program], capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stderr[-4000:]


def test_at_a_port_each_thread_has_its_turn_and_waits_for_none_that_is_busy(tmp_path: Path) -> None:
    subprocess.run([build(tmp_path, [HERE / "turns.c"])], check=True, timeout=120)
