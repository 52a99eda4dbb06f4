# SPDX-License-Identifier: Apache-2.0
"""A fixed number of the fuzzer's inputs; `make fuzz` goes on from there."""

from pathlib import Path

import pytest

from tests.fuzz.fuzz import OUT, FuzzError, build, compiler, fuzz, write_seeds
from tests.support.effort import tries

RUNS = tries(1500)

pytestmark = pytest.mark.skipif(
    compiler() is None, reason="needs a clang with libFuzzer (clang-14, libclang-rt-14-dev)"
)


@pytest.fixture(scope="module")
def fuzzer() -> Path:
    # Few inputs: compiling is most of it, and takes a quarter without optimization.
    return build(OUT / "unoptimized", "-O0")


def test_no_input_breaks_the_c_code_or_loses_a_packet(fuzzer: Path, tmp_path: Path) -> None:
    write_seeds(tmp_path / "corpus")
    process = fuzz(fuzzer, tmp_path / "corpus", f"-runs={RUNS}", "-seed=1", f"-artifact_prefix={tmp_path}/")
    assert process.wait(300) == 0


def test_a_missing_compiler_is_asked_for_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.fuzz.fuzz.compiler", lambda: None)
    with pytest.raises(FuzzError, match="apt-get install clang-14 libclang-rt-14-dev"):
        build()
