# SPDX-License-Identifier: Apache-2.0
"""Schedules of the core, as lists."""

from gradlane._core import ffi, lib

Transfer = tuple[int, int, int, int]  # round, from, to, chunk


def stragglar(n: int) -> tuple[int, list[Transfer]]:
    """The number of StragglAR's rounds among n members, and all transfers."""
    transfers = ffi.new("gl_transfer[]", n * (n - 1))
    rounds = int(lib.gl_stragglar_schedule(n, transfers))
    return rounds, [(t.round, getattr(t, "from"), t.to, t.chunk) for t in transfers]
