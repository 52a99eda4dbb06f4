# SPDX-License-Identifier: Apache-2.0
"""v1model's externs: hashes and checksums, counters, meters, registers and action profiles."""

from __future__ import annotations

from dataclasses import dataclass

from gradlane_switch.ir.expressions import Expr, Field

HASH_ALGORITHMS = ("crc16", "crc16_custom", "crc32", "crc32_custom", "csum16", "xor16", "identity", "random")
"""Of calculations, as BMv2's JSON names them. Its custom CRCs are the standard ones until somebody changes them."""


@dataclass(frozen=True)
class CalculationInput:
    """A value and its width in bits; None: the variable-length field of the header.

    It is left out while `header` is invalid, if there is one.
    """

    value: Expr | None
    width: int
    header: int | None


@dataclass(frozen=True)
class Calculation:
    """The algorithm and its input, in order; `payload`: what follows the headers comes after it."""

    name: str
    algorithm: str
    inputs: tuple[CalculationInput, ...]
    payload: bool = False


@dataclass(frozen=True)
class Checksum:
    """A checksum that is verified after parsing, updated before deparsing, or both, if the condition holds."""

    target: Field
    calculation: int
    verify: bool
    update: bool
    condition: Expr | None


@dataclass(frozen=True)
class CounterArray:
    """Indirect counter."""

    name: str
    size: int


@dataclass(frozen=True)
class MeterArray:
    """Indirect meter, of bytes or of packets."""

    name: str
    size: int
    counts_bytes: bool


@dataclass(frozen=True)
class DirectMeter:
    """A meter in each entry of a table, of bytes or of packets. A hit puts its colour in the target."""

    name: str
    table: str
    counts_bytes: bool
    target: Field


@dataclass(frozen=True)
class ActionProfile:
    """Actions that entries of tables share. `selector`: the calculation that picks from a group, if it has groups."""

    name: str
    size: int
    selector: int | None


@dataclass(frozen=True)
class RegisterArray:
    """Register; width of a cell in bits."""

    name: str
    size: int
    width: int
