# SPDX-License-Identifier: Apache-2.0
"""The messages between a training process and its host's agent: JSON on a Unix SEQPACKET socket.

Client to agent: REQUESTS. Agent to client: joined, statistics, notice, dead, closed, error; answer, to a message with
the same "request". Every message is an object with the key "op". What every step of training waits for goes through
shared memory, but for the next group of Ripples. Descriptors come from the agent alone: whoever reads another's file
may wait for it for ever.
"""

import json
import os
import socket
from pathlib import Path
from typing import Any

from gradlane import json_object

Message = dict[str, Any]
DEFAULT_SOCKET = Path("/run/gradlane/agent.sock")
# Of these messages and of what lies in the shared memory. Agent and training process often have environments of their
# own.
VERSION = 2
MAX_MESSAGE = 200_000  # the default socket buffer of Linux, 212,992 bytes, takes it
_MAX_DESCRIPTORS = 17  # two for each shard of a job, and a long message's
_LONG = b'{"op":"long"}'  # the message is in the first descriptor

# What a process may send, by "op", and the fields. The first three are daemon/clients.py's, the others
# datapath/exchange.py's.
REQUESTS: dict[str, dict[str, json_object.Shape]] = {
    "join": {"version": int, "job": str, "file": str, "rank": int, "process": (int, None)},
    "statistics": {"all": (bool, None)},
    "close": {},
    "region": {"bytes": int},
    "release": {"region": int},
    "tensor": {"name": str, "elements": int, "dtype": str, "reduction": str, "exact": bool, "layers": [[int]]},
    "forget": {"name": str},
    "residual": {"name": str},
    "load": {"name": str, "region": int},
    "group": {"ranks": [int], "label": str, "pair": bool},
    "next": {"name": str, "members": int, "slack": int, "step": int, "pause": bool},
    "meet": {"name": str, "number": int, "agreed": bool},
}
# Characters of a text; lines are the job file's alone, as the others stand in logs.
_LONGEST = {"job": 131_072, "file": 4096, "name": 256, "label": 256}


def send(sock: socket.socket, message: Message) -> None:
    """Sends the agent one message. Raises ValueError if it is too long, OSError if the agent is gone."""
    data = _data(message)
    if len(data) > MAX_MESSAGE:
        raise ValueError(f"message {message.get('op')!r} has {len(data)} bytes; at most {MAX_MESSAGE} fit")
    sock.send(data)


def answer(sock: socket.socket, message: Message, descriptors: tuple[int, ...] = ()) -> None:
    """Sends a process one message, of any length. Raises OSError if it is gone, BlockingIOError if it does not read."""
    data = _data(message)
    if len(data) <= MAX_MESSAGE:
        socket.send_fds(sock, [data], descriptors)
        return
    descriptor = os.memfd_create("gradlane-message", os.MFD_CLOEXEC)  # such as the counts of hundreds of ranks
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(data)
        socket.send_fds(sock, [_LONG], [descriptor, *descriptors])
    finally:
        os.close(descriptor)


def receive(sock: socket.socket) -> tuple[Message, list[int]]:
    """One message of the agent and the descriptors that came with it, the caller's from now on.

    Raises EOFError at the end, ValueError if it is no message.
    """
    data, descriptors, _, _ = socket.recv_fds(sock, MAX_MESSAGE, _MAX_DESCRIPTORS, socket.MSG_CMSG_CLOEXEC)
    try:
        if data == _LONG and descriptors:
            with open(descriptors.pop(0), "rb") as file:
                data = os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0)
        return _parsed(data), descriptors
    except (EOFError, OSError, ValueError):
        close(descriptors)
        raise


def receive_request(sock: socket.socket) -> Message:
    """One message of a process. The kernel closes the descriptors that come with it, as nobody asks for them.

    Raises EOFError at the end, ValueError if it is no message.
    """
    return _parsed(sock.recv(MAX_MESSAGE))


def check(request: Message) -> None:
    """Raises ValueError if it is not one of REQUESTS with all of its fields, or joins in another version."""
    op = str(request["op"])
    if op not in REQUESTS:
        raise ValueError(f"unknown message {op[:60]!r}")
    if op == "join" and (found := request.get("version")) != VERSION:  # whatever fields that one has
        raise ValueError(
            f"the training process speaks version {str(found)[:20]} of the agent's socket, this agent version "
            f"{VERSION}: install the same gradlane for both"
        )
    try:
        json_object.check(request, {**REQUESTS[op], "request": (int, None)})
    except ValueError as error:
        raise ValueError(f"message {op!r} {error}") from None
    for name in _LONGEST.keys() & request.keys():
        text = request[name]
        if len(text) > _LONGEST[name]:
            raise ValueError(f"message {op!r} has a {name} of {len(text)} characters; at most {_LONGEST[name]}")
        if name != "job" and not text.isprintable():
            raise ValueError(f"message {op!r} has a {name} with characters that can't be printed: {text[:60]!r}")


def close(descriptors: list[int]) -> None:
    """Closes descriptors that nobody wants."""
    for descriptor in descriptors:
        os.close(descriptor)


def _data(message: Message) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode()


def _parsed(data: bytes) -> Message:
    if not data:
        raise EOFError
    message = json_object.parse(data)
    if not isinstance(message.get("op"), str):
        raise ValueError(f"{data[:60]!r} is not a message of the agent's socket")
    return message
