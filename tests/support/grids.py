# SPDX-License-Identifier: Apache-2.0
"""Rows of a grid, as the core makes them."""

import itertools
from collections.abc import Sequence

from gradlane._core import ffi, lib


def rows_of(members: int, racks: Sequence[int] | None = None) -> list[range]:
    """The places of each row, of so many members in the order of these racks, which ascend."""
    starts = ffi.new("uint16_t[]", members + 1)
    given = ffi.NULL if racks is None else ffi.new("uint16_t[]", list(racks))
    count = lib.gl_grid_rows(given, members, starts)
    assert starts[0] == 0
    return [range(begin, end) for begin, end in itertools.pairwise(starts[0 : count + 1])]
