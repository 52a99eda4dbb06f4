# SPDX-License-Identifier: Apache-2.0
"""Rates and sizes as people write them in files and flags."""

import argparse
import re
from collections.abc import Callable
from typing import TypeVar

Value = TypeVar("Value")

_RATE_UNITS = {"bit": 1, "kbit": 10**3, "mbit": 10**6, "gbit": 10**9}
_SIZE_UNITS = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_MOST = 10**18
_QUANTITY = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]+)\s*\Z")


def _parse(text: str, units: dict[str, int], what: str, example: str) -> int:
    match = _QUANTITY.match(text)
    if match is None or match[2] not in units:
        raise ValueError(f"{text!r} is not a {what}: write a number and one of {', '.join(units)}, e.g. {example!r}")
    value = float(match[1]) * units[match[2]]
    if not 0.5 < value <= _MOST:
        raise ValueError(f"{text!r} is not a {what}: it must be above zero, and at most {_MOST:g} {next(iter(units))}")
    return round(value)


def parse_rate(text: str) -> int:
    """Bits per second of e.g. "100mbit" or "2.5gbit" (decimal prefixes, like tc).

    Raises ValueError that names the text and the accepted forms.
    """
    return _parse(text, _RATE_UNITS, "rate", "100mbit")


def parse_size(text: str) -> int:
    """Bytes of e.g. "64kB" (1000) or "64KiB" (1024).

    Raises ValueError that names the text and the accepted forms.
    """
    return _parse(text, _SIZE_UNITS, "size", "64kB")


def format_rate(bits_per_second: float) -> str:
    """Short form for people: 100000000 -> "100mbit"."""
    for unit in ("gbit", "mbit", "kbit"):
        if bits_per_second >= _RATE_UNITS[unit]:
            return f"{bits_per_second / _RATE_UNITS[unit]:g}{unit}"
    return f"{bits_per_second:g}bit"


def checked(parse: Callable[[str], Value]) -> Callable[[str], Value]:
    """`parse` as a `type` of argparse, which shows users the ValueError's message."""

    def convert(text: str) -> Value:
        try:
            return parse(text)
        except ValueError as problem:
            raise argparse.ArgumentTypeError(str(problem)) from None

    return convert
