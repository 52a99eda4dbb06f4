# SPDX-License-Identifier: Apache-2.0
"""All-reduces over a thin core: by racks they take what hosts' links need."""

from collections import Counter
from dataclasses import replace

import pytest

from gradlane_sim.carriers import Carrier, Gradlane
from gradlane_sim.document import document
from gradlane_sim.errors import SimulationError
from gradlane_sim.fabrics import leaf_spine
from gradlane_sim.specification import SECOND, Job, Queue, Specification, Tensor, ideal_time
from tests.sim.rivals import DCTCP
from tests.sim.simulator import needs_simulator, run, run_document

GBIT = 1_000_000_000
# Four racks of four hosts, of whose rate a quarter leaves a rack.
THIN = leaf_spine(4, 4, 2, 10 * GBIT, 5 * GBIT, 200_000, 1000)
# Four ranks that follow one another are in two racks.
MEMBERS = (0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15)
GRADLANE = Gradlane()
MARK = Queue("mark", (("threshold", 100_000),))


def reduced(algorithm: str, carrier: Carrier, size: int = 2_000_000) -> Specification:
    queue = Queue() if isinstance(carrier, Gradlane) else MARK
    job = Job(1, MEMBERS, carrier, (Tensor(0, size, 1),), algorithm=algorithm, check=queue == Queue())
    return Specification(replace(THIN, queue=queue), (job,))


def took(algorithm: str, carrier: Carrier = GRADLANE) -> float:
    """Of the ideal step of hosts' links, which knows no headers."""
    specification = reduced(algorithm, carrier)
    found = run(specification)
    found.assert_complete(specification)
    return max(end for *_, end in found.job["operations"]) / SECOND / ideal_time(THIN, specification.jobs[0])


@needs_simulator
@pytest.mark.parametrize(("algorithm", "most"), [("grid", 1.6), ("ring", 1.6)])
def test_by_racks_it_takes_half_of_what_it_takes_directly(algorithm: str, most: float) -> None:
    by_racks = took(algorithm)
    assert by_racks < most
    assert by_racks < took("direct") / 2


@needs_simulator
def test_of_what_leaves_a_rack_directly_a_rivals_rows_of_four_let_a_quarter_leave() -> None:
    between: dict[str, int] = {}
    for algorithm in ("direct", "grid"):
        links = run(reduced(algorithm, DCTCP)).told["links"]
        between[algorithm] = sum(it["bytes"] for it in links if min(it["from"], it["to"]) >= THIN.hosts)
    assert between["grid"] == pytest.approx(between["direct"] / 4, rel=0.1)


@needs_simulator
@pytest.mark.parametrize("workers", [16, 11])
def test_in_a_rivals_grid_all_send_what_they_would_send_in_gradlanes(workers: int) -> None:
    """To whom, and how many bytes, but for how parts are rounded. 11: rows of unequal length.

    Of Gradlane's messages slices are told."""
    sent: list[Counter[tuple[int, int, bool]]] = []
    for carrier in (GRADLANE, DCTCP):
        asked = reduced("grid", carrier)
        asked = replace(asked, jobs=(replace(asked.jobs[0], members=MEMBERS[:workers]),))
        found = run(asked)
        found.assert_complete(asked)
        of: Counter[tuple[int, int, bool]] = Counter()
        for _, a, b, pull, size, *_ in found.told["messages"]:
            of[a, b, pull] += size * (GRADLANE.slice_bytes if carrier is GRADLANE else 1)
        sent.append(of)
    ours, rivals = sent
    assert ours.keys() == rivals.keys()
    for way, size in ours.items():
        assert size == pytest.approx(rivals[way], rel=0.05)


@needs_simulator
@pytest.mark.parametrize("rows", [[[0, 1, 2], [4, 5]], [[0, 1, 2], [2, 3]], [[0, 1, 2, 3], []]])
def test_rows_have_each_worker_once(rows: list[list[int]]) -> None:
    asked = reduced("grid", DCTCP)
    told = document(replace(asked, jobs=(replace(asked.jobs[0], members=(0, 1, 2, 3)),)))
    told["jobs"][0]["rows"] = rows
    with pytest.raises(SimulationError, match="row"):
        run_document(told)


@needs_simulator
def test_rows_that_are_not_racks_gain_less() -> None:
    """As if the controller did not know where hosts are."""
    job = Job(1, MEMBERS, Gradlane(), (Tensor(0, 2_000_000, 1),), algorithm="grid", check=True)
    told = document(Specification(THIN, (job,)))
    assert told["jobs"][0]["carrier"].pop("racks")
    (found,) = run_document(told)["jobs"]
    assert max(end for *_, end in found["operations"]) / SECOND / ideal_time(THIN, job) > 1.5 * took("grid")
