# SPDX-License-Identifier: Apache-2.0
"""What a TLS handshake leaves behind."""

import asyncio
import gc
import socket
import ssl
import tracemalloc
from typing import Any, cast

import pytest

from gradlane.control import handshake, tls
from gradlane.control.security import Credentials

CALLERS = 20


@pytest.mark.parametrize("said", [b"GET / HTTP/1.0\r\n\r\n", b"\x16\x03\x01\xff\xff", b"\n" * 4096, b""])
def test_a_caller_who_fails_holds_no_memory_until_the_garbage_collector_comes(said: bytes) -> None:
    async def call() -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            ours.setblocking(False)
            theirs.sendall(said)
            theirs.shutdown(socket.SHUT_WR)
            with pytest.raises((OSError, ssl.SSLError)):
                await tls.secure(ours, Credentials(None).listening, 1024, 5)

    async def calls() -> int:
        await call()  # what is kept for all of them
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(CALLERS):
            await call()
        await asyncio.sleep(0)  # closed sockets' callbacks
        return tracemalloc.get_traced_memory()[0] - before

    gc.disable()
    tracemalloc.start()
    try:
        assert asyncio.run(calls()) < CALLERS * 32_000
    finally:
        tracemalloc.stop()
        gc.enable()


def test_nothing_is_written_where_python_3_10_has_lost_the_connection() -> None:
    class Gone:
        """What its TLS does then."""

        _transport: Any = None

        def get_write_buffer_size(self) -> int:
            return self._transport.get_write_buffer_size()

    class Writer:
        transport = Gone()

    handshake.write(cast("asyncio.StreamWriter", Writer()), {"stage": 1})
