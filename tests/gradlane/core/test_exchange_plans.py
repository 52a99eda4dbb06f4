# SPDX-License-Identifier: Apache-2.0
"""Plans at a host's exchange: from which step they hold, and how steps wait until they are known."""

import itertools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from gradlane._core import ffi, lib

from gradlane.wire import Flag, Header, Kind
from tests.gradlane.core.protocol.network import MEAN_FLOAT32, TOKEN
from tests.gradlane.core.test_exchange import SLICE, Host, host

LOSS = (500_000, 0)
VALUES = np.repeat(np.array([3, 1, 2, 4], dtype=np.float32), SLICE // 4)  # of four slices
NUMBERS = itertools.count()


def shares(
    rank_0: Host,
    first: int,
    weights: Sequence[int],
    algorithm: int = lib.GL_DIRECT,
    least: int = 0,
    straggler: int = 0,
) -> int:
    kept = ffi.new("uint32_t[]", list(weights))
    plan = ffi.new("gl_step_plan *", (least, straggler, algorithm, kept))
    with rank_0.locked():
        return lib.gl_exchange_plan(rank_0.exchange, first, plan)


def submit(rank_0: Host) -> int:
    return rank_0.submit(kind=lib.GL_COMMAND_TENSOR, target=0)


def push_of(rank_0: Host) -> list[Header]:
    """Of its next push to rank 1, the header of each slice."""
    first, _ = rank_0.receive(Kind.DATA)
    return [first, *(rank_0.receive(Kind.DATA)[0] for _ in range(first.slices - 1))]


def own_all(rank_0: Host, push: list[Header]) -> None:
    """Rank 1 answers a push of the whole tensor with the result."""
    assert len(push) == 4
    rank_0.send(replace(push[0], kind=Kind.STOP, flags=0), b"\x0f")
    message = 1 + 2 * next(NUMBERS)
    for k, header in enumerate(push):
        flags = Flag.PULL | (Flag.END if k == 3 else 0)
        pull = replace(header, message=message, slice=k, flags=flags, magnitude=255, budget=0)
        rank_0.send(pull, bytes(SLICE))


def worth(first: int) -> list[int]:
    """What slices from the first one on are worth beside each other."""
    means = np.ascontiguousarray(VALUES[:: SLICE // 4][first:])
    magnitudes = np.zeros(means.size, np.uint8)
    lib.gl_quantiles(
        ffi.from_buffer("float[]", means), means.size, ffi.from_buffer("uint8_t[]", magnitudes, require_writable=True)
    )
    return magnitudes.tolist()


def test_shares_hold_from_their_step_on_for_parts_and_for_what_slices_are_worth() -> None:
    with host(workers=2, loss=LOSS) as rank_0:
        rank_0.thread.start()
        rank_0.tensor(VALUES, LOSS)
        assert shares(rank_0, 1, [0, 7]) == 0
        assert shares(rank_0, 3, [1, 3]) == 0
        for step in (1, 2):
            slot = submit(rank_0)
            push = push_of(rank_0)
            assert [(h.step, h.magnitude) for h in sorted(push, key=lambda h: h.slice)] == [(step, m) for m in worth(0)]
            own_all(rank_0, push)
            rank_0.wait(slot)
        submit(rank_0)
        push = push_of(rank_0)
        assert [(h.step, h.magnitude) for h in sorted(push, key=lambda h: h.slice)] == [(3, m) for m in worth(1)]


def test_without_shares_parts_are_equal() -> None:
    with host(workers=2, loss=LOSS) as rank_0:
        rank_0.thread.start()
        rank_0.tensor(VALUES, LOSS)
        submit(rank_0)
        assert [h.magnitude for h in sorted(push_of(rank_0), key=lambda h: h.slice)] == worth(2)


@pytest.mark.parametrize("weights", [[0, 0], [2**32 - 1, 1]])
def test_shares_that_make_no_sense_are_refused(weights: list[int]) -> None:
    with host(workers=2) as rank_0:
        rank_0.thread.start()
        assert shares(rank_0, 1, weights) == -1


def test_shares_of_steps_that_have_begun_are_refused() -> None:
    with host(workers=2) as rank_0:
        rank_0.thread.start()
        rank_0.tensor(VALUES)
        submit(rank_0)
        push_of(rank_0)
        assert shares(rank_0, 1, [0, 1]) == -1
        assert shares(rank_0, 3, [0, 1]) == 0
        assert shares(rank_0, 3, [1, 0]) == -1
        assert shares(rank_0, 2, [1, 0]) == -1


def test_no_step_beyond_the_promised_one_begins_before_the_release() -> None:
    """What waits begins then, by the shares that have been decided meanwhile."""
    with host(workers=2) as rank_0:
        rank_0.thread.start()
        result = rank_0.tensor(VALUES)
        assert shares(rank_0, 1, [0, 1]) == 0
        with rank_0.locked():
            assert lib.gl_exchange_hold(rank_0.exchange, 1) == 1
        slot = submit(rank_0)
        own_all(rank_0, push_of(rank_0))
        rank_0.wait(slot)
        with rank_0.locked():
            assert lib.gl_exchange_is_held(rank_0.exchange) == 0
            assert lib.gl_exchange_hold(rank_0.exchange, 0) == 1
        submit(rank_0)
        rank_0.other.settimeout(0.3)
        with pytest.raises(TimeoutError):
            rank_0.receive(Kind.DATA)
        with rank_0.locked():
            assert lib.gl_exchange_is_held(rank_0.exchange) == 1
        assert shares(rank_0, 2, [3, 1]) == 0
        with rank_0.locked():
            lib.gl_exchange_release(rank_0.exchange)
        rank_0.other.settimeout(30)
        push = push_of(rank_0)
        assert [(h.step, h.slices) for h in push] == [(2, 1)]
        with rank_0.locked():
            assert lib.gl_exchange_is_held(rank_0.exchange) == 0
        assert not result.any()


def contribute(rank_0: Host, step: int, element_type: int) -> None:
    """Rank 1's part in a step."""
    message = 1 + 2 * next(NUMBERS)
    for k in range(4):
        flags = Flag.END if k == 3 else 0
        header = Header(kind=Kind.DATA, job=3, source=1, token=TOKEN, message=message, step=step, slice=k, slices=4,
                        element_type=element_type, flags=flags)  # fmt: skip
        rank_0.send(header, np.ones(SLICE // 4, np.float32).tobytes())


def test_nobody_is_left_out_while_the_budget_of_new_shares_is_not_known() -> None:
    """Rank 0 owns all. In the window after the shares were set anew it does not know what others have left out."""
    with host(workers=2, late=(20_000, 1, 3)) as rank_0:
        rank_0.thread.start()
        rank_0.tensor(VALUES, late=True)
        assert shares(rank_0, 1, [1, 0]) == 0
        assert shares(rank_0, 2, [2, 0]) == 0
        rank_0.wait(submit(rank_0))
        header, _ = rank_0.receive(Kind.DATA, pull=True)
        assert header.step == 1
        for step in (2, 3):
            slot = submit(rank_0)
            assert lib.gl_client_wait(rank_0.client, slot, 300_000) != lib.GL_DONE
            contribute(rank_0, step, header.element_type)
            rank_0.wait(slot)
        rank_0.wait(submit(rank_0))


def test_nobody_is_left_out_of_a_step_beyond_the_promised_one() -> None:
    with host(workers=2, late=(20_000, 1, 3)) as rank_0:
        rank_0.thread.start()
        rank_0.tensor(VALUES, late=True)
        assert shares(rank_0, 1, [1, 0]) == 0
        with rank_0.locked():
            assert lib.gl_exchange_hold(rank_0.exchange, 0) == 0
        contribute(rank_0, 1, MEAN_FLOAT32)
        rank_0.other.settimeout(0.3)
        with pytest.raises(TimeoutError):
            rank_0.receive(Kind.DATA, pull=True)
        with rank_0.locked():
            lib.gl_exchange_release(rank_0.exchange)
        rank_0.other.settimeout(30)
        rank_0.wait(submit(rank_0))
        assert rank_0.receive(Kind.DATA, pull=True)[0].step == 1


def test_a_step_that_the_others_cannot_have_come_to_begins_nothing() -> None:
    """They can be without this rank for as many steps as it may be left out of."""
    with host(workers=2, late=(20_000, 2, 8)) as rank_0:
        rank_0.thread.start()
        rank_0.tensor(VALUES, late=True)
        assert shares(rank_0, 1, [1, 0]) == 0
        rank_0.other.settimeout(0.3)
        for step in (10**6, 3):
            contribute(rank_0, step, MEAN_FLOAT32)
            with pytest.raises(TimeoutError):
                rank_0.receive(Kind.DATA, pull=True)
        assert shares(rank_0, 3, [2, 0]) == 0, "a step from 3 on has begun"
        rank_0.other.settimeout(30)
        for step in (1, 2):
            contribute(rank_0, step, MEAN_FLOAT32)
            while rank_0.receive(Kind.DATA, pull=True)[0].step != step:
                pass  # the other slices of the step before


def test_a_job_has_so_many_plans_and_each_is_found() -> None:
    most = int(lib.GL_MOST_PLANS)
    with host(workers=2) as rank_0:
        rank_0.thread.start()
        for step in range(1, most + 1):
            assert shares(rank_0, step, [3 * (step > 3), 1]) == 0
        assert shares(rank_0, most + 1, [1, 1]) == -1
        rank_0.tensor(VALUES)
        for _ in range(3):
            slot = submit(rank_0)
            own_all(rank_0, push_of(rank_0))
            rank_0.wait(slot)
        submit(rank_0)
        assert [(h.step, h.slices) for h in push_of(rank_0)] == [(4, 1)]


@pytest.mark.parametrize(("algorithm", "straggler"), [(0, 0), (lib.GL_GRID + 1, 0), (lib.GL_STRAGGLAR, 3)])
def test_plans_that_make_no_sense_are_refused(algorithm: int, straggler: int) -> None:
    with host(workers=3) as rank_0:
        rank_0.thread.start()
        assert shares(rank_0, 1, [1, 1, 1], algorithm, 0, straggler) == -1
        assert shares(rank_0, 1, [1, 1, 1], lib.GL_STRAGGLAR, 0, 2) == 0


@pytest.mark.parametrize(
    ("algorithm", "least", "slices"),
    [
        (lib.GL_DIRECT, 0, 3),  # by weight
        (lib.GL_RING, 0, 2),  # in a ring parts are equal
        (lib.GL_RING, VALUES.nbytes, 2),
        (lib.GL_RING, VALUES.nbytes + 1, 3),  # the tensor is too small: direct
        (lib.GL_GRID, 0, 2),  # as in a ring; two hosts are one row
        (lib.GL_STRAGGLAR, 0, 4),  # two hosts swap everything
        (lib.GL_STRAGGLAR, VALUES.nbytes + 1, 3),
    ],
)
def test_a_tensor_that_leaves_it_open_is_reduced_by_the_plan_of_its_step(
    algorithm: int, least: int, slices: int
) -> None:
    """By the slices of the first push; a tensor with an algorithm of its own keeps to it."""
    with host(workers=2) as rank_0:
        rank_0.thread.start()
        rank_0.tensor(VALUES, algorithm=0)
        assert shares(rank_0, 1, [1, 3], algorithm, least) == 0
        submit(rank_0)
        assert rank_0.receive(Kind.DATA)[0].slices == slices
    with host(workers=2) as rank_0:
        rank_0.thread.start()
        rank_0.tensor(VALUES, algorithm=lib.GL_DIRECT)
        assert shares(rank_0, 1, [1, 3], algorithm, least) == 0
        submit(rank_0)
        assert rank_0.receive(Kind.DATA)[0].slices == 3
