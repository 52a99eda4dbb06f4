# SPDX-License-Identifier: Apache-2.0
"""The committed page belongs to the source beside it, is small, and needs nobody else."""

import gzip
import json
import re
import subprocess
from pathlib import Path

import pytest

from tests.page.simulated.server import PAGE
from tests.support.paths import ROOT
from tests.support.scripts import load_script

SOURCE = ROOT / "controller" / "page"
MOST = 200_000  # bytes, gzipped


build = load_script(SOURCE / "build.py")


def built() -> list[Path]:
    return [path for path in PAGE.rglob("*") if path.is_file() and path != build.DIGEST]


def test_what_is_committed_was_made_from_these_sources() -> None:
    assert build.DIGEST.read_text() == build.digest(), "sources or built files changed: run `make page`, commit both"


def test_the_digest_covers_every_source_and_built_file() -> None:
    named = {line.split("  ")[1] for line in build.DIGEST.read_text().splitlines()}
    on_disk = {path.relative_to(SOURCE).as_posix() for path in (SOURCE / "src").rglob("*") if path.is_file()}
    configs = {path.name for path in SOURCE.iterdir() if path.suffix in (".json", ".html", ".ts", ".js")}
    assert named == on_disk | configs | {f"built/{path.relative_to(PAGE).as_posix()}" for path in built()}


def test_a_rebuild_gives_what_is_committed(tmp_path: Path) -> None:
    found = build.npm()
    if found is None or not (SOURCE / "node_modules").is_dir():
        pytest.skip("no controller/page/node_modules (`make page` installs it): whether a build gives it is unknown")
    command, environment = found
    arguments = ["exec", "--", "vite", "build", "--outDir", str(tmp_path / "page"), "--logLevel", "error"]
    subprocess.run([*command, *arguments], cwd=SOURCE, env=environment, check=True, timeout=300)
    again = {path.relative_to(tmp_path / "page"): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert again == {path.relative_to(PAGE): path.read_bytes() for path in built()}


def test_it_is_small_and_has_no_source_maps() -> None:
    size = sum(len(gzip.compress(path.read_bytes())) for path in built())
    assert size < MOST
    assert not [path for path in built() if path.suffix == ".map" or b"sourceMappingURL" in path.read_bytes()]


def test_names_of_scripts_and_styles_change_with_their_contents() -> None:
    assets = [path.name for path in (PAGE / "assets").iterdir()]
    assert assets
    assert all(re.fullmatch(r"[a-z]+-[\w-]{8}\.(js|css)", name) for name in assets), assets


def test_the_document_uses_what_is_there_and_nothing_inline() -> None:
    document = (PAGE / "index.html").read_text()
    for path in re.findall(r'(?:src|href)="([^"]+)"', document):
        assert (PAGE / path).is_file(), path
    assert not re.search(r"<style|style=|<script(?![^>]*\bsrc=)|\bon\w+=", document)


def test_styles_load_nothing_from_elsewhere() -> None:
    styles = "".join(path.read_text() for path in (PAGE / "assets").glob("*.css"))
    assert not re.search(r"url\(|@import", styles)


def test_what_is_shipped_is_free_to_ship_and_its_notices_are_there() -> None:
    packages = json.loads((SOURCE / "package-lock.json").read_text())["packages"]
    licences = {name: it.get("license") for name, it in packages.items() if name}
    allowed = {"MIT", "ISC", "Apache-2.0", "BSD-3-Clause", "BSD-2-Clause", "0BSD", "MPL-2.0", "BlueOak-1.0.0"}
    assert {name: it for name, it in licences.items() if it not in allowed} == {}
    notices = (PAGE / "licences.txt").read_text()
    for name in ("svelte", "uplot", "smol-toml"):
        assert f"{name} {packages[f'node_modules/{name}']['version']}" in notices
