# SPDX-License-Identifier: Apache-2.0
"""Random events happen to everything at once, and all comes to what clients were told, without a lost packet."""

from pathlib import Path

import pytest

from tests.chaos.run import TooBusyError, chaos
from tests.support.effort import thorough, tries
from tests.support.postgresql import needs_postgresql

RUNS = tries(2)
EVENTS = 20 if thorough() else 6  # of each run: 200 where all is tried, or one round with each store
STORES = ("sqlite", "postgresql")


@pytest.mark.parametrize(
    ("seed", "store"),
    [pytest.param(it, STORES[it % 2], marks=[needs_postgresql] if it % 2 else []) for it in range(RUNS)],
)
def test_whatever_happens_all_ends_in_the_desired_state_and_no_packet_is_lost_to_the_controller(
    seed: int, store: str, tmp_path: Path
) -> None:
    """BMv2, and a third controller, take part in some runs."""
    try:
        chaos(seed, EVENTS, store, tmp_path, 3 if seed >= 2 else 2, with_bmv2=seed % 4 >= 2)
    except TooBusyError as problem:
        pytest.skip(f"the machine was too busy: {problem}")
