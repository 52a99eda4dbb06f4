# SPDX-License-Identifier: Apache-2.0
"""The admin socket: one JSON request per line, one JSON answer per line."""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path
from typing import Any, cast

from gradlane_switch.dataplane import DataPlane
from gradlane_switch.errors import PortError, SwitchError
from gradlane_switch.ports import changed

_OPERATIONS = "ports, set and clear"
_MAX_LINE = 64 << 10


class Admin:
    """Answers {"op": "ports"}, {"op": "set", "port": N, ...} and {"op": "clear"} on a Unix socket."""

    def __init__(self, dataplane: DataPlane, path: Path) -> None:
        self._dataplane = dataplane
        self._path = path
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Listens. Raises SwitchError if another process does, or if the path can't be used."""
        try:
            # A socket that nobody answers on is what a killed switch left; asyncio replaces it.
            if self._path.is_socket() and _answers(self._path):
                raise SwitchError(f"admin socket {self._path}: another process listens there")
            self._server = await asyncio.start_unix_server(self._serve, self._path, limit=_MAX_LINE)
        except OSError as error:
            raise SwitchError(f"admin socket {self._path}: {error.strerror or error}") from None

    async def stop(self) -> None:
        """Stops listening and removes the socket."""
        if self._server is not None:
            self._server.close()
            self._path.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                writer.write(json.dumps(self.answer(line)).encode() + b"\n")
                await writer.drain()
        except (ConnectionError, ValueError, asyncio.LimitOverrunError):
            return  # The peer went away, or sent a line without end.
        finally:
            writer.close()

    def answer(self, line: bytes) -> dict[str, Any]:
        """The answer to one request; a bad one gets {"error": ...} and changes nothing."""
        try:
            request = json.loads(line)
        except ValueError as error:
            return {"error": f"the request is not JSON: {error}"}
        if not isinstance(request, dict):
            return {"error": "the request is not a JSON object"}
        fields = cast("dict[str, Any]", request)
        try:
            return self._perform(fields)
        except (PortError, ValueError) as error:
            return {"error": str(error)}

    def _perform(self, request: dict[str, Any]) -> dict[str, Any]:
        match request.pop("op", None):
            case "ports":
                return {"ports": self._dataplane.statistics()}
            case "clear":
                self._dataplane.clear()
                return {"ok": True}
            case "set":
                number = request.pop("port", None)
                if not isinstance(number, int):
                    raise ValueError('"set" needs a port number, e.g. {"op": "set", "port": 2, "loss": 0.01}')
                config = self._dataplane.config(number)
                for key, value in request.items():
                    config = changed(config, key, _text(key, value))
                self._dataplane.configure(number, config)
                return {"ok": True}
            case other:
                raise ValueError(f"{other!r} is not an operation: there are {_OPERATIONS}")


def _text(key: str, value: Any) -> str:
    """A value as the command line would have it: numbers are bit/s, bytes or probabilities; times are strings."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{key}: {value!r} is neither text nor a number")
    units = {"rate": "bit", "buffer": "B"}
    return f"{value:f}{units[key]}" if key in units else str(value)


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            return False
    return True
