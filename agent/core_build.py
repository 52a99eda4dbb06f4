# SPDX-License-Identifier: Apache-2.0
"""The C core as the extension module gradlane._core. Its header of the wire format is generated from gradlane.wire."""

import importlib.util
import os
import re
import shlex
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from cffi import FFI

HERE = Path(__file__).resolve().parent
CORE = HERE / "src" / "gradlane" / "core"


def _wire_definitions() -> str:
    # The package can't be imported before its extension is built, so its one module that is needed is loaded by path.
    spec = importlib.util.spec_from_file_location("gradlane_wire", HERE / "src" / "gradlane" / "wire.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module.c_definitions()


def _declarations(definitions: str, header: str) -> str:
    """What cffi can read of a header: no directives, no comments, and numbers instead of macros."""
    text = re.sub(r"/\*.*?\*/", "", (CORE / header).read_text(), flags=re.S)
    text = re.sub(r"^#.*$", "", text, flags=re.M)
    for name, value in re.findall(r"#define (GL_\w+) (\d+)", definitions):
        text = re.sub(rf"\b{name}\b", value, text)
    return text


def _whole() -> list[str]:
    """Flags to optimise all files as one, if this compiler can: a slice passes ten functions in as many files."""
    flags = ["-flto=auto"]
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "try.c")
        source.write_text("int gl_try(void) { return 0; }")
        compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
        command = [*compiler, "-shared", "-fPIC", *flags, "-o", f"{folder}/try.so", str(source)]
        try:
            works = subprocess.run(command, capture_output=True, check=False).returncode == 0
        except OSError:  # the build says what it lacks
            works = False
    return flags if works else []


definitions = _wire_definitions()
generated = HERE / "build" / "generated"
generated.mkdir(parents=True, exist_ok=True)
wire = generated / "wire.h"
if not wire.exists() or wire.read_text() != definitions:  # another build may just read it
    wire.write_text(definitions)

ffi = FFI()
ffi.cdef("struct iovec { void *iov_base; size_t iov_len; }; struct sockaddr_storage { ...; };")
HEADERS = (
    "base/batch.h", "arithmetic/types.h", "arithmetic/instructions.h", "arithmetic/convert.h", "arithmetic/magnitude.h",
    "arithmetic/residual.h", "arithmetic/fixed_point.h",
    "rate/port.h", "rate/link.h", "job/config.h", "job/statistics.h", "plan/submission.h", "plan/schedule.h",
    "plan/grid.h", "tx/path.h", "operation/events.h", "operation/lateness.h", "operation/left_out.h", "sums/states.h",
    "engine/engine.h", "io/clock.h", "io/beats.h", "io/runner.h", "channel/channel.h",
    "exchange/tolerance.h", "exchange/exchange.h", "xla/handler.h",
)  # fmt: skip
for header in HEADERS:
    ffi.cdef(_declarations(definitions, header))
# A gl_xla_function in Python.
ffi.cdef("""extern "Python" int gl_xla_python(const char *, size_t, const gl_xla_array *const *, int64_t,
                                             const gl_xla_array *const *, int64_t, char *);""")
whole = _whole()
# For any CPU of the architecture, as a wheel is not built where it runs; see arithmetic/instructions.h.
ffi.set_source(
    "gradlane._core",
    "".join(f'#include "{header}"\n' for header in HEADERS),
    sources=[str(path.relative_to(HERE)) for path in sorted(CORE.glob("*/*.c"))],
    include_dirs=["src/gradlane/core", "build/generated"],
    extra_compile_args=[
        "-std=gnu11",
        "-O3",
        "-fvisibility=hidden",
        "-ffp-contract=off",
        "-Wall",
        "-Wextra",
        "-Wno-sign-compare",
        *whole,
    ],
    extra_link_args=whole,
)
