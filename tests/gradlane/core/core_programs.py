# SPDX-License-Identifier: Apache-2.0
"""C programs of tests, with all of the core, under sanitizers or for another CPU."""

import fcntl
import hashlib
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from gradlane import wire
from tests.support.paths import ROOT

HERE = Path(__file__).parent
CORE = ROOT / "agent" / "src" / "gradlane" / "core"
RELEASED = re.findall(r'^ +"(-[^"]+)",$', (ROOT / "agent" / "core_build.py").read_text(), re.MULTILINE)
_OUT = ROOT / "out" / "core"  # objects, compiled once for all tests until something that they are made of changes


class _Core:
    """The core's objects, or those of some parts of it, by a compiler. `own`: options for these alone."""

    def __init__(self, compiler: str, own: Sequence[str], options: Sequence[str], parts: str = "*") -> None:
        sources = sorted(CORE.glob(f"{parts}/*.c"))
        files = (*sources, *sorted(CORE.glob("*/*.h")))
        texts = (text for path in files for text in (str(path.relative_to(CORE)), path.read_text()))
        version = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True).stdout
        all_of_it = "\0".join((version, wire.c_definitions(), *own, *options, *texts))
        kind = hashlib.sha256("\0".join((compiler, *own, *options, parts)).encode()).hexdigest()[:8]
        folder = _OUT / f"{kind}-{hashlib.sha256(all_of_it.encode()).hexdigest()[:24]}"
        self.command = [compiler, "-std=gnu11", "-D_GNU_SOURCE=", *options, "-I", str(CORE), "-I", str(folder)]
        self.objects = [str(folder / f"{source.parent.name}.{source.stem}.o") for source in sources]
        _OUT.mkdir(parents=True, exist_ok=True)
        with (_OUT / f"{kind}.lock").open("w") as lock:  # others wait for who compiles, instead of doing the same
            fcntl.flock(lock, fcntl.LOCK_EX)
            if folder.exists():
                return
            for old in _OUT.glob(f"{kind}-*"):
                shutil.rmtree(old)
            made = _OUT / f"{kind}-new"  # whole when it gets its name
            made.mkdir()
            (made / "wire.h").write_text(wire.c_definitions())
            for source, result in zip(sources, self.objects, strict=True):
                command = [*self.command, "-I", str(made), *own, "-c", str(source), "-o", str(made / Path(result).name)]
                subprocess.run(command, check=True)
            made.rename(folder)

    def build(self, folder: Path, sources: Sequence[Path], wrapped: Sequence[str]) -> Path:
        program = folder / f"{sources[0].stem}-{Path(self.command[0]).name}"
        wraps = (f"-Wl,--wrap={name}" for name in wrapped)
        command = [*self.command, *wraps, *map(str, sources), *self.objects, "-o", str(program), "-lm", "-lpthread"]
        subprocess.run(command, check=True)
        return program


def build(folder: Path, sources: Sequence[Path], *wrapped: str, sanitize: str = "address,undefined") -> Path:
    """A program of these and the core; `wrapped`: functions that it has in place of the C library's."""
    options = ("-g1", "-O0", f"-fsanitize={sanitize}", "-fno-sanitize-recover=all")
    return _Core("cc", (), options).build(folder, sources, wrapped)


def build_released(
    folder: Path, sources: Sequence[Path], *wrapped: str, compiler: str = "cc", parts: str = "*"
) -> Path:
    """The same with the flags of a release, without a warning from the core, of which it has `parts` (a pattern).
    Linked statically, so that an emulator needs no libraries."""
    return _Core(compiler, ("-Werror",), (*RELEASED, "-static"), parts).build(folder, sources, wrapped)
