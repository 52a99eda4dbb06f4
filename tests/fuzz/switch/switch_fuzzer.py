# SPDX-License-Identifier: Apache-2.0
"""The switch's C code as a fuzzer: its runtime and several generated programs.

An input is a sequence of frames, changes of the control plane, of ports and of time; see run.c.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from gradlane_switch.bmv2_json.program import load
from gradlane_switch.codegen.program import generate
from gradlane_switch.native.build import RUNTIME
from tests.fuzz.compiling import Part, build_fuzzer, changed, headers_of
from tests.fuzz.switch.describe import describe
from tests.fuzz.switch.seeds import inputs
from tests.support.paths import CORPUS, PROGRAM

HERE = Path(__file__).resolve().parent
PROGRAMS = (
    PROGRAM,
    *(
        CORPUS / f"{name}.json"
        for name in (
            "varbit",
            "stack_runtime_index",
            "union_stack",
            "mixed_wide",
            "wide_registers",
            "checksum_payload",
            "copies_combined",
            "match_many",
            "action_selector",
            "parser_value_set",
            "two_digests",
            "truncate",
            "priority",
        )
    ),
)
TRACED = ("gradlane", "copies_combined", "union_stack")
LONGEST = 4096  # bytes of an input
_QUIET = ("-Wno-unused-label", "-Wno-unused-function", "-Wno-logical-op-parentheses", "-Wno-bitwise-op-parentheses")
_CALLS = ("ppoll", "recvmmsg", "sendmmsg", "readv", "writev", "clock_gettime", "clock_nanosleep")
# Making and looking through what is this large is most of an input's time.
_SMALLER = (
    ("state/api.h", "GL_GROUPS = 65536", "GL_GROUPS = 64"),
    ("state/api.h", "GL_SESSIONS = 32768", "GL_SESSIONS = 64"),
    ("state/digests.h", "GL_DIGEST_VALUES = 4096", "GL_DIGEST_VALUES = 16"),
    ("wire/messages.h", "GL_BATCH = 128", "GL_BATCH = 16"),
)
_SEEDS = 6  # inputs to begin with, for each program and way to run it


def build(folder: Path, optimize: str = "-O1") -> Path:
    """The fuzzer, built anew if anything that it is made of has changed. `optimize`: clang's. Raises FuzzError."""
    programs = [load(path.read_bytes()) for path in PROGRAMS]
    traced = [path.stem in TRACED for path in PROGRAMS]
    parts = [Part("description", describe(programs, traced))]
    for number, program in enumerate(programs):
        parts.append(Part(f"program{number}", generate(program), (f"-Dgl_program=gl_program_{number}", *_QUIET)))
        if traced[number]:
            text = generate(program, traced=True)
            parts.append(Part(f"traced{number}", text, (f"-Dgl_program=gl_traced_{number}", *_QUIET)))
    renamed = tuple(f"-D{name}=fuzz_{name}" for name in _CALLS)
    for path in sorted(RUNTIME.rglob("*.c")):
        parts.append(Part("_".join(path.relative_to(RUNTIME).with_suffix("").parts), path.read_text(), renamed))
    parts += [Part(f"fuzz_{path.stem}", path.read_text()) for path in sorted(HERE.glob("*.c"))]
    headers = changed(headers_of(RUNTIME, HERE), _SMALLER)
    return build_fuzzer(folder, parts, headers, optimize, ("-DGL_SLAB_PACKETS=1",))


def seeds() -> Iterator[tuple[str, bytes]]:
    """Inputs to begin with, and their names."""
    for number, path in enumerate(PROGRAMS):
        for place, content in enumerate(inputs(number, path.stem, _SEEDS)):
            yield f"{path.stem}-{place}", content
    for path in sorted((HERE / "found").iterdir()):  # that broke it once
        yield path.name, path.read_bytes()
