# SPDX-License-Identifier: Apache-2.0
"""What a program sends to its controller, digests and packets to the CPU port, and messages to the log."""

from __future__ import annotations

import contextlib
import os
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gradlane_switch.ir.program import Program
from gradlane_switch.native.ffi import ffi, runtime

_LONGEST_MAIL = 1 << 17


@dataclass(frozen=True)
class LearnedData:
    """A digest: its index in the program (the first with its name), and a number per field."""

    digest: int
    values: tuple[int, ...]
    time: int


@dataclass(frozen=True)
class PacketToCpu:
    """A packet that left through the CPU port, and the port where it had come in."""

    port: int
    frame: bytes
    time: int


@dataclass(frozen=True)
class LogMessage:
    """A message of the program to the log, and its place in the program."""

    text: str
    source: str


Mail = LearnedData | PacketToCpu | LogMessage


class Mailbox:
    """The mail of one state; `state` is the C side's. At first there is no CPU port."""

    def __init__(self, state: Any, program: Program) -> None:
        self._state = state
        self._program = program
        names = [item.name for item in program.digests]
        # The program has a list for each place where it learns; those of a name are one digest.
        self._first_digest = [names.index(name) for name in names]
        self.fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        """Readable when there may be mail."""
        weakref.finalize(self, os.close, self.fd)
        self._head = ffi.new("gl_mail_head *")
        self._bytes = ffi.new("uint8_t[]", _LONGEST_MAIL)
        self.set_cpu_port(None)

    def set_cpu_port(self, port: int | None) -> None:
        """Makes packets that leave through a port packets to the controller; None: there is no such port."""
        number = runtime().GL_PORTS if port is None else port
        runtime().gl_controller(self._state, number, self.fd)

    def take(self) -> Iterator[Mail]:
        """What the program has sent since the last call, oldest first."""
        head = self._head
        with contextlib.suppress(BlockingIOError):  # There may be mail all the same.
            os.eventfd_read(self.fd)
        while runtime().gl_mail_take(self._state, head, self._bytes, _LONGEST_MAIL) > 0:
            content = bytes(ffi.buffer(self._bytes, head.length))
            if head.kind == runtime().GL_MAIL_PACKET:
                yield PacketToCpu(head.id, content, head.time)
            elif head.kind == runtime().GL_MAIL_LOG:
                message = self._program.messages[head.id]
                yield LogMessage(message.filled(memoryview(content).cast("Q").tolist()), message.source)
            else:
                yield LearnedData(self._first_digest[head.id], self._learned(head.id, content), head.time)

    def _learned(self, digest: int, content: bytes) -> tuple[int, ...]:
        values: list[int] = []
        for item in self._program.digests[digest].fields:
            octets = (item.width + 7) // 8
            values.append(int.from_bytes(content[:octets], "big"))
            content = content[octets:]
        return tuple(values)
