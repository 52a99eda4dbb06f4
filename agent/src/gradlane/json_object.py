# SPDX-License-Identifier: Apache-2.0
"""JSON objects that others send, checked before anything looks into them."""

import json
import re
from collections.abc import Mapping
from typing import Any

# The type of a field, [type] for a list of it, or (type, ...) for one of several; None: it may be absent.
Shape = Any
_SURROGATE = re.compile("[\ud800-\udfff]")
_LARGEST = 1 << 64  # what C takes
# What becomes of one that is not as it should be, where it is used: also a number that C or a float does not take.
NONSENSE = (ValueError, TypeError, AttributeError, LookupError, ArithmeticError)


def parse(data: bytes) -> dict[str, Any]:
    """The object in `data`. Raises ValueError for anything else."""
    try:
        found = json.loads(data)
    except RecursionError:
        raise ValueError(f"{data[:60]!r}... is nested too deeply") from None
    if not isinstance(found, dict):
        raise ValueError(f"{data[:60]!r} is no JSON object")
    return found


def check(found: Mapping[str, Any], fields: Mapping[str, Shape]) -> None:
    """Raises ValueError if a field is missing, or not of its type: "lacks 'rank'", "has [] as 'rank'"."""
    for name, shape in fields.items():
        value = found.get(name)
        if not _fits(value, shape):
            raise ValueError(f"has {repr(value)[:60]} as {name!r}" if name in found else f"lacks {name!r}")


def _fits(value: Any, shape: Shape) -> bool:
    if isinstance(shape, tuple):
        return any(_fits(value, one) for one in shape)
    if isinstance(shape, list):
        return isinstance(value, list) and all(_fits(item, shape[0]) for item in value)
    if shape is int:
        return type(value) is int and abs(value) < _LARGEST  # True is an int to Python
    if shape is str and isinstance(value, str):
        return _SURROGATE.search(value) is None  # which JSON has, and UTF-8 has not
    return value is None if shape is None else type(value) is shape
