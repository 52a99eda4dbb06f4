# SPDX-License-Identifier: Apache-2.0
"""Requests to what runs: the controller over HTTP, gradlane-switch over its admin socket; and what switches count."""

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import tomli_w

from gradlane import GradlaneError
from gradlane.controller_client import JOB_TYPE, JSON_TYPE, Client, RequestError, read_token
from gradlane_switch.errors import SwitchError
from gradlane_switch.management.admin_client import ask_many
from lab.model.errors import ControlError
from lab.model.results import POLICY_DROPS, Decision, MapCell, SwitchFigures, TailDrops

_SECONDS = 60.0  # the controller takes up to 10 to find that its switch hangs, and then says so
_LEADS_SECONDS = 10.0  # until a controller leads again that was starved, as on a machine full of emulated hosts
_POLL_SECONDS = 0.1


class Controller:
    """A running gradlane-controller. `address` is that of its HTTP API, "host:port"; `token_file` has a token."""

    def __init__(self, address: str, token_file: Path | None = None) -> None:
        self._address, self._token_file = address, token_file

    def put_job(self, document: dict[str, Any]) -> None:
        """Makes the switch hold the state of that job. Raises ControlError."""
        self._request("POST", "/v1/jobs", tomli_w.dumps(document))

    def delete_job(self, name: str) -> None:
        """Makes the switch forget the job. Raises ControlError."""
        self._request("DELETE", f"/v1/jobs/{name}")

    def make_token(self, name: str, scope: str, host: str | None = None) -> str:
        """A token of that scope, of `agents` good for one host's reports. Raises ControlError."""
        wanted = json.dumps({"name": name, "scope": scope, "host": host})
        return self._request("POST", "/v1/tokens", wanted, JSON_TYPE)["token"]

    def status(self) -> dict[str, Any]:
        """Of switches and jobs. Raises ControlError."""
        return self._request("GET", "/v1/status")

    def links(self) -> list[dict[str, Any]]:
        """Which links work. Raises ControlError."""
        return self._request("GET", "/v1/links")["links"]

    def counters(self) -> dict[str, Any]:
        """What the switches counted, by the controller. Raises ControlError."""
        return self._request("GET", "/v1/counters")

    def wait_ready(self, seconds: float) -> None:
        """Waits until every switch holds its state. Raises ControlError."""
        deadline = time.monotonic() + seconds
        while not (status := self.status())["ready"]:
            if time.monotonic() > deadline:
                raise ControlError(f"the controller is not ready after {seconds:g} s: {json.dumps(status)}")
            time.sleep(_POLL_SECONDS)

    def wait_links(self, seconds: float) -> None:
        """Waits until every link works, and the switches know. Raises ControlError."""
        deadline = time.monotonic() + seconds
        while down := [" - ".join(link["ends"]) for link in self.links() if not link["up"]]:
            if time.monotonic() > deadline:
                raise ControlError(f"links are down after {seconds:g} s: {', '.join(down)}")
            time.sleep(_POLL_SECONDS)
        self.wait_ready(seconds)

    def _request(self, method: str, path: str, body: str | None = None, media_type: str = JOB_TYPE) -> dict[str, Any]:
        deadline = time.monotonic() + _LEADS_SECONDS
        while True:
            try:
                token = read_token(self._token_file) if self._token_file else ""
                return Client(self._address, token, seconds=_SECONDS).ask(method, path, body, media_type).content
            except GradlaneError as problem:
                stands_by = isinstance(problem, RequestError) and problem.status == 503 and "stands by" in str(problem)
                if not stands_by or time.monotonic() > deadline:
                    raise ControlError(f"{method} {path}: {problem}") from None
            time.sleep(_POLL_SECONDS)


def ask_switch(path: Path, request: dict[str, Any]) -> dict[str, Any]:
    """One request to the admin socket of gradlane-switch. Raises ControlError."""
    try:
        return next(ask_many(path, request, _SECONDS))
    except SwitchError as problem:
        raise ControlError(f"request {request['op']!r} to the switch failed: {problem}") from None


Cells = dict[tuple[Any, ...], tuple[int, int]]  # (packets, bytes) by all else that tells a row; its switch comes first


@dataclass(frozen=True)
class Reading:
    """What every switch has counted so far; `tail_drops` of switches with an admin socket, None if there is none."""

    decisions: Cells
    drop_map: Cells
    tail_drops: Cells | None

    @property
    def policy_drops(self) -> int:
        """Packets that the gradient policy has dropped or trimmed, over all switches."""
        return sum(packets for key, (packets, _) in self.decisions.items() if key[1] in POLICY_DROPS)

    def of_switch(self, name: str) -> "Reading":
        """The part of one switch."""
        return Reading(
            _of_switch(self.decisions, name),
            _of_switch(self.drop_map, name),
            None if self.tail_drops is None else _of_switch(self.tail_drops, name),
        )

    def completed_by(self, last: "Reading") -> "Reading":
        """With what a switch had last said that could not be asked any more."""
        tail_drops = None if self.tail_drops is None else {**(last.tail_drops or {}), **self.tail_drops}
        return Reading({**last.decisions, **self.decisions}, {**last.drop_map, **self.drop_map}, tail_drops)

    def since(self, before: "Reading") -> SwitchFigures:
        """What happened in between, summed over the switches; cells where nothing did are left out."""
        return SwitchFigures(
            tuple(Decision(*row) for row in _difference(before.decisions, self.decisions)),
            tuple(MapCell(*row) for row in _difference(before.drop_map, self.drop_map)),
            None
            if self.tail_drops is None
            else tuple(TailDrops(*row) for row in _difference(before.tail_drops or {}, self.tail_drops)),
        )


def read_switches(controller: Controller, admins: Mapping[str, Path]) -> Reading:
    """Everything the switches count; `admins` are the admin sockets by switch. Raises ControlError."""
    counters = controller.counters()
    return Reading(
        _cells(counters["decisions"], ("switch", "reason", "queue_class", "drop_precedence")),
        _cells(counters["drop_map"], ("switch", "layer", "magnitude")),
        {key: counts for name, admin in admins.items() for key, counts in _tail_drops(name, admin)} if admins else None,
    )


def _tail_drops(switch: str, admin: Path) -> Iterable[tuple[tuple[Any, ...], tuple[int, int]]]:
    for port in cast(list[dict[str, Any]], ask_switch(admin, {"op": "ports"})["ports"]):
        for index, queue in enumerate(port["queues"]):
            dropped = queue["tail_dropped"]
            yield (switch, switch, port["port"], index), (dropped["packets"], dropped["bytes"])


def _cells(rows: Iterable[dict[str, Any]], keys: Sequence[str]) -> Cells:
    """Summed over what the keys do not name: the jobs."""
    cells: Cells = {}
    for row in rows:
        key = tuple(row[name] for name in keys)
        packets, octets = cells.get(key, (0, 0))
        cells[key] = (packets + row["packets"], octets + row["bytes"])
    return cells


def _of_switch(cells: Cells, name: str) -> Cells:
    return {key: counts for key, counts in cells.items() if key[0] == name}


def _difference(before: Cells, after: Cells) -> Iterable[tuple[Any, ...]]:
    total: Cells = {}
    for key, (packets, octets) in after.items():
        old_packets, old_octets = before.get(key, (0, 0))
        if packets > old_packets:
            sum_packets, sum_octets = total.get(key[1:], (0, 0))
            total[key[1:]] = (sum_packets + packets - old_packets, sum_octets + octets - old_octets)
    for key, counts in total.items():
        yield (*key, *counts)
