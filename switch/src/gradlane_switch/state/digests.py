# SPDX-License-Identifier: Apache-2.0
"""Digests: what the program learns, gathered into lists for the controller (P4Runtime specification, 9.7)."""

from __future__ import annotations

from dataclasses import dataclass, field

Values = tuple[int, ...]


@dataclass(frozen=True)
class DigestConfig:
    """How one digest is reported. Times in ns; a `max_list_size` of 0 is no limit."""

    max_timeout: int = 0
    max_list_size: int = 0
    ack_timeout: int = 0


@dataclass(frozen=True)
class DigestList:
    """What one message reports: distinct values."""

    list_id: int
    values: tuple[Values, ...]


@dataclass
class _Sent:
    values: tuple[Values, ...]
    at: int


@dataclass
class DigestBuffer:
    """The values of one digest that wait to be reported, and those that were reported and not acknowledged yet.

    Times are in ns of any clock that does not go back.
    """

    config: DigestConfig
    _waiting: dict[Values, None] = field(default_factory=dict[Values, None])
    _since: int = 0
    _unacknowledged: dict[int, _Sent] = field(default_factory=dict[int, _Sent])
    _reported: set[Values] = field(default_factory=set[Values])
    _last_id: int = 0

    def add(self, values: Values, now: int) -> DigestList | None:
        """Takes what the program learned; a list, if that makes one full."""
        self._forget(now)
        if values in self._reported or values in self._waiting:
            return None
        if not self._waiting:
            self._since = now
        self._waiting[values] = None
        full = self.config.max_list_size and len(self._waiting) >= self.config.max_list_size
        return self._send(now) if full or not self.config.max_timeout else None

    def due(self, now: int) -> DigestList | None:
        """A list, if its time has come."""
        self._forget(now)
        return self._send(now) if self._waiting and now - self._since >= self.config.max_timeout else None

    @property
    def deadline(self) -> int | None:
        """When `due` will give a list; None if nothing waits."""
        return self._since + self.config.max_timeout if self._waiting else None

    def acknowledge(self, list_id: int) -> None:
        """The controller has dealt with a list: the same values are reported again when they are learned again."""
        sent = self._unacknowledged.pop(list_id, None)
        if sent is not None:
            self._reported.difference_update(sent.values)

    def _send(self, now: int) -> DigestList:
        self._last_id += 1
        result = DigestList(self._last_id, tuple(self._waiting))
        self._waiting.clear()
        if self.config.ack_timeout:
            self._unacknowledged[result.list_id] = _Sent(result.values, now)
            self._reported.update(result.values)
        return result

    def _forget(self, now: int) -> None:
        """Drops lists that the controller has not acknowledged in time. They are in order of time."""
        while self._unacknowledged:
            oldest = next(iter(self._unacknowledged))
            if now - self._unacknowledged[oldest].at < self.config.ack_timeout:
                return
            self.acknowledge(oldest)
