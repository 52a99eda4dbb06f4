# SPDX-License-Identifier: Apache-2.0
"""Talking to what runs: the controller over HTTP, gradlane-switch over its admin socket."""

import contextlib
import json
import socket
import urllib.error
import urllib.request
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, cast

import tomli_w

from errors import ControlError
from results import Decision, MapCell, SwitchFigures, TailDrops

_SECONDS = 15.0  # the controller takes up to 10 to find that its switch hangs, and then says so


class Controller:
    """A running gradlane-controller. `address` is that of its HTTP API, "host:port"."""

    def __init__(self, address: str) -> None:
        self._address = address

    def put_job(self, document: dict[str, Any]) -> None:
        """Makes the switch hold the state of that job. Raises ControlError."""
        self._request("POST", "/jobs", tomli_w.dumps(document).encode())

    def delete_job(self, name: str) -> None:
        """Makes the switch forget the job. Raises ControlError."""
        self._request("DELETE", f"/jobs/{name}")

    def counters(self) -> tuple[tuple[Decision, ...], tuple[MapCell, ...]]:
        """What the switch decided, and the map of what the policy dropped. Raises ControlError."""
        answer = self._request("GET", "/counters")
        return (
            tuple(Decision(**row) for row in answer["decisions"]),
            tuple(MapCell(**row) for row in answer["drop_map"]),
        )

    def _request(self, method: str, path: str, body: bytes | None = None) -> dict[str, Any]:
        request = urllib.request.Request(f"http://{self._address}{path}", body, method=method)
        try:
            with urllib.request.urlopen(request, timeout=_SECONDS) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as problem:
            text = problem.read().decode(errors="replace").strip()
            with contextlib.suppress(ValueError, KeyError, TypeError):
                text = json.loads(text)["error"]
            raise ControlError(f"the controller refused {method} {path}: {text}") from None
        except OSError as problem:
            reason = getattr(problem, "reason", problem)
            raise ControlError(f"the controller at {self._address} does not answer: {reason}") from None


def ask_switch(path: Path, request: dict[str, Any]) -> dict[str, Any]:
    """One request to the admin socket of gradlane-switch. Raises ControlError."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(_SECONDS)
            connection.connect(str(path))
            connection.sendall(json.dumps(request).encode() + b"\n")
            with connection.makefile("rb") as lines:
                answer = cast(dict[str, Any], json.loads(lines.readline()))
    except (OSError, ValueError) as problem:
        raise ControlError(f"the switch's admin socket {path} does not answer: {problem}") from None
    if "error" in answer:
        raise ControlError(f"the switch refused {request['op']!r}: {answer['error']}")
    return answer


def read_switch(controller: Controller, admin: Path | None) -> SwitchFigures:
    """Everything the switch counts; tail drops only of a switch with an admin socket. Raises ControlError."""
    decisions, drop_map = controller.counters()
    return SwitchFigures(decisions, drop_map, None if admin is None else _tail_drops(admin))


def _tail_drops(admin: Path) -> tuple[TailDrops, ...]:
    ports = cast(list[dict[str, Any]], ask_switch(admin, {"op": "ports"})["ports"])
    return tuple(
        TailDrops(port["port"], index, queue["tail_dropped"]["packets"], queue["tail_dropped"]["bytes"])
        for port in ports
        for index, queue in enumerate(port["queues"])
    )


def difference(before: SwitchFigures, after: SwitchFigures) -> SwitchFigures:
    """What happened in between; cells where nothing did are left out."""
    return SwitchFigures(
        tuple(Decision(*row) for row in _difference(_cells(before.decisions), _cells(after.decisions))),
        tuple(MapCell(*row) for row in _difference(_cells(before.drop_map), _cells(after.drop_map))),
        None
        if before.tail_drops is None or after.tail_drops is None
        else tuple(TailDrops(*row) for row in _difference(_cells(before.tail_drops), _cells(after.tail_drops))),
    )


def _cells(rows: Sequence[Decision | MapCell | TailDrops]) -> dict[tuple[Any, ...], tuple[int, int]]:
    """Each row's (packets, bytes) by its other values."""
    cells: dict[tuple[Any, ...], tuple[int, int]] = {}
    for row in rows:
        *key, packets, octets = vars(row).values()
        cells[tuple(key)] = (packets, octets)
    return cells


def _difference(
    before: dict[tuple[Any, ...], tuple[int, int]], after: dict[tuple[Any, ...], tuple[int, int]]
) -> Iterable[tuple[Any, ...]]:
    for key, (packets, octets) in after.items():
        old_packets, old_octets = before.get(key, (0, 0))
        if packets > old_packets:
            yield (*key, packets - old_packets, octets - old_octets)
