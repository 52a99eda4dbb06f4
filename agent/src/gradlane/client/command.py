# SPDX-License-Identifier: Apache-2.0
"""The command for a collective, as a process puts it into the ring."""

from collections.abc import Callable
from typing import Any

import numpy.typing as npt

from gradlane._core import ffi, lib
from gradlane.job import elements

COLLECTIVES = {
    "all_reduce": lib.GL_ALL_REDUCE,
    "reduce_scatter": lib.GL_REDUCE_SCATTER,
    "all_gather": lib.GL_ALL_GATHER,
    "broadcast": lib.GL_BROADCAST,
    "reduce": lib.GL_REDUCE,
    "all_to_all": lib.GL_ALL_TO_ALL,
    "send": lib.GL_SEND,
    "receive": lib.GL_RECEIVE,
}
REDUCTIONS = {
    "mean": lib.GL_MEAN,
    "sum": lib.GL_SUM,
    "min": lib.GL_MIN,
    "max": lib.GL_MAX,
    "product": lib.GL_PRODUCT,
}
Array = npt.NDArray[Any]


def check(kind: str, op: str, dtype: str, tolerance: float = 0.0, standing: bool = False) -> None:
    """Raises ValueError if there is no such collective, or no such reduction of that type."""
    if kind not in COLLECTIVES:
        raise ValueError(f"no collective {kind!r}: there are {', '.join(COLLECTIVES)}, barrier")
    if op not in REDUCTIONS:
        raise ValueError(f"no reduction {op!r}: there are {', '.join(REDUCTIONS)}")
    if op == "mean" and not elements.is_float(dtype):
        raise ValueError(f"there is the mean of floats only, not of {dtype}: use another op")
    if not 0 <= tolerance <= (1 if kind in ("send", "receive") else 0):
        raise ValueError(f"a tolerance of {tolerance:g} for {kind}: send and receive have one, from 0 to 1")
    if standing and kind != "receive":
        raise ValueError(f"{kind} can't be standing: receive can")


def collective(
    kind: str,
    source: Array | None,
    target: Array | None,
    op: str,
    root: int,
    dtype: str,
    group: int,
    members: int,
    tolerance: float,
    standing: bool,
    locate: Callable[[Array], tuple[int, int] | None],
) -> Any:
    """The gl_command of a collective that `check` has passed.

    `group`: its number, with so many `members`; `locate`: the region and offset of an array in shared memory. Raises
    ValueError where the arrays do not fit each other, or lie elsewhere.
    """
    count = _block(kind, source, target, members)
    made = ffi.new("gl_command *")
    made.kind, made.target, made.root = lib.GL_COMMAND_COLLECTIVE, group, root
    made.collective, made.element_type = COLLECTIVES[kind], elements.CODES[dtype]
    made.reduction, made.elements = REDUCTIONS[op], count
    made.loss, made.standing = round(tolerance * 1e6), standing
    for array, prefix in ((source, "in"), (target, "out")):
        place = None
        if array is not None:
            place = locate(array)
            if place is None:
                raise ValueError("an array of a collective must be one that Connection.takes: made by its `empty`")
        region, offset = place or (lib.GL_NO_REGION, 0)
        setattr(made, f"{prefix}_region", region)
        setattr(made, prefix, offset)
    return made


def _block(kind: str, source: Array | None, target: Array | None, members: int) -> int:
    """Elements as a command states them. Raises ValueError where the arrays do not fit each other."""
    sizes = [None if array is None else array.size for array in (source, target)]
    if kind in ("reduce_scatter", "all_to_all"):
        sizes[0] = _part(kind, sizes[0], members)
    if kind in ("all_gather", "all_to_all"):
        sizes[1] = _part(kind, sizes[1], members)
    known = {size for size in sizes if size is not None}
    if known == {0}:
        raise ValueError(f"{kind} of no elements: there is nothing to send")
    if len(known) != 1:
        raise ValueError(f"{kind}: blocks of {sizes[0]} elements in the source and {sizes[1]} in the target")
    return known.pop()


def _part(kind: str, size: int | None, members: int) -> int | None:
    if size is not None and size % members:
        raise ValueError(f"{kind}: {size} elements are not a block for each of {members} members")
    return None if size is None else size // members
