# SPDX-License-Identifier: Apache-2.0
"""C programs of tests, with all of the core, under sanitizers."""

import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from gradlane import wire

HERE = Path(__file__).parent
CORE = HERE.parents[2] / "agent" / "src" / "gradlane" / "core"


class _Core:
    """The core's objects under a sanitizer, in a folder that is there as long as this process."""

    def __init__(self, sanitize: str) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="gradlane-core-")
        folder = Path(self._folder.name)
        (folder / "wire.h").write_text(wire.c_definitions())
        options = ["-std=gnu11", "-g1", "-O0", "-D_GNU_SOURCE=", f"-fsanitize={sanitize}", "-fno-sanitize-recover=all"]
        self.command = ["cc", *options, "-I", str(CORE), "-I", str(folder)]
        self.objects: list[str] = []
        for source in sorted(CORE.glob("*/*.c")):
            self.objects.append(str(folder / f"{source.parent.name}.{source.stem}.o"))
            subprocess.run([*self.command, "-c", str(source), "-o", self.objects[-1]], check=True)


_core = cache(_Core)  # it is most of what programs are made of


def build(folder: Path, sources: Sequence[Path], *wrapped: str, sanitize: str = "address,undefined") -> Path:
    """A program of these and the core; `wrapped`: functions that it has in place of the C library's."""
    core, program = _core(sanitize), folder / sources[0].stem
    wraps = (f"-Wl,--wrap={name}" for name in wrapped)
    command = [*core.command, *wraps, *map(str, sources), *core.objects, "-o", str(program), "-lm", "-lpthread"]
    subprocess.run(command, check=True)
    return program
