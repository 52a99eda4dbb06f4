# SPDX-License-Identifier: Apache-2.0
"""The admin socket: one JSON request per line, one JSON answer per line."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any, cast

from gradlane_switch.dataplane.forwarding import DataPlane
from gradlane_switch.dataplane.port_config import changed, parse_port, parse_time
from gradlane_switch.errors import SwitchError

_OPERATIONS = "ports, program, forwarding, add, remove, set, clear and trace"
_MAX_LINE = 64 << 10
_Answers = AsyncGenerator[dict[str, Any], None]
_TRACE_INTERVAL = 0.05  # s


class Admin:
    """Answers {"op": "ports"}, {"op": "program"}, {"op": "forwarding"}, {"op": "add", "port": "N@INTERFACE,..."},
    {"op": "remove", "port": N}, {"op": "set", "port": N, ...}, {"op": "clear"} and
    {"op": "trace", "port": N, "packets": N, "time": "5s"} on a Unix socket."""

    def __init__(self, dataplane: DataPlane, path: Path, controllers: Callable[[], dict[str, int]]) -> None:
        self._dataplane = dataplane
        self._controllers = controllers
        self._path = path
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Listens. Raises SwitchError if another process does, or if the path can't be used."""
        try:
            # A killed switch leaves a socket that nobody answers on; asyncio replaces it.
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
                async with aclosing(self._answers(line, reader.at_eof)) as answers:
                    async for answer in answers:
                        writer.write(json.dumps(answer).encode() + b"\n")
                        await writer.drain()
        except (ConnectionError, ValueError, asyncio.LimitOverrunError):
            return  # The peer went away, or its line is too long.
        finally:
            writer.close()

    async def _answers(self, line: bytes, gone: Callable[[], bool]) -> _Answers:
        """The answer to one request, or all of a trace; a bad one gets {"error": ...} and changes nothing."""
        try:
            request = json.loads(line)
        except (ValueError, RecursionError) as error:
            yield {"error": f"the request is not JSON: {error}"}
            return
        if not isinstance(request, dict):
            yield {"error": "the request is not a JSON object"}
            return
        fields = cast("dict[str, Any]", request)
        try:
            if fields.get("op") == "trace":
                async with aclosing(self._trace(fields, gone)) as packets:
                    async for packet in packets:
                        yield packet
            else:
                yield self._perform(fields)
        except (SwitchError, ValueError) as error:
            yield {"error": str(error)}

    async def _trace(self, request: dict[str, Any], gone: Callable[[], bool]) -> _Answers:
        """Traced packets, up to a number of them or for a time, then {"ok": true, ...}."""
        port = request.get("port")
        if port is not None:
            self._dataplane.config(_number(dict(request), '{"op": "trace", "port": 2}'))
        frame = bytes.fromhex(_text("inject", request["inject"])) if "inject" in request else None
        if frame is not None and port is None:
            raise ValueError('"inject" needs "port", where the packet comes in')
        wanted = 1 if frame is not None else request.get("packets", 1)
        if not isinstance(wanted, int) or wanted < 1:
            raise ValueError(f"packets: {wanted!r} is not a positive number")
        deadline = time.monotonic() + parse_time(_text("time", request.get("time", "3600s"))) / 1e9
        traces = await asyncio.to_thread(self._dataplane.trace, port)
        try:
            if frame is not None:
                self._dataplane.inject(cast("int", port), frame)
            found = lost = 0
            over = False
            while found < wanted and not over and not gone():
                over = time.monotonic() >= deadline
                packets, missing = self._dataplane.traced(traces, unfinished=over)
                lost += missing
                for packet in packets[: wanted - found]:
                    if frame is None or frame.hex().startswith(packet["bytes"]):
                        yield packet
                        found += 1
                if found < wanted and not over:
                    await asyncio.sleep(_TRACE_INTERVAL)
            yield {"ok": True, "packets": found, "lost_events": lost}
        finally:
            self._dataplane.end_trace(traces)

    def _perform(self, request: dict[str, Any]) -> dict[str, Any]:
        match request.pop("op", None):
            case "ports":
                return self._dataplane.accounts()
            case "forwarding":
                return {"forwarding": {"longest_wait_ns": self._dataplane.longest_wait}}
            case "program":
                return {"program": self._dataplane.losses(), "controllers": self._controllers()}
            case "clear":
                self._dataplane.clear()
                return {"ok": True}
            case "add":
                description = request.pop("port", None)
                if not isinstance(description, str):
                    raise ValueError('"add" needs a port as -i has it, e.g. {"op": "add", "port": "4@s1-eth4"}')
                self._dataplane.add(parse_port(description))
                return {"ok": True}
            case "remove":
                self._dataplane.remove(_number(request, '{"op": "remove", "port": 2}'))
                return {"ok": True}
            case "set":
                number = _number(request, '{"op": "set", "port": 2, "loss": 0.01}')
                config = self._dataplane.config(number)
                for key, value in request.items():
                    config = changed(config, key, _text(key, value))
                self._dataplane.configure(number, config)
                return {"ok": True}
            case other:
                raise ValueError(f"{other!r} is not an operation: there are {_OPERATIONS}")


def _number(request: dict[str, Any], example: str) -> int:
    number = request.pop("port", None)
    if not isinstance(number, int) or isinstance(number, bool):
        raise ValueError(f'"{json.loads(example)["op"]}" needs a port number, e.g. {example}')
    return number


def _text(key: str, value: Any) -> str:
    """A value as the command line would have it: numbers are bit/s, bytes or probabilities; times are strings."""
    match value:
        case str():
            return value
        case bool():
            return "yes" if value else "no"
        case int() | float():
            unit = {"rate": "bit", "buffer": "B", "ecn": "B"}.get(key)
            if isinstance(value, int) and abs(value) >> 62:
                raise ValueError(f"{key}: {value} is out of range")
            return str(value) if unit is None else f"{value:f}{unit}"
        case list():
            return ":".join(str(item) for item in cast("list[Any]", value))
        case _:
            raise ValueError(f"{key}: {value!r} is neither a string nor a number")


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            return False
    return True
