# SPDX-License-Identifier: Apache-2.0
"""The loss budget: what the switch takes of a message, and from which message."""

import pytest

from gradlane.wire import MAX_SLICES, Kind
from tests.p4src.packet_bench import Bench, Reason
from tests.support.entries import GREEN, MASK, YELLOW, budget_share, congestion, fabric, job, without
from tests.support.gradlane_packets import FAR, H1, H2, H3, H4, U5, U6, UPLINKS, Host, gradient

HALF = 1 << 31  # of the numbers of messages


@pytest.fixture
def red(bench: Bench) -> Bench:
    """The port of h2 is red; job 1 has slots 0 to 4095, job 2 has 4096 to 8191."""
    bench.install(fabric(), job(), job(2, (H1, H2, H4), base=MASK + 1), congestion())
    congest(bench)
    return bench


def congest(bench: Bench) -> None:
    bench.congest(H1, gradient(kind=Kind.REPAIR, layer=1), GREEN + YELLOW)


def dropped(
    bench: Bench, message: int, count: int = 1, budget: int = MAX_SLICES, source: Host = H1, **header: int
) -> int:
    """How many of `count` droppable slices of a message do not arrive."""
    frame = gradient(source, H2, layer=1, magnitude=0, message=message, budget=budget, **header)
    return count - len(bench.process(source, *[frame] * count))


def outcomes(bench: Bench) -> dict[Reason, int]:
    """Droppable slices by what was decided."""
    return {reason: count for (reason, _, precedence), count in bench.decisions().items() if precedence}


@pytest.mark.parametrize("budget", [1, 2, 5, 29, 30])
def test_no_more_than_a_message_tolerates_is_dropped_and_then_it_is_let_through(red: Bench, budget: int) -> None:
    assert dropped(red, 7, count=30, budget=budget) == budget
    spent = {} if budget == 30 else {Reason.BUDGET_SPENT: 30 - budget}
    assert outcomes(red) == {Reason.DROPPED_RED: budget} | spent


def test_every_message_has_a_budget_of_its_own(red: Bench) -> None:
    for message in (1, 2, 3, MASK):
        assert dropped(red, message, count=10, budget=3) == 3


def test_the_budget_is_the_same_one_at_yellow_and_at_red(bench: Bench) -> None:
    bench.install(fabric(), job(), congestion())
    bench.congest(H1, gradient(kind=Kind.REPAIR, layer=1), GREEN)
    assert dropped(bench, 1, budget=2) == 1
    bench.congest(H1, gradient(kind=Kind.REPAIR, layer=1), YELLOW)
    assert dropped(bench, 1, count=5, budget=2) == 1
    assert outcomes(bench) == {Reason.DROPPED_YELLOW: 1, Reason.DROPPED_RED: 1, Reason.BUDGET_SPENT: 4}


def test_the_controllers_share_caps_what_a_message_states(bench: Bench) -> None:
    bench.install(fabric(), job(max_share=4), congestion())
    congest(bench)
    assert dropped(bench, 1, count=20, budget=9) == 4
    assert dropped(bench, 2, count=20, budget=3) == 3
    assert dropped(bench, 3, count=20, budget=4) == 4


def test_a_newer_message_takes_the_slot_over_with_its_whole_budget(red: Bench) -> None:
    assert dropped(red, 5, count=10, budget=3) == 3
    assert dropped(red, 5 + MASK + 1, count=10, budget=3) == 3
    assert Reason.STALE_MESSAGE not in outcomes(red)


def test_an_older_message_than_the_slots_owner_is_protected_and_counted(red: Bench) -> None:
    newer, older = 5 + 2 * (MASK + 1), 5
    assert dropped(red, newer, budget=2) == 1
    assert dropped(red, older, count=10) == 0
    assert outcomes(red) == {Reason.DROPPED_RED: 1, Reason.STALE_MESSAGE: 10}
    assert dropped(red, newer, count=10, budget=2) == 1, "the older one must not have reset the owner's count"


def test_messages_are_compared_by_serial_number_so_that_they_may_wrap(red: Bench) -> None:
    last = 2**32 - (MASK + 1) + 9
    assert dropped(red, last, count=3, budget=1) == 1
    assert dropped(red, 9, count=3, budget=1) == 1, "9 comes after 2^32 - 4087, and in the same slot"
    assert dropped(red, last, count=3, budget=3) == 0, "and then that one is the older one"


def test_half_the_number_range_ahead_is_the_past(red: Bench) -> None:
    assert dropped(red, 6) == 1
    assert dropped(red, 6 + HALF) == 0
    assert dropped(red, 6 + HALF - (MASK + 1)) == 1


def test_a_slot_that_nobody_used_has_no_age(red: Bench) -> None:
    """Message numbers start anywhere, also in the upper half."""
    assert dropped(red, HALF + 11, count=3, budget=2) == 2
    assert dropped(red, 2**32 - 1, count=3, budget=2) == 2
    assert Reason.STALE_MESSAGE not in outcomes(red)


def test_message_0_has_a_budget_like_any_other(red: Bench) -> None:
    assert dropped(red, 0, count=5, budget=2) == 2


def test_jobs_with_slots_of_their_own_do_not_disturb_one_another(red: Bench) -> None:
    assert dropped(red, 3, count=5, budget=2, job=1) == 2
    assert dropped(red, 3 + MASK + 1, count=5, budget=2, job=2) == 2, "the same place in the range of job 2"
    assert dropped(red, 3, count=5, budget=4, job=1) == 2, "job 1's count must still be there"


def test_a_message_spends_one_budget_whichever_port_its_slices_enter_by(red: Bench) -> None:
    assert dropped(red, 8, count=2, budget=3, source=H1) == 2
    assert dropped(red, 8, count=5, budget=3, source=H3) == 1


def test_only_dropped_slices_are_counted_against_the_budget(red: Bench) -> None:
    for kind in (Kind.REPAIR, Kind.PROBE):
        assert dropped(red, 12, count=3, kind=kind) == 0
    assert dropped(red, 12, count=5, budget=2) == 2


PARTS = {
    "whole": lambda budget: budget,
    "half": lambda budget: budget // 2,
    "rest_of_half": lambda budget: budget - budget // 2,
    "quarter": lambda budget: budget // 4,
    "eighth": lambda budget: budget // 8,
    "sixteenth": lambda budget: budget // 16,
    "nothing": lambda budget: 0,
}
# By where a slice comes from and where it goes: the port that it enters by, and its destination.
PLACES = {
    (0, 0): (H1, H1, H2),
    (0, 1): (H1, H1, FAR),
    (1, 0): (U5, FAR, H2),
    (1, 1): (U6, H2, FAR),
}


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("place", PLACES, ids=["host to host", "host to fabric", "fabric to host", "fabric to fabric"])
def test_a_switch_takes_the_part_of_a_budget_that_its_place_on_the_path_has(
    bench: Bench, place: tuple[int, int], part: str
) -> None:
    others = [budget_share(*other, "half" if part == "whole" else "whole") for other in PLACES if other != place]
    shares = without(congestion(), "budget_shares")
    bench.install(fabric(), job(), shares, [*others, budget_share(*place, part)])
    through, source, destination = PLACES[place]

    def send(count: int, **header: int) -> int:
        """How many of `count` slices arrive."""
        fields = {"layer": 1, "magnitude": 0, **header}
        frame = gradient(source, destination, through=through, ip_fields={"tos": 0b110_011_00}, **fields)
        return len(bench.process(through, *[frame] * count))

    congested = 4 if destination is FAR else 1  # ports
    assert send(congested * 40, kind=Kind.REPAIR) == congested * 40
    for message, budget in enumerate((0, 1, 2, 3, 7, 16, 31), 1):
        # The slices of a message go to one port each as they have one number; the budget is the switch's.
        assert 40 - send(40, message=message, budget=budget) == PARTS[part](budget), f"budget {budget}"


def test_without_a_part_nothing_is_taken(bench: Bench) -> None:
    """The default of budget_shares."""
    shares = without(congestion(), "budget_shares")
    bench.install(fabric(), job(), shares)
    congest(bench)
    assert dropped(bench, 1, count=10, budget=9) == 0
    assert outcomes(bench) == {Reason.BUDGET_SPENT: 10}


def test_a_message_spends_one_budget_whichever_port_its_slices_leave_by(bench: Bench) -> None:
    bench.install(fabric(), job(), congestion())
    for uplink in UPLINKS:
        bench.congest(H1, gradient(H1, FAR, kind=Kind.REPAIR, layer=1, slice=uplink.port), GREEN + YELLOW)
    frames = [gradient(H1, FAR, layer=1, magnitude=0, budget=20, message=8, slice=n) for n in range(40)]
    assert len(bench.process(H1, *frames)) == 40 - 20 // 2, "half of it, as for every slice from a host into the fabric"


def test_a_slot_beyond_the_register_wraps(bench: Bench) -> None:
    bench.install(fabric(), job(base=65535, mask=1), congestion())
    congest(bench)
    assert dropped(bench, 2, count=5, budget=2) == 2  # slot 65535
    assert dropped(bench, 3, count=5, budget=2) == 2  # slot 0
    assert dropped(bench, 2, count=5, budget=4) == 2
    assert dropped(bench, 3, count=5, budget=4) == 2
