# SPDX-License-Identifier: Apache-2.0
"""TLS on a socket, as asyncio has it, except that a failed handshake tells the other side why.

That is TLS's alert (RFC 8446, 6.2), which asyncio drops with the connection. A caller gets it when its own handshake is
over: in TLS 1.3 the listener looks at the caller's certificate last.
"""

import asyncio
import contextlib
import socket
import ssl
import traceback
from asyncio import sslproto
from typing import Any

# asyncio gives each connection a buffer of 256 KiB, all of which is written once; what comes here is lines.
_buffered: Any = sslproto.SSLProtocol
_buffered.max_size = 1 << 14

_ALERT = "alert"  # of an error: what is to be told to the other side

Connected = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class _Object(ssl.SSLObject):
    outgoing: ssl.MemoryBIO

    def do_handshake(self) -> None:
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError as error:
            vars(error)[_ALERT] = self.outgoing.read()
            raise


class Context(ssl.SSLContext):
    """Settings, for `secure`."""

    sslobject_class = _Object

    def wrap_bio(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, *args: Any, **kwargs: Any) -> ssl.SSLObject:
        """As its base; called by asyncio."""
        made = super().wrap_bio(incoming, outgoing, *args, **kwargs)
        assert isinstance(made, _Object)
        made.outgoing = outgoing
        return made


async def secure(sock: socket.socket, context: Context, limit: int, seconds: float) -> Connected:
    """Streams over TLS on a connected socket, which they take over. `context`: of a server if the other side called.

    `limit`: bytes of a line that is read; `seconds`: for the handshake. Raises OSError: of a handshake that failed an
    ssl.SSLError, and the other side knows why.
    """
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit)
    protocol = asyncio.StreamReaderProtocol(reader)
    try:
        kept = sock.dup()  # asyncio closes the other one when the handshake fails
    except OSError:
        sock.close()
        raise
    with kept:
        try:
            if context.protocol == ssl.PROTOCOL_TLS_SERVER:
                transport, _ = await loop.connect_accepted_socket(
                    lambda: protocol, sock, ssl=context, ssl_handshake_timeout=seconds
                )
            else:
                # By no name: `misnamed` of security.py looks at it, and addresses are not sent.
                transport, _ = await loop.create_connection(
                    lambda: protocol, sock=sock, ssl=context, server_hostname="", ssl_handshake_timeout=seconds
                )
        except OSError as error:
            # asyncio's frames and the error refer to each other, and so would hold 256 KiB and more for each caller who
            # fails, until the garbage collector comes.
            traceback.clear_frames(error.__traceback__)
            if alert := vars(error).get(_ALERT):
                with contextlib.suppress(OSError):  # it is gone
                    kept.send(alert)
            raise
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)
