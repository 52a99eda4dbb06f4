# SPDX-License-Identifier: Apache-2.0
"""Compiles C with the system compiler, once per content: shared objects are kept in a per-user cache by digest."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from gradlane_switch.errors import BuildError

RUNTIME = Path(__file__).parent / "runtime"
_FLAGS = (
    "-std=gnu11",
    "-D_GNU_SOURCE",
    "-O3",
    "-fPIC",
    "-fno-semantic-interposition",
    "-shared",
    "-pthread",
    "-Wall",
    "-Wno-unused-label",
    "-Wno-unused-function",
)


def runtime_library() -> Path:
    """The shared object of the program-independent code. Raises BuildError."""
    return _build("runtime", _files("*.c"))


def program_library(source: str) -> Path:
    """The shared object of a generated program. Raises BuildError."""
    return _build("program", {"program.c": source})


def interface() -> str:
    """Declarations of all that Python sees of the runtime: each part's api.h, after those that it includes."""
    included: set[Path] = set()
    return "\n".join(line for path in sorted(RUNTIME.glob("*/api.h")) for line in _declarations(path, included))


def _declarations(path: Path, included: set[Path]) -> Iterator[str]:
    if path in included:
        return
    included.add(path)
    for line in path.read_text().splitlines():
        if line.startswith('#include "'):
            yield from _declarations(RUNTIME / line.split('"')[1], included)
        elif not line.startswith("#"):
            yield line


def _files(pattern: str) -> dict[str, str]:
    """Contents of the runtime's files, by path from its root, as they are included."""
    return {str(path.relative_to(RUNTIME)): path.read_text() for path in sorted(RUNTIME.rglob(pattern))}


def _build(kind: str, sources: dict[str, str]) -> Path:
    digest = hashlib.sha256()
    compiler, version = _compiler()
    contents = _files("*.h") | sources
    for part in (version, *_FLAGS, *(text for item in contents.items() for text in item)):
        digest.update(part.encode() + b"\0")
    directory = _cache()
    result = directory / f"{kind}-{digest.hexdigest()[:32]}.so"
    if result.exists():
        return result
    # Built under a name of its own and renamed when whole, so that a concurrent build never sees half a file.
    with tempfile.TemporaryDirectory(dir=directory) as work:
        for name, text in sources.items():
            Path(work, name).parent.mkdir(exist_ok=True)
            Path(work, name).write_text(text)
        files = [str(Path(work, name)) for name in sources]
        built = Path(work, "built.so")
        command = [compiler, *_FLAGS, f"-I{RUNTIME}", "-o", str(built), *files]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise BuildError(f"{compiler} failed on the {kind}: {done.stderr.strip()[-2000:]}")
        built.replace(result)
    return result


@cache
def _compiler() -> tuple[str, str]:
    wanted = os.environ.get("CC", "cc")
    found = shutil.which(wanted)
    if found is None:
        raise BuildError(f"no C compiler: {wanted!r} is not on the PATH; install gcc or clang, or set CC")
    done = subprocess.run([found, "--version"], capture_output=True, text=True, check=False)
    return found, found + done.stdout


def _cache() -> Path:
    """The cache directory. Code from it runs with our rights, so it must be ours alone to write."""
    base = os.environ.get("XDG_CACHE_HOME")
    root = Path(base) if base else Path.home() / ".cache"
    directory = root / "gradlane-switch"
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = directory.stat()
    if status.st_uid != os.geteuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise BuildError(
            f"{directory} belongs to or can be written by another user; set XDG_CACHE_HOME to a private one"
        )
    return directory
