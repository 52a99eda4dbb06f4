# SPDX-License-Identifier: Apache-2.0
"""The core's files are optimised as one where the compiler can do that, and built by any other."""

import runpy
from pathlib import Path

import pytest

from tests.support.paths import ROOT


def flags(monkeypatch: pytest.MonkeyPatch, compiler: str) -> list[str]:
    monkeypatch.setenv("CC", compiler)
    return runpy.run_path(str(ROOT / "agent" / "core_build.py"))["whole"]


def test_files_are_optimised_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert flags(monkeypatch, "gcc -pipe") == ["-flto=auto"]


def test_a_compiler_that_can_not_is_not_asked_to(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    old = tmp_path / "cc"
    old.write_text('#!/bin/sh\nfor word; do case "$word" in -flto*) exit 1; esac; done\nexec gcc "$@"\n')
    old.chmod(0o755)
    assert flags(monkeypatch, str(old)) == []
    assert flags(monkeypatch, str(tmp_path / "none")) == []
