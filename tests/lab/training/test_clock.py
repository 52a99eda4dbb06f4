# SPDX-License-Identifier: Apache-2.0
"""Which parts make an exchange, and of which group."""

from lab.training.clock import Exchange, ExchangeClock


def test_what_began_later_is_left_and_what_is_noted_late_is_of_its_own_group() -> None:
    clock = ExchangeClock()
    clock.turn(0.0, (0, 1))
    assert clock.take() == []
    for began, done in ((1.0, 1.5), (3.0, 3.25), (1.25, 2.0)):
        clock.observe(began, done)
    clock.turn(2.0, (0, 2))
    assert clock.take(before=2.0) == [Exchange((0, 1), began=1.0, ready=1.25, done=2.0)]
    clock.observe(1.75, 4.0)
    assert clock.take() == [Exchange((0, 1), 1.75, 1.75, 4.0), Exchange((0, 2), 3.0, 3.0, 3.25)]
    assert clock.take() == []
