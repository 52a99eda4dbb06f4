# SPDX-License-Identifier: Apache-2.0
"""The loss budget: what the switch takes of a message, and from which message."""

from dataclasses import replace

import pytest
from finsy import Action, P4TableEntry
from gradlane_packets import H1, H2, H3, H4, Host, gradient
from packet_bench import GREEN, YELLOW, Bench, job_file

from gradlane.wire import Kind
from gradlane_controller.counters import Reason
from gradlane_controller.policy import Entity

MASK = 4095  # of the job's slots
HALF = 1 << 31  # of the numbers of messages


@pytest.fixture
def red(bench: Bench) -> Bench:
    """The port of h2 is red; job 1 has slots 0 to 4095, job 2 has 4096 to 8191."""
    bench.install(job_file(), job_file(2, (H1, H2, H4), base=4096))
    congest(bench)
    return bench


def congest(bench: Bench) -> None:
    bench.congest(H1, gradient(kind=Kind.REPAIR, layer=1), GREEN + YELLOW)


def dropped(bench: Bench, message: int, count: int = 1, budget: int = 65535, source: Host = H1, **header: int) -> int:
    """How many of `count` droppable slices of a message do not arrive."""
    frame = gradient(source, H2, layer=1, magnitude=0, message=message, budget=budget, **header)
    return sum(not bench.process(source, frame) for _ in range(count))


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
    bench.install(job_file())
    bench.congest(H1, gradient(kind=Kind.REPAIR, layer=1), GREEN)
    assert dropped(bench, 1, budget=2) == 1
    bench.congest(H1, gradient(kind=Kind.REPAIR, layer=1), YELLOW)
    assert dropped(bench, 1, count=5, budget=2) == 1
    assert outcomes(bench) == {Reason.DROPPED_YELLOW: 1, Reason.DROPPED_RED: 1, Reason.BUDGET_SPENT: 4}


def test_the_controllers_share_caps_what_a_message_states(bench: Bench) -> None:
    def cap(entity: Entity) -> Entity:
        if not isinstance(entity, P4TableEntry) or entity.table_id != "senders":
            return entity
        return replace(entity, action=Action("permit", slot_base=0, slot_mask=MASK, max_share=4))

    bench.install(job_file(), change=cap)
    congest(bench)
    assert dropped(bench, 1, count=20, budget=9) == 4
    assert dropped(bench, 2, count=20, budget=3) == 3


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
