# SPDX-License-Identifier: Apache-2.0
"""All-reduces over a thin core: by racks they take what hosts' links need."""

import pytest

from gradlane_sim.carriers import Gradlane
from gradlane_sim.document import document
from gradlane_sim.fabrics import leaf_spine
from gradlane_sim.specification import SECOND, Job, Specification, Tensor, ideal_time
from tests.sim.simulator import needs_simulator, run, run_document

GBIT = 1_000_000_000
# Four racks of four hosts, of whose rate a quarter leaves a rack.
THIN = leaf_spine(4, 4, 2, 10 * GBIT, 5 * GBIT, 200_000, 1000)
# Four ranks that follow one another are in two racks.
MEMBERS = (0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15)


def took(algorithm: str) -> float:
    """Of the ideal step of hosts' links, which knows no headers."""
    job = Job(1, MEMBERS, Gradlane(), (Tensor(0, 2_000_000, 1),), algorithm=algorithm, check=True)
    specification = Specification(THIN, (job,))
    found = run(specification)
    found.assert_complete(specification)
    return max(end for *_, end in found.job["operations"]) / SECOND / ideal_time(THIN, job)


@needs_simulator
@pytest.mark.parametrize(("algorithm", "most"), [("grid", 1.6), ("ring", 1.6)])
def test_by_racks_it_takes_half_of_what_it_takes_directly(algorithm: str, most: float) -> None:
    by_racks = took(algorithm)
    assert by_racks < most
    assert by_racks < took("direct") / 2


@needs_simulator
def test_rows_that_are_not_racks_gain_less() -> None:
    """As if the controller did not know where hosts are."""
    job = Job(1, MEMBERS, Gradlane(), (Tensor(0, 2_000_000, 1),), algorithm="grid", check=True)
    told = document(Specification(THIN, (job,)))
    assert told["jobs"][0]["carrier"].pop("racks")
    (found,) = run_document(told)["jobs"]
    assert max(end for *_, end in found["operations"]) / SECOND / ideal_time(THIN, job) > 1.5 * took("grid")
