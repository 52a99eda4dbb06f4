# SPDX-License-Identifier: Apache-2.0
"""C programs of tests, with all of the core, under sanitizers."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

from gradlane import wire

HERE = Path(__file__).parent
CORE = HERE.parents[2] / "agent" / "src" / "gradlane" / "core"


def build(folder: Path, sources: Sequence[Path], *wrapped: str, sanitize: str = "address,undefined") -> Path:
    """A program of these and the core; `wrapped`: functions that it has in place of the C library's."""
    (folder / "wire.h").write_text(wire.c_definitions())
    program = folder / sources[0].stem
    options = ["-std=gnu11", "-g", "-O1", "-D_GNU_SOURCE=", f"-fsanitize={sanitize}", "-fno-sanitize-recover=all"]
    options += ["-I", str(CORE), "-I", str(folder), *(f"-Wl,--wrap={name}" for name in wrapped)]
    every = [*sources, *sorted(CORE.glob("*/*.c"))]
    subprocess.run(["cc", *options, *map(str, every), "-o", str(program), "-lm", "-lpthread"], check=True)
    return program
