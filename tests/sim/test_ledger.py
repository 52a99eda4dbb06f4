# SPDX-License-Identifier: Apache-2.0
"""The ledger sees what breaks a guarantee, and nothing where none is broken."""

from typing import Any

import pytest

from gradlane.wire import Flag, Header, Kind
from tests.sim.replay import ask

SLICES = 100
LENGTH = 8


def datagram(kind: Kind, number: int = 0, *, message: int = 7, job: int = 3, **fields: int) -> str:
    """In hexadecimal."""
    length = fields.pop("length", LENGTH if kind in (Kind.DATA, Kind.REPAIR) else 0)
    told = {"slices": SLICES, "slice": number, "budget": 10, "magnitude": 9} | fields
    header = Header(kind=kind, job=job, source=1, message=message, token=5, length=length, **told)
    return (header.pack() + bytes(length)).hex()


def ledger(*events: list[Any], tolerated: tuple[int, int] = (100_000, 20_000)) -> dict[str, Any]:
    """What it makes of datagrams. `tolerated`: of pushes and pulls; magnitudes up to 9 are droppable."""
    return ask("ledger-replay", {"tolerated": tolerated, "droppable": 9, "events": events})


def delivered(count: int, **fields: int) -> list[list[Any]]:
    return [["delivered", datagram(Kind.DATA, n, **fields)] for n in range(count)]


def stop(**fields: int) -> list[Any]:
    return ["sent", 9, 2, 1, datagram(Kind.STOP, **fields)]


@pytest.mark.parametrize(("flags", "most"), [(0, 10), (int(Flag.PULL), 2)], ids=["push", "pull"])
def test_a_message_may_end_with_its_budget_missing_and_no_more(flags: int, most: int) -> None:
    enough = ledger(*delivered(SLICES - most, flags=flags), stop(flags=flags))
    assert enough == {"violations": [], "stops": 1, "missing": most}
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
