# SPDX-License-Identifier: Apache-2.0
"""Reports to the controller, each second, whatever becomes of them: the agent never waits for one."""

import asyncio
import contextlib
import json
import logging
import random
import socket
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote

from gradlane.controller_client import JSON_TYPE, AddressError, RequestError, read_token
from gradlane.daemon.config import Reporting
from gradlane.daemon.report import Projection
from gradlane.ipc.status import AgentStatus

log = logging.getLogger("gradlane")

SECONDS = 1.0  # between two reports, at least
MOST_SECONDS = 30.0  # between two, whatever the controller says, and between two attempts
ANSWER_SECONDS = 3.0  # for each step of a request
REPORT_BYTES = 200 << 10  # that a report may have
_MAX_ANSWER = 64 << 10

_Answer = tuple[float, Mapping[str, float]]
"""After how many seconds to report again, and what is left of jobs' tolerances."""


class Reporter:
    """Of one agent. `config` and `status` are asked before each report; without a configuration there is none. After
    each, `grant` gets the parts that the controller leaves of jobs' tolerances, by name: of those that are below 1."""

    def __init__(
        self,
        config: Callable[[], Reporting | None],
        status: Callable[[], AgentStatus],
        grant: Callable[[Mapping[str, float]], None] = lambda _: None,
    ) -> None:
        self._config, self._status, self._grant = config, status, grant
        self._turn = 0  # which of several controllers is asked
        self._failures = 0
        self.problem = "it has not reported yet"

    def to_json(self) -> dict[str, Any] | None:
        """What the status says of it: which controller it reports to, and what is wrong; None: to none."""
        config = self._config()
        if config is None:
            return None
        return {"url": config.urls[self._turn % len(config.urls)], "problem": self.problem}

    async def run(self) -> None:
        """Until cancelled."""
        projection = Projection()
        while True:
            config, wait = self._config(), SECONDS
            if config is not None:
                try:
                    status = self._status()
                    report = projection.report(socket.gethostname(), status, time.monotonic())
                    wait, tolerated = await self._send(config, status["addresses"][0], report)
                    self._grant(tolerated)
                    self._note("")
                except (AddressError, RequestError) as problem:
                    self._note(str(problem))
                    again = getattr(problem, "again", None) or 0.0
                    self._turn += getattr(problem, "status", None) != 429
                    rounds = self._failures // len(config.urls)
                    rounds = self._failures // len(config.urls)
                    wait = max(again, SECONDS * 2 ** min(5, rounds)) * random.uniform(1, 1.5)
            await asyncio.sleep(min(wait, MOST_SECONDS))

    async def _send(self, config: Reporting, address: str, report: dict[str, Any]) -> _Answer:
        """What the controller says to it. Raises AddressError or RequestError."""
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[_Answer] = loop.create_future()

        def work() -> None:
            try:
                found: _Answer | Exception = _ask(config, self._turn, address, report)
            except (AddressError, RequestError) as problem:
                found = problem
            with contextlib.suppress(RuntimeError):  # the agent has ended meanwhile
                loop.call_soon_threadsafe(done, found)

        def done(found: _Answer | Exception) -> None:
            if outcome.cancelled():
                return
            if isinstance(found, Exception):
                outcome.set_exception(found)
            else:
                outcome.set_result(found)

        # Not in asyncio's own threads, for which the agent would wait at its end.
        threading.Thread(target=work, name="gradlane-report", daemon=True).start()
        return await outcome

    def _note(self, problem: str) -> None:
        if problem and not self._failures:
            log.warning("can't report to the controller, and goes on trying: %s", problem)
        elif not problem and (self._failures or self.problem):
            log.info("reports to the controller")
        self._failures = self._failures + 1 if problem else 0
        self.problem = problem


def _parts(tolerated: Mapping[str, Any]) -> dict[str, float]:
    """From 0 to 1, whatever the controller says. Raises TypeError or ValueError."""
    parts = {str(name): float(part) for name, part in dict(tolerated).items()}
    return {name: part for name, part in parts.items() if 0 <= part <= 1}


def _ask(config: Reporting, turn: int, address: str, report: dict[str, Any]) -> _Answer:
    client = config.client(turn, read_token(config.token_file), ANSWER_SECONDS, _MAX_ANSWER)
    body = json.dumps(report)
    while len(body) > REPORT_BYTES:
        report = {**report, "jobs": report["jobs"][: len(report["jobs"]) // 2]}
        body = json.dumps(report)
    answer = client.ask("PUT", f"/v1/agents/{quote(address, safe='')}", body, JSON_TYPE)
    try:
        return float(answer.content["seconds"]), _parts(answer.content.get("tolerated") or {})
    except (TypeError, ValueError, KeyError):
        raise RequestError(f"{client}: something else answers there; is this the controller's address?") from None
