# SPDX-License-Identifier: Apache-2.0
"""What stands for a management network: at 127.0.0.1:PORT of every host is what listens there on this machine.

    python -m lab.net.management PORT PID ...        hosts by the pid of a process of theirs; ends by a signal

A socket stays in the network namespace in which it was made, so one process accepts for all hosts, beside their links.
"""

import asyncio
import contextlib
import ctypes
import os
import socket
import sys
from collections.abc import Sequence

_CLONE_NEWNET = 0x40000000
_CHUNK = 1 << 16  # bytes


def main(words: Sequence[str]) -> None:
    """Until it is ended. Raises OSError for a host that is not there, or where something listens already."""
    port, *hosts = map(int, words)
    home = os.open("/proc/self/ns/net", os.O_RDONLY)
    sockets = [_listen(pid, port, home) for pid in hosts]
    os.close(home)
    asyncio.run(_relay(sockets, port))


def _listen(pid: int, port: int, home: int) -> socket.socket:
    with open(f"/proc/{pid}/ns/net") as there:
        _join(there.fileno())
        try:
            return socket.create_server(("127.0.0.1", port))
        finally:
            _join(home)


def _join(namespace: int) -> None:
    if ctypes.CDLL(None, use_errno=True).setns(namespace, _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), f"setns: {os.strerror(ctypes.get_errno())}")


async def _relay(sockets: Sequence[socket.socket], port: int) -> None:
    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer), contextlib.suppress(OSError):
            there, back = await asyncio.open_connection("127.0.0.1", port)
            with contextlib.closing(back):
                await asyncio.gather(_copy(reader, back), _copy(there, writer))

    servers = [await asyncio.start_server(connected, sock=it) for it in sockets]
    print("ready", flush=True)
    await asyncio.gather(*(it.serve_forever() for it in servers))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(_CHUNK):
        writer.write(data)
        await writer.drain()
    writer.write_eof()


if __name__ == "__main__":
    main(sys.argv[1:])
