# SPDX-License-Identifier: Apache-2.0
"""What command lines of the runner and of the benchmarks are written with: quantities, seeds, lists of names.

The converters are for argparse's `type`; they raise argparse.ArgumentTypeError.
"""

import argparse
from collections.abc import Callable


def quantity(parse: Callable[[str], int]) -> Callable[[str], int]:
    """A converter of gradlane.units, with its own error message."""

    def convert(text: str) -> int:
        try:
            return parse(text)
        except ValueError as problem:
            raise argparse.ArgumentTypeError(str(problem)) from None

    return convert


def names(text: str) -> tuple[str, ...]:
    """Names with commas between them."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def seed(text: str) -> int:
    """A whole number below 2^31."""
    if not text.isdecimal() or int(text) >= 2**31:
        raise argparse.ArgumentTypeError(f"{text!r} is no seed: a whole number from 0 to {2**31 - 1}")
    return int(text)


def seeds(text: str) -> tuple[int, ...]:
    """Different seeds with commas between them."""
    words = names(text)
    if not words or len(set(words)) < len(words) or not all(w.isdecimal() and int(w) < 2**31 for w in words):
        raise argparse.ArgumentTypeError(f"{text!r} is no list of different seeds, e.g. 1,2,3")
    return tuple(int(word) for word in words)
