# SPDX-License-Identifier: Apache-2.0
"""Types of elements: their names, their numbers on the wire and in commands, and what numpy calls them."""

import functools
from typing import Any

import numpy as np

from gradlane import wire

CODES: dict[str, int] = {member.name.lower(): int(member) for member in wire.ElementType}
# numpy has no bfloat16: its bits stand as uint16. ml_dtypes has the type itself.
NUMPY: dict[str, np.dtype[Any]] = {name: np.dtype("uint16" if name == "bfloat16" else name) for name in CODES}
_NAMES = {dtype: name for name, dtype in NUMPY.items() if name != "bfloat16"}  # dtype.name takes long
FLOATS = ("float32", "float16", "bfloat16")  # what may be lost within a tolerance, and travel as another type


def bytes_of(dtype: str) -> int:
    """Bytes of an element. Raises ValueError that names the types there are."""
    if dtype not in NUMPY:
        raise ValueError(f"no element type {dtype!r}: there are {', '.join(NUMPY)}")
    return NUMPY[dtype].itemsize


def is_float(dtype: str) -> bool:
    """Whether elements of that type are fractions, so that there is a mean of them."""
    return "float" in dtype


@functools.cache  # numpy takes 20 us to find out a name
def name_of(dtype: Any) -> str:
    """The name of a numpy type, with ml_dtypes' bfloat16, and bool as uint8. Raises ValueError."""
    dtype = np.dtype(dtype)
    if dtype in _NAMES:
        return _NAMES[dtype]
    name = str(dtype.name)
    name = "uint8" if name == "bool" else name
    bytes_of(name)
    return name
