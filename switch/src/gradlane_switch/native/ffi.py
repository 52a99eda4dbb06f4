# SPDX-License-Identifier: Apache-2.0
"""The compiled runtime and generated programs, loaded through cffi. Calls release the GIL."""

from __future__ import annotations

from functools import cache
from typing import Any

from cffi import FFI

from gradlane_switch.native import build

ffi: Any = FFI()
ffi.cdef(build.interface())

NULL: Any = ffi.NULL


@cache
def runtime() -> Any:
    """The runtime library; compiled at first use. Raises BuildError."""
    return ffi.dlopen(str(build.runtime_library()))


class LoadedProgram:
    """A generated program in memory: `process` is its entry point."""

    def __init__(self, source: str) -> None:
        loader = FFI()
        loader.cdef("void gl_program(void *, void *, uint64_t, void *);")
        self.library: Any = loader.dlopen(str(build.program_library(source)))
        address = int(loader.cast("uintptr_t", loader.addressof(self.library, "gl_program")))
        self.process: Any = ffi.cast("gl_process *", address)
