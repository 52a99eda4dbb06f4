# SPDX-License-Identifier: Apache-2.0
"""Error feedback: what is lost of a contribution is owed once, and no more."""

import numpy as np
from gradlane._core import ffi, lib
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

SLICE = 16  # elements


def pointer(array: np.ndarray):
    return ffi.from_buffer("uint8_t[]", array, require_writable=True)


class Residual(RuleBasedStateMachine):
    """Against a dense array of what is owed."""

    @initialize(elements=st.integers(1, 200), seed=st.integers(0, 1 << 20))
    def begin(self, elements, seed) -> None:
        self.random = np.random.default_rng(seed)
        self.elements, self.slices = elements, -(-elements // SLICE)
        self.residual = ffi.new("gl_residual *")
        assert lib.gl_residual_new(self.residual, elements * 4, SLICE * 4) == 0
        self.owed = np.zeros(elements, np.float32)

    def part(self, number: int) -> slice:
        return slice(number * SLICE, (number + 1) * SLICE)

    @rule(data=st.data())
    def lose(self, data) -> None:
        first = data.draw(st.integers(0, self.slices - 1))
        lost = data.draw(st.lists(st.booleans(), min_size=1, max_size=self.slices - first))
        contribution = self.random.standard_normal(self.elements).astype(np.float32)
        bits = np.packbits(lost, bitorder="little")
        lib.gl_residual_keep(self.residual, pointer(contribution), first, len(lost), pointer(bits))
        for number, gone in enumerate(lost, first):
            if gone:
                self.owed[self.part(number)] = contribution[self.part(number)]

    @rule(data=st.data())
    def take(self, data) -> None:
        number = data.draw(st.integers(0, self.slices - 1))
        taken = lib.gl_residual_take(self.residual, number)
        expected = self.owed[self.part(number)]
        if taken == ffi.NULL:
            assert not expected.any()
        else:
            np.testing.assert_array_equal(np.frombuffer(ffi.buffer(taken, expected.nbytes), np.float32), expected)
        self.owed[self.part(number)] = 0

    @rule()
    def save_and_restore(self) -> None:
        values = np.full(self.elements, 7, np.float32)
        lib.gl_residual_export(self.residual, pointer(values))
        lib.gl_residual_import(self.residual, pointer(np.ones(self.elements, np.float32)))
        assert self.residual.owed == self.slices
        lib.gl_residual_import(self.residual, pointer(values))

    @invariant()
    def is_what_was_lost(self) -> None:
        values = np.full(self.elements, 7, np.float32)
        lib.gl_residual_export(self.residual, pointer(values))
        np.testing.assert_array_equal(values, self.owed)

    def teardown(self) -> None:
        if hasattr(self, "residual"):
            lib.gl_residual_free(self.residual)


TestResidual = Residual.TestCase


@given(
    st.lists(st.floats(0.01, 100), min_size=1, max_size=60), st.integers(1, 5), st.floats(0.05, 2), st.integers(1, 3)
)
def test_phases_follow_the_change_of_the_norm_between_windows(norms, window, threshold, parts) -> None:
    tolerance = ffi.new("gl_tolerance *")
    lib.gl_tolerance_new(tolerance, 0.1, threshold, window)
    assert lib.gl_tolerance_loss(tolerance, 10_000) == 1_000, "training begins with a critical phase"
    for step, norm in enumerate([*norms, 1.0], 1):
        for _ in range(parts):  # tensors of the step
            lib.gl_tolerance_observe(tolerance, step, norm**2 / parts)
    windows = [np.mean(norms[i : i + window]) for i in range(0, len(norms) - window + 1, window)]
    critical = True
    if len(windows) > 1:
        change = abs(windows[-1] - windows[-2]) / windows[-2]
        critical = change > threshold
        if abs(change - threshold) < 1e-9:
            return  # rounding decides
    assert lib.gl_tolerance_loss(tolerance, 10_000) == (1_000 if critical else 10_000)
    assert tolerance.windows == len(windows)


def test_a_step_that_overflowed_says_nothing_of_the_phase() -> None:
    tolerance = ffi.new("gl_tolerance *")
    lib.gl_tolerance_new(tolerance, 0.1, 0.5, 1)
    for step, squares in enumerate([1.0, 1.0, float("inf"), float("nan"), 1.0, 1.0], 1):
        lib.gl_tolerance_observe(tolerance, step, squares)
    assert lib.gl_tolerance_loss(tolerance, 10_000) == 10_000
    assert tolerance.windows == 3


def test_without_a_window_all_of_the_tolerance_is_there() -> None:
    tolerance = ffi.new("gl_tolerance *")
    lib.gl_tolerance_new(tolerance, 0.1, 0.5, 0)
    lib.gl_tolerance_observe(tolerance, 1, 1.0)
    assert lib.gl_tolerance_loss(tolerance, 10_000) == 10_000


@given(st.integers(0, 10**6), st.integers(0, 2**32 - 1), st.booleans())
def test_what_a_controller_leaves_of_a_tolerance_is_never_more_than_the_jobs(loss, part, critical) -> None:
    tolerance = ffi.new("gl_tolerance *")
    lib.gl_tolerance_new(tolerance, 0.25, 0.5, int(critical))  # training begins with a critical phase
    lib.gl_tolerance_grant(tolerance, part)
    left = loss * min(part, 10**6) // 10**6
    assert lib.gl_tolerance_loss(tolerance, loss) == (left // 4 if critical else left)
