# SPDX-License-Identifier: Apache-2.0
"""The agent's C core as a fuzzer: the engines of a job's ranks, and the network between them.

An input is a job, and then calls of its workers, what the network does to datagrams, time, and datagrams that somebody
sends who has the job's token; see run.c. Sockets and shared memory are not part of it.
"""

from __future__ import annotations

import platform
import random
from collections.abc import Iterator
from pathlib import Path

from gradlane.wire import c_definitions
from tests.fuzz.compiling import Part, build_fuzzer, changed, headers_of
from tests.support.paths import ROOT

HERE = Path(__file__).resolve().parent
CORE = ROOT / "agent" / "src" / "gradlane" / "core"
LONGEST = 2048  # bytes of an input
_PARTS = ("base", "arithmetic", "rate", "job", "plan", "tx", "rx", "operation", "sums", "engine")
_INSTEAD = CORE / "base" / "pool.c"  # of which the fuzzer has its own
_CHANGES = (
    # Few messages wrap it round, and most of an input's time is making it.
    ("job/job.h", "RING = 4096", "RING = 64"),
    # What clang 14 has no word for.
    ("arithmetic/elements.h", '__builtin_cpu_supports("f16c")', "1"),
)
_X86 = ("-mf16c", "-D_Float16=__fp16") if platform.machine() == "x86_64" else ()
_SEEDS = 32


def build(folder: Path, optimize: str = "-O1") -> Path:
    """The fuzzer, built anew if anything that it is made of has changed. `optimize`: clang's. Raises FuzzError."""
    sources = [path for part in _PARTS for path in sorted((CORE / part).glob("*.c")) if path != _INSTEAD]
    parts = [Part(f"{path.parent.name}_{path.stem}", path.read_text()) for path in sources]
    parts += [Part(f"fuzz_{path.stem}", path.read_text()) for path in sorted(HERE.glob("*.c"))]
    headers = changed(headers_of(CORE, HERE) | {"wire.h": c_definitions()}, _CHANGES)
    return build_fuzzer(folder, parts, headers, optimize, ("-ffp-contract=off", *_X86))


def seeds() -> Iterator[tuple[str, bytes]]:
    """Inputs to begin with, and their names: any bytes, most of which are numbers by themselves."""
    source = random.Random(1)
    for losing in range(3, 8):
        # An honest job of three workers with long slices and a loss budget of half of a message: four steps of a tensor
        # that a switch sums, to which every so many contributions are lost.
        yield f"closing-{losing}", bytes([0, 1, 3, 64, 1, 2, 1, 4, losing, 200, 150])
    for number in range(_SEEDS):
        content = bytes(source.randrange(240) for _ in range(source.choice((40, 80, 200))))
        yield f"random-{number}", bytes([number]) + content
