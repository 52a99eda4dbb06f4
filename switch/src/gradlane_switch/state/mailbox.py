# SPDX-License-Identifier: Apache-2.0
"""What a program sends to its controller through the CPU port, and to the log. Digests are in digests.py."""

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


Mail = PacketToCpu | LogMessage


class Mailbox:
    """The mail of one state; `state` is the C side's. At first there is no CPU port."""

    def __init__(self, state: Any, program: Program) -> None:
        self._state = state
        self._program = program
        self.fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        """Readable when there may be mail, or a list of a digest."""
        weakref.finalize(self, os.close, self.fd)
        self._head = ffi.new("gl_mail_head *")
        self._bytes = ffi.new("uint8_t[]", _LONGEST_MAIL)
        self.set_cpu_port(None)

    def set_cpu_port(self, port: int | None) -> None:
        """Makes packets that leave through a port packets to the controller; None: there is no such port."""
        number = runtime().GL_PORTS if port is None else port
        runtime().gl_controller(self._state, number, self.fd)

    def take(self) -> Iterator[Mail]:
        """What the program has sent, and is not taken yet: of each port the oldest first, and the ports in turn."""
        head = self._head
        with contextlib.suppress(BlockingIOError):  # There may be mail all the same.
            os.eventfd_read(self.fd)
        while runtime().gl_mail_take(self._state, head, self._bytes, _LONGEST_MAIL) > 0:
            content = bytes(ffi.buffer(self._bytes, head.length))
            if head.kind == runtime().GL_MAIL_PACKET:
                yield PacketToCpu(head.id, content, head.time)
            else:
                message = self._program.messages[head.id]
                yield LogMessage(message.filled(memoryview(content).cast("Q").tolist()), message.source)
