# SPDX-License-Identifier: Apache-2.0
"""What compiled programs call, by name; on a CPU through XLA's own interface, with their arrays where they lie."""

import ctypes
import logging
import math
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from gradlane._core import ffi, lib
from gradlane.errors import AgentError
from gradlane.jax.library import jax
from gradlane.job import elements

log = logging.getLogger("gradlane")

Array = npt.NDArray[Any]
Function = Callable[[Any, Sequence[Array], Sequence[Array]], None]
"""Of its owner, the operands, which it may only read, and the results, which it fills. It keeps none of the arrays."""


class Raw:
    """The operands or the results of a call as XLA has them, which costs the same for few and for many."""

    def __init__(self, arrays: Any, count: int) -> None:
        self._arrays = arrays
        self._count = count

    def arrays(self) -> list[Array]:
        """On XLA's own memory, as long as the call takes."""
        return [_array(self._arrays[k]) for k in range(self._count) if self._arrays[k].type != _TOKEN]

    def gather(self, kind: Any, values: Array, wire: int) -> None:
        """Fills a flat array of the type that `wire` numbers (elements.CODES) with all values of these, which are of
        numpy's type `kind`. Raises ValueError if they are not."""
        buffer = ffi.from_buffer("uint8_t[]", values, require_writable=True)
        of = self._arrays, self._count, _NUMBERS[kind], buffer, wire
        self._check(lib.gl_xla_gather(*of, elements.CODES[elements.name_of(kind)], values.size))

    def scatter(self, kind: Any, values: Array, wire: int) -> None:
        """The reverse."""
        of = self._arrays, self._count, _NUMBERS[kind], ffi.from_buffer("uint8_t[]", values), wire
        self._check(lib.gl_xla_scatter(*of, elements.CODES[elements.name_of(kind)], values.size))

    def _check(self, status: int) -> None:
        if status:
            raise ValueError("a program of JAX calls with other arrays than it was compiled for")


Direct = Callable[[Any, Raw, Raw], None]
"""A Function on what XLA has."""

TARGET = "gradlane_call"
# By XLA's numbers.
_TYPES = {
    number: np.dtype(kind)
    for number, kind in {
        1: np.bool_,
        2: np.int8,
        3: np.int16,
        4: np.int32,
        5: np.int64,
        6: np.uint8,
        7: np.uint16,
        8: np.uint32,
        9: np.uint64,
        10: np.float16,
        11: np.float32,
        12: np.float64,
        15: np.complex64,
        16: jax.numpy.bfloat16,
        18: np.complex128,
    }.items()
}
_NUMBERS = {kind: number for number, kind in _TYPES.items()}
_TOKEN = 17  # says in which order things happen, and has no elements

_functions: dict[str, tuple[weakref.ref[Any], Function, Direct | None]] = {}


def name(text: str, owner: Any, function: Function, direct: Direct | None = None) -> None:
    """From now on programs that were compiled with this name call the function, or `direct` in its place where XLA
    calls, as long as its owner lives.

    A name and no object, as JAX may keep a program that was compiled, on a disk, too.
    """
    for gone in [known for known, (of, *_) in _functions.items() if of() is None]:
        del _functions[gone]
    _functions[text] = weakref.ref(owner), function, direct


def run(text: str, operands: Sequence[Array], results: Sequence[Array]) -> None:
    """Calls what has that name. Raises what it does, and AgentError if nothing has."""
    owner, function, _ = _named(text)
    function(owner, operands, results)


def _named(text: str) -> tuple[Any, Function, Direct | None]:
    found = _functions.get(text)
    owner = None if found is None else found[0]()
    if found is None or owner is None:
        raise AgentError(f"this process has no {text!r} any more: what calls it was compiled for another job")
    return owner, found[1], found[2]


def has(kind: Any) -> bool:
    """Whether arrays of that type can be handed over."""
    return np.dtype(kind) in _TYPES.values()


def register() -> None:
    """With XLA, as TARGET. Raises JaxRuntimeError if its interface is of a version that does not fit."""
    ffi.def_extern(name="gl_xla_python", error=1)(_called)
    lib.gl_xla_serve(lib.gl_xla_python)
    address = int(ffi.cast("uintptr_t", ffi.addressof(lib, "gl_xla_handle")))
    jax.ffi.register_ffi_target(TARGET, jax.ffi.pycapsule(ctypes.c_void_p(address)), platform="cpu")


def _called(text: Any, length: int, operands: Any, taken: int, results: Any, given: int, why: Any) -> int:
    """Of programs, on threads of XLA's."""
    try:
        owner, function, direct = _named(ffi.unpack(text, length).decode())
        if direct is not None:
            direct(owner, Raw(operands, taken), Raw(results, given))
        else:
            arrays = Raw(operands, taken).arrays()
            for array in arrays:
                array.flags.writeable = False
            function(owner, arrays, Raw(results, given).arrays())
    except BaseException as error:  # also of a thread that is asked to end: C takes no exception
        if not isinstance(error, (AgentError, ValueError)):
            log.exception("a call from a program of JAX failed")
        said = f"{type(error).__name__}: {error}".encode(errors="replace")[: lib.GL_XLA_WHY - 1]
        ffi.memmove(why, said.replace(b"\0", b" ") + b"\0", len(said) + 1)
        return 1
    return 0


def _array(values: Any) -> Array:
    """On XLA's own memory, as long as the call takes."""
    shape = tuple(ffi.unpack(values.dimensions, values.rank)) if values.rank else ()
    kind = _TYPES[values.type]
    nbytes = math.prod(shape) * kind.itemsize
    return np.ndarray(shape, kind, ffi.buffer(values.data, nbytes)) if nbytes else np.empty(shape, kind)
