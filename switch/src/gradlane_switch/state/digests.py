# SPDX-License-Identifier: Apache-2.0
"""Digests: what the program learns, in lists for the controller (P4Runtime specification, 9.7).

The C side keeps each value once until it is acknowledged, and has room for so many.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from gradlane_switch.ir.program import Digest, Program
from gradlane_switch.native.ffi import NULL, ffi, runtime
from gradlane_switch.state.changes import check_memory

MOST_VALUES = 128
"""Of a list, whatever the controller would take: lists are made one by one, and none is to take long."""


@dataclass(frozen=True)
class DigestConfig:
    """How one digest is reported. Times in ns; a `max_list_size` of 0 is no limit."""

    max_timeout: int = 0
    max_list_size: int = 0
    ack_timeout: int = 0


@dataclass(frozen=True)
class DigestList:
    """What one message reports: distinct values, a number per field each. `digest`: its index in the program."""

    digest: int
    list_id: int
    values: tuple[tuple[int, ...], ...]


class Digests:
    """The digests that a controller wants; `state` is the C side's.

    A digest's index is that of the first place where the program learns with its name. Times are in ns of the packets'
    clock.
    """

    def __init__(self, state: Any, program: Program) -> None:
        self._state = state
        self._program = program
        self._configs: dict[int, DigestConfig] = {}
        self._turn = 0  # who is looked at first
        self._list_id = ffi.new("uint64_t *")

    def config(self, digest: int) -> DigestConfig | None:
        """How a digest is reported; None: nobody wants it."""
        return self._configs.get(digest)

    def want(self, digest: int, config: DigestConfig | None) -> None:
        """Begins to report a digest, changes how, or (None) ends that. Raises MemoryError."""
        size = sum(_octets(self._program.digests[digest]))
        native = NULL
        if config is not None:
            native = ffi.new("gl_digest_config *", (config.max_timeout, config.ack_timeout, config.max_list_size))
        check_memory(runtime().gl_digest_want(self._state, digest, size, native))
        if config is None:
            self._configs.pop(digest, None)
        else:
            self._configs[digest] = config

    def take(self, now: int) -> DigestList | None:
        """A list that is due, of the digest whose turn it is; None if there is none."""
        wanted = list(self._configs)
        for place in range(len(wanted)):
            digest = wanted[(self._turn + place) % len(wanted)]
            octets = _octets(self._program.digests[digest])
            out = ffi.new("uint8_t[]", MOST_VALUES * sum(octets) or 1)
            count = runtime().gl_digest_take(self._state, digest, now, MOST_VALUES, out, self._list_id)
            if count:
                self._turn = (self._turn + place + 1) % len(wanted)
                content, size = bytes(ffi.buffer(out)), sum(octets)
                values = tuple(tuple(_numbers(content, octets, number * size)) for number in range(count))
                return DigestList(digest, self._list_id[0], values)
        return None

    @property
    def deadline(self) -> int | None:
        """When `take` will have a list; None if nothing waits."""
        earliest = min((runtime().gl_digest_due(self._state, digest) for digest in self._configs), default=_NEVER)
        return None if earliest == _NEVER else earliest

    def acknowledge(self, digest: int, list_id: int) -> None:
        """The controller has dealt with a list: the same values are reported again when they are learned again."""
        if digest in self._configs:
            runtime().gl_digest_ack(self._state, digest, list_id)


_NEVER = (1 << 64) - 1


def _octets(digest: Digest) -> list[int]:
    """Bytes of each field of a value."""
    return [(item.width + 7) // 8 for item in digest.fields]


def _numbers(content: bytes, octets: list[int], start: int) -> Iterator[int]:
    for end, size in zip(accumulate(octets, initial=start), octets, strict=False):
        yield int.from_bytes(content[end : end + size], "big")
