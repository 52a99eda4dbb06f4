# SPDX-License-Identifier: Apache-2.0
"""C programs of tests, with all of the core, under sanitizers or for another CPU."""

import re
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from gradlane import wire

HERE = Path(__file__).parent
AGENT = HERE.parents[2] / "agent"
CORE = AGENT / "src" / "gradlane" / "core"
RELEASED = re.findall(r'^ +"(-[^"]+)",$', (AGENT / "core_build.py").read_text(), re.MULTILINE)  # its flags in a release


class _Core:
    """The core's objects by a compiler, in a folder that is there as long as this process. `own`: options for these
    alone."""

    def __init__(self, compiler: str, own: tuple[str, ...], *options: str) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="gradlane-core-")
        folder = Path(self._folder.name)
        (folder / "wire.h").write_text(wire.c_definitions())
        self.command = [compiler, "-std=gnu11", "-D_GNU_SOURCE=", *options, "-I", str(CORE), "-I", str(folder)]
        self.objects: list[str] = []
        for source in sorted(CORE.glob("*/*.c")):
            self.objects.append(str(folder / f"{source.parent.name}.{source.stem}.o"))
            subprocess.run([*self.command, *own, "-c", str(source), "-o", self.objects[-1]], check=True)

    def build(self, folder: Path, sources: Sequence[Path], wrapped: Sequence[str]) -> Path:
        program = folder / f"{sources[0].stem}-{Path(self.command[0]).name}"
        wraps = (f"-Wl,--wrap={name}" for name in wrapped)
        command = [*self.command, *wraps, *map(str, sources), *self.objects, "-o", str(program), "-lm", "-lpthread"]
        subprocess.run(command, check=True)
        return program


_core = cache(_Core)  # it is most of what programs are made of


def build(folder: Path, sources: Sequence[Path], *wrapped: str, sanitize: str = "address,undefined") -> Path:
    """A program of these and the core; `wrapped`: functions that it has in place of the C library's."""
    core = _core("cc", (), "-g1", "-O0", f"-fsanitize={sanitize}", "-fno-sanitize-recover=all")
    return core.build(folder, sources, wrapped)


def build_released(folder: Path, sources: Sequence[Path], *wrapped: str, compiler: str = "cc") -> Path:
    """The same with the flags of a release, without a warning from the core. Linked statically, so that an emulator
    needs no libraries."""
    return _core(compiler, ("-Werror",), *RELEASED, "-static").build(folder, sources, wrapped)
