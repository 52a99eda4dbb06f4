# SPDX-License-Identifier: Apache-2.0
"""Random events happen to everything at once, and all comes to what clients were told, without a lost packet."""

from pathlib import Path

import pytest

from tests.chaos.run import chaos
from tests.support.effort import thorough
from tests.support.postgresql import needs_postgresql

EVENTS, THOROUGH_EVENTS = 12, 100
SEED = 3


@pytest.mark.alone
@pytest.mark.parametrize("store", ["sqlite", pytest.param("postgresql", marks=needs_postgresql)])
def test_whatever_happens_all_ends_in_the_desired_state_and_no_packet_is_lost_to_the_controller(
    store: str, tmp_path: Path
) -> None:
    chaos(SEED, THOROUGH_EVENTS if thorough() else EVENTS, store, tmp_path, with_bmv2=thorough())
