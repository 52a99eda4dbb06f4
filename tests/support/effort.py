# SPDX-License-Identifier: Apache-2.0
"""How much random tests try: a sample, or 5 times as much where `--thorough` (`make test-all`) asks for it."""

import pytest

_THOROUGH = 5
_times = 1


def be_thorough() -> None:
    """From now on; before tests are imported."""
    global _times
    _times = _THOROUGH


def tries(number: int, thoroughly: int | None = None) -> int:
    """How many inputs to try where a usual run tries `number`; `thoroughly` if not 5 times as many."""
    return number * _times if thoroughly is None or not thorough() else thoroughly


def thorough() -> bool:
    """Whether that was asked for."""
    return _times > 1


def only_thorough(why: str) -> pytest.MarkDecorator:
    """Leaves a test, or a case of it, out of a usual run."""
    return pytest.mark.skipif(not thorough(), reason=f"{why}; --thorough runs it")
