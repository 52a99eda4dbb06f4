# SPDX-License-Identifier: Apache-2.0
"""The messages between a training process and its host's agent: JSON on a Unix SEQPACKET socket.

Client to agent: join, statistics, close (daemon/clients.py); region, release, tensor, forget, group, residual, load
(datapath/exchange.py). Agent to client: joined, statistics, notice, closed, error; answer, to a message with the same
"request". Every message is an object with the key "op". What a step of training waits for goes through shared memory,
not here.
"""

import json
import socket
from pathlib import Path
from typing import Any

Message = dict[str, Any]
DEFAULT_SOCKET = Path("/run/gradlane/agent.sock")
MAX_MESSAGE = 200_000  # the default socket buffer of Linux, 212,992 bytes, takes it


def send(sock: socket.socket, message: Message, descriptors: tuple[int, ...] = ()) -> None:
    """Sends one message. Raises ValueError if it is too long, OSError if the other side is gone."""
    data = json.dumps(message, separators=(",", ":")).encode()
    if len(data) > MAX_MESSAGE:
        raise ValueError(f"message {message.get('op')!r} has {len(data)} bytes; at most {MAX_MESSAGE} fit")
    if descriptors:
        socket.send_fds(sock, [data], descriptors)
    else:
        sock.send(data)


def receive(sock: socket.socket) -> tuple[Message, list[int]]:
    """One message and the descriptors that came with it. Raises EOFError at the end, ValueError if it is no message."""
    data, descriptors, _, _ = socket.recv_fds(sock, MAX_MESSAGE, 4)
    if not data:
        raise EOFError
    message = json.loads(data)
    if not isinstance(message, dict) or not isinstance(message.get("op"), str):
        raise ValueError(f"{data[:60]!r} is not a message of the agent's socket")
    return message, descriptors
