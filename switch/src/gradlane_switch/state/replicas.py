# SPDX-License-Identifier: Apache-2.0
"""What copies of a packet a multicast group or a clone session makes."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Replica:
    """One copy of a multicast packet. `numbered`: the controller wrote the port as a number, as before version 1.4."""

    port: int
    instance: int
    numbered: bool = field(default=False, compare=False)


@dataclass(frozen=True)
class Group:
    """A multicast group."""

    replicas: tuple[Replica, ...]
    metadata: bytes = b""


@dataclass(frozen=True)
class CloneSession:
    """A clone session; its copies leave with at most `length` bytes, and with that priority, if these are not 0."""

    replicas: tuple[Replica, ...]
    length: int = 0
    priority: int = 0
