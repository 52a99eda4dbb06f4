# SPDX-License-Identifier: Apache-2.0
"""C code with sanitizers, compiled by a clang that has libFuzzer; what has not changed is not compiled again."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_COMPILERS = ("clang", "clang-14", "clang-15", "clang-16", "clang-17", "clang-18", "clang-19")
_SANITIZE = "address,undefined,float-cast-overflow"
_FLAGS = (
    "-std=gnu11",
    "-D_GNU_SOURCE",
    "-gline-tables-only",
    "-fno-omit-frame-pointer",
    "-fno-sanitize-recover=all",
)


class FuzzError(Exception):
    """The machine lacks something, or the fuzzer can't be built."""


@dataclass(frozen=True)
class Part:
    """A C file: its name, its text, and flags of its own."""

    name: str
    text: str
    flags: tuple[str, ...] = ()


@cache
def compiler() -> str | None:
    """A clang that has libFuzzer; None if there is none."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "none.c")
        source.write_text("int LLVMFuzzerTestOneInput(void) { return 0; }\n")
        for name in _COMPILERS:
            found = shutil.which(name)
            command = [str(found), f"-fsanitize=fuzzer,{_SANITIZE}", "-o", f"{folder}/none", str(source)]
            if found and not subprocess.run(command, capture_output=True, check=False).returncode:
                return found
    return None


def headers_of(*folders: Path) -> dict[str, str]:
    """The headers below some folders, by the name that they are included by."""
    return {str(path.relative_to(root)): path.read_text() for root in folders for path in sorted(root.rglob("*.h"))}


def changed(headers: Mapping[str, str], changes: Iterable[tuple[str, str, str]]) -> dict[str, str]:
    """Headers with another text in some places: (header, before, after). Raises FuzzError if it is not there."""
    found = dict(headers)
    for name, before, after in changes:
        if before not in found[name]:
            raise FuzzError(f"{name} has no {before!r}, which the fuzzer is to change")
        found[name] = found[name].replace(before, after)
    return found


def build_fuzzer(
    folder: Path, parts: Sequence[Part], headers: Mapping[str, str], optimize: str, flags: Sequence[str] = ()
) -> Path:
    """A fuzzer in a folder, made of parts. `optimize`: clang's. Raises FuzzError."""
    clang = compiler()
    if clang is None:
        raise FuzzError("no clang with libFuzzer: apt-get install clang-14 libclang-rt-14-dev")
    objects, include = folder / "objects", folder / "include"
    for made in (objects, include):
        made.mkdir(parents=True, exist_ok=True)
    for name, text in headers.items():
        (include / name).parent.mkdir(exist_ok=True)
        (include / name).write_text(text)

    def compiled(part: Part) -> Path:
        all_flags = (*_FLAGS, *flags, optimize, f"-fsanitize=fuzzer-no-link,{_SANITIZE}", f"-I{include}", *part.flags)
        words = "\0".join((clang, *headers.values(), part.text, *all_flags))
        result = objects / f"{part.name}-{hashlib.sha256(words.encode()).hexdigest()[:24]}.o"
        if not result.exists():
            for old in objects.glob(f"{part.name}-*"):
                old.unlink()
            source = objects / f"{part.name}.c"
            source.write_text(part.text)
            _run(clang, *all_flags, "-c", "-o", str(result), str(source))
        return result

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        files = list(pool.map(compiled, parts))
    fuzzer = folder / "fuzzer"
    _run(clang, f"-fsanitize=fuzzer,{_SANITIZE}", "-o", str(fuzzer), *map(str, files))
    return fuzzer


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise FuzzError(f"{command[0]} failed: {done.stderr.strip()[-2000:]}")
