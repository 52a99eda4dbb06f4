# SPDX-License-Identifier: Apache-2.0
"""The client's side of the admin socket."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gradlane_switch.errors import SwitchError

_SECONDS = 10.0


def ask(path: Path, request: dict[str, Any]) -> dict[str, Any]:
    """The answer to one request. Raises SwitchError with what the switch found wrong, or if it does not answer."""
    return next(ask_many(path, request, _SECONDS))


def ask_many(path: Path, request: dict[str, Any], patience: float | None) -> Iterator[dict[str, Any]]:
    """The answers to one request, as they come. Raises as `ask`; also when none comes for `patience` seconds."""
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(patience)
            connection.connect(str(path))
            connection.sendall(json.dumps(request).encode() + b"\n")
            with connection.makefile("rb") as lines:
                while line := lines.readline():
                    answer = json.loads(line)
                    if "error" in answer:
                        raise SwitchError(answer["error"])
                    yield answer
    except (OSError, ValueError) as error:
        raise SwitchError(f"the switch's admin socket {path} does not answer: {error}") from None
    raise SwitchError(f"the switch at {path} closed the connection")
