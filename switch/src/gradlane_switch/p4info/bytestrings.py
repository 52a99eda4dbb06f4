# SPDX-License-Identifier: Apache-2.0
"""Numbers as P4Runtime's byte strings: big-endian, in canonical form the shortest."""

from __future__ import annotations

from finsy.proto import rpc_code

from gradlane_switch.errors import EntityError


def invalid(message: str) -> EntityError:
    """INVALID_ARGUMENT."""
    return EntityError(rpc_code.INVALID_ARGUMENT, message)


def encode(value: int) -> bytes:
    """The shortest big-endian byte string of a number: P4Runtime's canonical form."""
    return value.to_bytes((value.bit_length() + 7) // 8 or 1, "big")


def decode(text: bytes, width: int, what: str) -> int:
    """The number in a byte string. Raises EntityError (OUT_OF_RANGE) if it is empty or has more than `width` bits."""
    value = int.from_bytes(text, "big")
    if not text or value >> width:
        problem = "an empty byte string is not a value" if not text else f"{value:#x} does not fit in {width} bits"
        raise EntityError(rpc_code.OUT_OF_RANGE, f"{what}: {problem}")
    return value
