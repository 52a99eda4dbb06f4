# SPDX-License-Identifier: Apache-2.0
"""The committed output of p4c belongs to the P4 sources beside it."""

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.paths import P4_SOURCE
from tests.support.scripts import load_script

SAMPLE = 16  # of the corpus every so manyth is compiled again; with --thorough all of it


build = load_script(P4_SOURCE / "build.py")
TREES = pytest.mark.parametrize(
    "tree", [build.GRADLANE, build.CORPUS, *build.BENCH], ids=["gradlane", "corpus", "bench-switch", "bench-training"]
)


@TREES
def test_the_committed_output_was_made_from_these_sources(tree: Any) -> None:
    assert tree.digest_file.read_text() == tree.sources_digest(), "sources changed: run `python3 p4src/build.py`"
    assert not tree.stale()


@TREES
def test_the_digest_covers_every_source_file_and_no_other(tree: Any) -> None:
    named = {line.split()[1] for line in tree.sources_digest().splitlines()}
    on_disk = {p.relative_to(tree.root).as_posix() for p in tree.root.rglob("*.p4") if "tna" not in p.parts}
    assert named == on_disk


@TREES
def test_a_rebuild_gives_the_committed_output(
    tree: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    compiler = shutil.which("p4c-bm2-ss")
    if compiler is None:
        pytest.skip("p4c-bm2-ss is not on PATH: whether p4c still gives the committed output was not checked")
    root = tmp_path / tree.root.name
    for source in tree.sources:
        (root / source).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(tree.root / source, root / source)
    monkeypatch.setattr(build, "HERE", root)
    programs = tree.programs if request.config.getoption("--thorough") else tree.programs[::SAMPLE]
    rebuilt = replace(tree, root=root, output=root / tree.output.relative_to(tree.root), programs=programs)
    assert rebuilt.build(compiler) == 0
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    made = {path for program in programs for path in rebuilt.outputs(program)}
    assert set(rebuilt.output.iterdir()) == {*made, rebuilt.digest_file}
    for path in made:
        assert path.read_text() == (tree.output / path.name).read_text(), f"{path.name} differs; built with {version}"


def test_only_what_changed_is_stale(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    for source in ("a.p4", "b.p4", "shared/c.p4"):
        (tmp_path / source).write_text(source)
    tree = build.Tree(tmp_path, tmp_path / "build", ("a.p4", "b.p4", "shared/c.p4"), ("a.p4", "b.p4"))
    assert tree.stale() == ["a.p4", "b.p4"]
    tree.output.mkdir()
    for path in (*tree.outputs("a.p4"), *tree.outputs("b.p4")):
        path.touch()
    tree.digest_file.write_text(tree.sources_digest())
    assert tree.stale() == []
    (tmp_path / "a.p4").write_text("changed")
    assert tree.stale() == ["a.p4"]
    (tmp_path / "shared" / "c.p4").write_text("changed")
    assert tree.stale() == ["a.p4", "b.p4"]


def test_each_profile_of_a_program_has_outputs_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "HERE", tmp_path / "source")
    tree = build.Tree(tmp_path, tmp_path / "build", ("x/a.p4",), ("x/a.p4",), profiles=("SUMS",))
    names = ["a.json", "a.p4info.txtpb", "a-sums.json", "a-sums.p4info.txtpb"]
    assert [path.name for path in tree.outputs("x/a.p4")] == names
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "a.p4").write_text("")
    compiler = tmp_path / "compiler"
    compiler.write_text('#!/bin/sh\necho "$@" >"$4" && echo "$@" >"$6"\n')
    compiler.chmod(0o755)
    assert tree.build(str(compiler)) == 0
    assert {path.name for path in tree.output.iterdir()} == {*names, "sources.sha256"}
    defined = {name: "-DSUMS" in (tree.output / name).read_text() for name in names}
    assert defined == dict(zip(names, [False, False, True, True], strict=True))
    assert tree.stale() == []
    tree.outputs("x/a.p4")[2].unlink()
    assert tree.stale() == ["x/a.p4"], "a profile that is missing"
