# SPDX-License-Identifier: Apache-2.0
"""Reaching this host's agent on its Unix socket, with errors that say why it can't be reached."""

import getpass
import grp
import os
import socket
import stat
from pathlib import Path

from gradlane.client import in_process
from gradlane.errors import AgentError
from gradlane.ipc import messages
from gradlane.ipc.status import AgentStatus

STATUS_SECONDS = 10.0


def default_path() -> Path:
    """Of the agent's socket: GRADLANE_SOCKET of the environment, or the usual one. Perhaps what in_process.py takes."""
    return Path(os.environ.get("GRADLANE_SOCKET") or messages.DEFAULT_SOCKET)


def connect(path: str | Path, timeout: float | None = None) -> socket.socket:
    """A SEQPACKET connection to the agent. Raises AgentError that says what is wrong and how to mend it."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
    sock.settimeout(timeout)
    try:
        sock.connect(str(path))
    except PermissionError as error:
        sock.close()
        raise AgentError(_refused(Path(path))) from error
    except OSError as error:
        sock.close()
        raise AgentError(
            f"no agent listens on {path} ({error.strerror or error}): start it with `gradlane agent`, or name its "
            "socket with --socket or GRADLANE_SOCKET"
        ) from error
    return sock


def status(path: str | Path) -> AgentStatus:
    """What the agent on that socket is doing. Raises AgentError if none answers."""
    if in_process.is_meant(path):
        raise AgentError(
            f"{path}: that agent is in a training process, and has no socket: its counts are there (`statistics()`); "
            "--socket or GRADLANE_SOCKET names a daemon's"
        )
    with connect(path, STATUS_SECONDS) as sock:
        try:
            messages.send(sock, {"op": "statistics", "all": True})
            return messages.receive(sock)[0]["agent"]
        except (OSError, EOFError) as error:
            raise AgentError(f"the agent on {path} does not answer: {error or 'it closed the connection'}") from error


def _refused(path: Path) -> str:
    """Why this user may not use the socket: it lacks the group of the socket, or of a folder above it."""
    places = [*reversed(path.parents), path]
    closed = next((p for p in places if not os.access(p, os.W_OK if p == path else os.X_OK)), path)
    status = closed.stat()
    try:
        group = grp.getgrgid(status.st_gid).gr_name
    except KeyError:
        group = str(status.st_gid)
    user = getpass.getuser()
    what = "it" if closed == path else closed
    return (
        f"user {user!r} may not use the agent's socket {path}: {what} is for group {group!r} "
        f"(mode {stat.S_IMODE(status.st_mode):04o}); as root: `usermod -aG {group} {user}`, then log in again"
    )
