# SPDX-License-Identifier: Apache-2.0
"""The ledger sees what breaks a guarantee, and nothing where none is broken."""

from typing import Any

import pytest

from gradlane.wire import SUM_BYTES, SUM_WORD, Flag, Header, Kind, Lanes
from tests.sim.replay import ask
from tests.support.sum_switch import SumHeader

SLICES = 100
LENGTH = 8
WORKERS = 3


def datagram(kind: Kind, number: int = 0, *, message: int = 7, job: int = 3, **fields: int) -> str:
    """In hexadecimal."""
    length = fields.pop("length", LENGTH if kind in (Kind.DATA, Kind.REPAIR) else 0)
    told = {"slices": SLICES, "slice": number, "budget": 10, "magnitude": 9} | fields
    header = Header(kind=kind, job=job, source=1, message=message, token=5, length=length, **told)
    return (header.pack() + bytes(length)).hex()


def ledger(
    *events: list[Any], tolerated: tuple[int, int] = (100_000, 20_000), workers: int = WORKERS
) -> dict[str, Any]:
    """What it makes of datagrams. `tolerated`: of pushes and pulls; magnitudes up to 9 are droppable."""
    told = {"tolerated": tolerated, "droppable": 9, "workers": workers, "events": events}
    return ask("ledger-replay", told)


def delivered(count: int, **fields: int) -> list[list[Any]]:
    return [["delivered", datagram(Kind.DATA, n, **fields)] for n in range(count)]


def stop(**fields: int) -> list[Any]:
    return ["sent", 9, 2, 1, datagram(Kind.STOP, **fields)]


@pytest.mark.parametrize(("flags", "most"), [(0, 10), (int(Flag.PULL), 2)], ids=["push", "pull"])
def test_a_message_may_end_with_its_budget_missing_and_no_more(flags: int, most: int) -> None:
    enough = ledger(*delivered(SLICES - most, flags=flags), stop(flags=flags))
    assert (enough["violations"], enough["stops"], enough["missing"]) == ([], 1, most)
    found = ledger(*delivered(SLICES - most - 1, flags=flags), stop(flags=flags))
    (violation,) = found["violations"]
    assert violation == f"message 7 of job 3 ended with {most + 1} of 100 slices missing; {most} may be"


def test_without_tolerance_a_single_missing_slice_is_told() -> None:
    assert ledger(*delivered(SLICES), stop(), tolerated=(0, 0))["violations"] == []
    assert len(ledger(*delivered(SLICES - 1), stop(), tolerated=(0, 0))["violations"]) == 1


def test_only_new_slices_that_are_whole_and_of_the_message_count() -> None:
    others = [
        ["delivered", datagram(Kind.DATA, 1)],  # again
        ["delivered", datagram(Kind.DATA, 90, message=8)],
        ["delivered", datagram(Kind.DATA, 90, job=4)],
        ["delivered", datagram(Kind.TRIMMED, 90)],
        ["delivered", datagram(Kind.DATA, 90)[:-2]],
        ["delivered", datagram(Kind.DATA, 100)],
        ["sent", 1, 1, 2, datagram(Kind.DATA, 90)],
    ]
    assert ledger(*delivered(90), *others, stop())["missing"] == 10
    found = ledger(*delivered(89), *others, stop())
    assert (found["missing"], len(found["violations"])) == (11, 1)
    repaired = ledger(*delivered(89), ["delivered", datagram(Kind.REPAIR, 90)], stop())
    assert (repaired["missing"], repaired["violations"]) == (10, [])


def test_what_comes_after_the_end_does_not_count_and_a_message_ends_once() -> None:
    found = ledger(*delivered(89), stop(), *delivered(SLICES), stop())
    assert (found["stops"], found["missing"], len(found["violations"])) == (1, 11, 1)


def test_switches_together_take_no_more_than_the_budget() -> None:
    def taken(count: int) -> list[list[Any]]:
        return [["taken", Kind.DATA, datagram(Kind.DATA, n)] for n in range(count)]

    assert ledger(*taken(10))["violations"] == []
    assert ledger(*taken(10), ["taken", Kind.DATA, datagram(Kind.DATA, 11, message=8)])["violations"] == []
    found = ledger(*taken(11))["violations"]
    assert found == ["switches took 11 slices of message 7; its budget is 10"]


@pytest.mark.parametrize(("kind", "magnitude"), [(Kind.REPAIR, 9), (Kind.DATA, 10)])
def test_what_is_protected_is_not_taken(kind: Kind, magnitude: int) -> None:
    trimmed = datagram(Kind.TRIMMED, magnitude=magnitude)
    assert ledger(["taken", kind, trimmed])["violations"] == ["a switch took a protected slice of message 7"]
    assert ledger(["taken", Kind.DATA, datagram(Kind.TRIMMED)])["violations"] == []


def summed(lanes: int, *, members: int = 0, number: int = 5, generation: int = 1, flags: int = 0, **fields: int) -> str:
    """A contribution, with PULL a result; its lanes are all alike."""
    body = SumHeader(generation, members).pack() + lanes.to_bytes(2, "big") * (SUM_WORD // 2)
    told = {"slices": SLICES, "magnitude": 255, "element_type": Lanes.INT16_LANES, "flags": flags | Flag.SUM} | fields
    header = Header(kind=Kind.DATA, job=3, source=1, message=number, token=5, length=SUM_BYTES + SUM_WORD, **told)
    return (header.pack() + body).hex()


def contributed(*lanes: int, **fields: int) -> list[list[Any]]:
    """Of ranks 0 and on."""
    return [["sent", 1, rank, 4, summed(it, **fields)] for rank, it in enumerate(lanes)]


def result(lanes: int, members: int = 0b111, **fields: int) -> list[Any]:
    return ["delivered", summed(lanes, members=members, flags=Flag.PULL, **fields)]


def test_a_result_is_the_sum_of_what_its_members_have_contributed() -> None:
    found = ledger(*contributed(1, 20, 300), result(321), result(321), tolerated=(0, 0))
    assert found == {"violations": [], "stops": 0, "missing": 0, "results": 1, "left_out": 0}
    assert ledger(*contributed(1, 20, 300), result(322))["violations"] == [
        "slice 5 of job 3 is not the sum of its members' contributions"
    ]
    assert ledger(*contributed(1, 20), result(321))["violations"], "of a rank that has sent nothing"
    assert ledger(*contributed(1, 20, 300), result(0, members=0))["violations"]


def test_who_is_missing_is_not_in_it_and_within_the_budget() -> None:
    results = [[*contributed(1, 20, 300, number=n), result(301, 0b101, number=n)] for n in range(11)]
    found = ledger(*(it for events in results[:10] for it in events))
    assert (found["violations"], found["left_out"]) == ([], 10)
    found = ledger(*(it for events in results for it in events))["violations"]
    assert found == ["rank 1 is missing in more than 10 of 100 slices, the last of them slice 10 of job 3"]
    assert ledger(*contributed(1, 20, 300), result(321, 0b101))["violations"], "it is in the lanes"


@pytest.mark.parametrize("other", [result(301, 0b101), result(322)], ids=["members", "lanes"])
def test_a_slice_has_one_result(other: list[Any]) -> None:
    found = ledger(*contributed(1, 20, 300), result(321), other)["violations"]
    assert found == ["slice 5 of job 3 has two results"]


def test_of_more_workers_than_bits_all_are_in_every_result() -> None:
    lanes = [3 * rank + 1 for rank in range(40)]
    every = 0xFFFFFFFF
    assert ledger(*contributed(*lanes), result(sum(lanes), every), workers=40)["violations"] == []
    without = result(sum(lanes) - lanes[35], every)
    assert ledger(*contributed(*lanes), without, workers=40)["violations"] == [
        "slice 5 of job 3 is not the sum of its members' contributions"
    ]
    assert ledger(*contributed(*lanes), result(sum(lanes), every >> 1), workers=40)["violations"] == [
        "slice 5 of job 3 lacks workers of a job in which nobody may be missing"
    ]


def test_of_another_generation_it_is_another_slice() -> None:
    again = [*contributed(4, 4, 4, generation=2), result(12, generation=2)]
    assert ledger(*contributed(1, 20, 300), result(321), *again)["violations"] == []
