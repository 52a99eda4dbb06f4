# SPDX-License-Identifier: Apache-2.0
"""How much random tests try: a sample, or 5 times as much where `--thorough` (`make test-all`) asks for it."""

_THOROUGH = 5
_times = 1


def be_thorough() -> None:
    """From now on; before tests are imported."""
    global _times
    _times = _THOROUGH


def tries(number: int) -> int:
    """How many inputs to try where a usual run tries `number`."""
    return number * _times


def thorough() -> bool:
    """Whether that was asked for."""
    return _times > 1
