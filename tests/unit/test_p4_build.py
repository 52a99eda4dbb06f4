# SPDX-License-Identifier: Apache-2.0
"""The committed output of p4c belongs to the P4 sources beside it."""

import importlib.util
import shutil
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

P4_SOURCE = Path(__file__).parents[2] / "p4src"


def load_build() -> ModuleType:
    """p4src/build.py, which is a script and no part of a package."""
    spec = importlib.util.spec_from_file_location("p4_build", P4_SOURCE / "build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


build = load_build()


def test_the_committed_output_was_made_from_these_sources() -> None:
    assert build.DIGEST.read_text() == build.sources_digest(), "p4src has changed: run `python3 p4src/build.py`"


def test_the_digest_covers_every_source_file_and_no_other() -> None:
    named = {line.split()[1] for line in build.sources_digest().splitlines()}
    on_disk = {p.relative_to(P4_SOURCE).as_posix() for p in P4_SOURCE.rglob("*.p4") if "tna" not in p.parts}
    assert named == on_disk


def test_a_rebuild_gives_the_committed_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = shutil.which("p4c-bm2-ss")
    if compiler is None:
        pytest.skip("p4c-bm2-ss is not on PATH: whether p4c still gives the committed output was not checked")
    here = tmp_path / "p4src"
    for folder in ("shared", "v1model"):
        shutil.copytree(P4_SOURCE / folder, here / folder)
    monkeypatch.setattr(build, "HERE", here)
    monkeypatch.setattr(build, "OUTPUT", here / "build" / "v1model")
    monkeypatch.setattr(build, "DIGEST", here / "build" / "v1model" / "sources.sha256")
    assert build.main() == 0
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    for name in ("gradlane.json", "gradlane.p4info.txtpb", "sources.sha256"):
        committed = (P4_SOURCE / "build" / "v1model" / name).read_text()
        assert (here / "build" / "v1model" / name).read_text() == committed, f"{name} differs; built with {version}"
