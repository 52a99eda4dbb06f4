# SPDX-License-Identifier: Apache-2.0
"""A fixed number of the fuzzers' inputs; `make fuzz` goes on from there."""

from pathlib import Path

import pytest

from tests.fuzz.compiling import FuzzError, compiler
from tests.fuzz.fuzz import OUT, TARGETS, fuzz, write_seeds
from tests.support.effort import tries

pytestmark = pytest.mark.long

RUNS = {"switch": tries(200), "core": tries(120)}


@pytest.mark.parametrize("name", TARGETS)
def test_no_input_breaks_the_c_code_or_what_it_has_to_keep_account_of(name: str, tmp_path: Path) -> None:
    if compiler() is None:
        pytest.skip("needs a clang with libFuzzer (clang-14, libclang-rt-14-dev)")
    target = TARGETS[name]
    # Few inputs: compiling is most of it, and takes a quarter without optimization.
    fuzzer = target.build(OUT / name / "unoptimized", "-O0")
    write_seeds(target, tmp_path / "corpus")
    words = (f"-runs={RUNS[name]}", "-seed=1", f"-artifact_prefix={tmp_path}/")
    assert fuzz(target, fuzzer, tmp_path / "corpus", *words).wait(900) == 0


def test_a_missing_compiler_is_asked_for_by_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tests.fuzz.compiling.compiler", lambda: None)
    with pytest.raises(FuzzError, match="apt-get install clang-14 libclang-rt-14-dev"):
        TARGETS["core"].build(tmp_path, "-O0")
