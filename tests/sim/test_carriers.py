# SPDX-License-Identifier: Apache-2.0
"""Jobs over the rivals' transports: who sends what to whom, and that all of it comes whatever the network does."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from gradlane_sim.carriers import Gradlane, Rival
from gradlane_sim.errors import SimulationError
from gradlane_sim.groups import Scheduled
from gradlane_sim.specification import HostStops, LinkChanges, Queue, ideal_time
from tests.sim.rivals import (
    CUBIC,
    DCTCP,
    MARK,
    MS,
    NO_MARK,
    PFABRIC,
    PIAS,
    SMALLEST_FIRST,
    TRIM,
    TRIMMING,
    fabric,
    job,
    run,
)

SIZE = 400_000
EACH = {
    "dctcp": (DCTCP, MARK, 300_000),
    "cubic": (CUBIC, NO_MARK, 300_000),
    "pias": (DCTCP, PIAS, 300_000),
    "pfabric": (PFABRIC, SMALLEST_FIRST, 36_000),
    "trimming": (TRIMMING, TRIM, 100_000),
}
each = pytest.mark.parametrize(("carrier", "queue", "buffer"), EACH.values(), ids=EACH)


def only(result: dict[str, Any]) -> dict[str, Any]:
    (found,) = result["jobs"]
    return found


@each
@pytest.mark.parametrize(
    "settings",
    [{}, {"servers": 1}, {"servers": 2}, {"algorithm": "ring"}, {"algorithm": "grid"}],
    ids=["direct", "server", "servers", "ring", "grid"],
)
def test_a_step_takes_little_more_than_its_bytes_need(
    carrier: Rival, queue: Queue, buffer: int, settings: dict[str, Any]
) -> None:
    on = fabric(6, queue, buffer)
    reduced = job(carrier, 6, 6_000_000, **settings)
    result = run(on, [reduced])
    assert only(result)["error"] == ""
    needed = ideal_time(on, reduced)
    took = only(result)["step_ends"][0] / 1e9
    # Servers have both directions of their links to use, but no result before the last contribution. A row hands on
    # whole messages.
    waits = reduced.servers or reduced.algorithm == "grid"
    assert needed < took < (2.2 if waits else 1.4) * needed


def test_from_all_to_all_each_rank_reduces_a_part() -> None:
    result = run(fabric(4, MARK), [job(DCTCP, 4, SIZE, steps=2)])
    sent = Counter((a, b, pull, size) for _, a, b, pull, size, *_ in result["messages"])
    pairs = [(a, b) for a in range(4) for b in range(4) if a != b]
    assert sent == {(a, b, pull, SIZE // 4): 2 for a, b in pairs for pull in (False, True)}
    assert only(result)["steps_complete"] == 2


def test_servers_reduce_a_part_each() -> None:
    result = run(fabric(5, MARK), [job(DCTCP, 5, SIZE, servers=2)])
    sent = Counter((a, b, pull, size) for _, a, b, pull, size, *_ in result["messages"])
    ways = [(a, b, False) for a in range(3) for b in (3, 4)] + [(b, a, True) for a in range(3) for b in (3, 4)]
    assert sent == {(*way, SIZE // 2): 1 for way in ways}


def test_in_a_ring_each_piece_goes_round_twice_but_for_two_hops() -> None:
    result = run(fabric(4, MARK), [job(DCTCP, 4, SIZE, algorithm="ring")])
    sent = Counter((a, b, pull, size) for _, a, b, pull, size, *_ in result["messages"])
    assert sent == {(a, (a + 1) % 4, pull, SIZE // 4): 3 for a in range(4) for pull in (False, True)}


def test_in_a_grid_rows_add_up_what_they_send_each_other() -> None:
    """Of two rows of three: a part comes from two of its owner's row, and what the other row has of it is added up by
    the one who stands there as its owner does here. Results go the same way back."""
    result = run(fabric(6, MARK), [job(DCTCP, 6, 2_400_000, algorithm="grid")])
    sent = Counter((a, b, pull, size) for _, a, b, pull, size, *_ in result["messages"])
    pairs = [(a, b) for a in range(6) for b in range(6) if a != b]
    expected = {(a, b): 2 if a // 3 == b // 3 else 1 for a, b in pairs if a // 3 == b // 3 or a % 3 == b % 3}
    assert sent == {(*pair, pull, 400_000): count for pair, count in expected.items() for pull in (False, True)}


@pytest.mark.parametrize("late", range(5))
def test_in_a_grid_too_all_wait_for_each(late: int) -> None:
    """Of rows of two and three."""
    delays = (tuple(30 * MS * (rank == late) for rank in range(5)),)
    result = run(fabric(5, MARK), [job(DCTCP, 5, SIZE, algorithm="grid", delays=delays)])
    operations = only(result)["operations"]
    assert sorted(rank for _, rank, *_ in operations) == [0, 1, 2, 3, 4]
    assert min(end for *_, end in operations) > 30 * MS


def test_a_result_waits_for_the_last_contribution() -> None:
    late = 30 * MS
    for settings in ({}, {"servers": 1}, {"algorithm": "ring"}, {"algorithm": "grid"}):
        result = run(
            fabric(4, MARK),
            [job(DCTCP, 4, SIZE, delays=((0, 0, late) + (0,) * (not settings.get("servers")),), **settings)],
        )
        assert min(end for _, _, _, _, end in only(result)["operations"]) > late
        for _, rank, _, start, _ in only(result)["operations"]:
            assert start == (late if rank == 2 else 0)
        assert all(start >= late for _, a, _, _, _, start, _ in result["messages"] if a == 2)


@each
def test_every_message_comes_although_packets_get_lost(carrier: Rival, queue: Queue, buffer: int) -> None:
    result = run(fabric(4, queue, buffer, loss=0.01), [job(carrier, 4, SIZE, steps=3)])
    assert only(result)["error"] == ""
    assert len(result["messages"]) == 3 * 2 * 4 * 3
    assert sum(link["lost"] for link in result["links"]) > 10


@each
def test_every_message_comes_although_a_link_is_down_for_a_while(carrier: Rival, queue: Queue, buffer: int) -> None:
    faults = [LinkChanges(1, 4, at, up) for at, up in ((MS, False), (101 * MS, True))]
    result = run(fabric(4, queue, buffer), [job(carrier, 4, SIZE)], faults=faults)
    assert only(result)["error"] == ""
    assert 101 * MS < only(result)["step_ends"][0] < 1000 * MS


@each
def test_a_host_that_stops_is_named(carrier: Rival, queue: Queue, buffer: int) -> None:
    result = run(fabric(4, queue, buffer), [job(carrier, 4, SIZE)], faults=[HostStops(2, MS, 50 * MS)])
    assert only(result)["error"] == "rank 2 is dead: host 2 was not heard of"


def test_a_job_that_does_not_end_says_whom_it_waits_for() -> None:
    result = run(fabric(2, MARK), [job(DCTCP, 2, SIZE)], faults=[LinkChanges(0, 2, 0, False)], limit=100 * MS)
    assert only(result)["error"] == "not over after 0.100000 s; rank 1 waits for rank 0 in step 1"


@each
def test_the_same_seed_gives_the_same_bits(carrier: Rival, queue: Queue, buffer: int) -> None:
    first, second = (run(fabric(4, queue, buffer, loss=0.01), [job(carrier, 4, SIZE)]) for _ in range(2))
    for result in (first, second):
        del result["wall"]
    assert first == second


@pytest.mark.parametrize("push", [0.0, 0.1])
def test_dctcp_flows_beside_a_job_of_gradlanes(push: float) -> None:
    on = fabric(4, Queue("priority", (("mark", 30_000),)))
    flows = [(step * MS, 0, 1 + step % 3, 100_000) for step in range(20)]
    gradlane = [job(Gradlane(push=push), 4, 4_000_000, steps=2, compute=100 * MS)]
    alone, beside = run(on, gradlane), run(on, gradlane, flows, DCTCP)
    for result in (alone, beside):
        assert only(result)["error"] == "" == "".join(result["violations"])
    assert all(end for _, end, *_ in beside["flows"])
    # Their class is below that of gradients.
    assert only(beside)["operations"][0][4] < 1.1 * only(alone)["operations"][0][4]


def test_what_it_can_not_carry_is_refused() -> None:
    for carrier, message in (
        (Rival("tcp", (("congestion", "reno"), ("min_rto", MS))), "dctcp or cubic"),
        (Rival("carts"), "it must be gradlane, tcp, pfabric or trimming"),
        (Rival("pfabric", (("window", 1), ("rto", 0))), "rto"),
    ):
        with pytest.raises(SimulationError, match=message):
            run(fabric(2, MARK), [job(carrier, 2, SIZE)])
    pairs = Scheduled((((0, 1),),))
    with pytest.raises(SimulationError, match="of all workers, and not of groups"):
        run(fabric(4, MARK), [job(DCTCP, 4, SIZE, algorithm="grid", groups=pairs)])
    with pytest.raises(SimulationError, match="direct, ring or grid"):
        run(fabric(2, MARK), [job(DCTCP, 2, SIZE, algorithm="stragglar")])
    with pytest.raises(SimulationError, match="priority, mark, pias, pfabric or trim"):
        run(replace(fabric(2, Queue("lifo"))), [job(DCTCP, 2, SIZE)])
