# SPDX-License-Identifier: Apache-2.0
"""Those who add, change and remove jobs over HTTP all the time, and go on until they know what has become of it."""

from __future__ import annotations

import http.client
import json
import random
import threading
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.chaos.jobs import Record
from tests.gradlane_controller.texts import job_text

ANSWER_SECONDS = 30.0
_PAUSE = 0.15
_SHARED = "shared"
_HOSTS = ((1, 2), (1, 3), (2, 4), (3, 4), (1, 2, 3, 4), (5, 6), (2, 6))
_SLOTS = 256


@dataclass(frozen=True)
class Answer:
    """Of a controller, with its `headers` by their names in small letters; `status` 0: none came, and `sent` says
    whether the request may have arrived."""

    status: int
    body: Any
    headers: Mapping[str, str]
    sent: bool = True

    @property
    def error(self) -> str:
        """Why not."""
        return str(self.body.get("error", "")) if isinstance(self.body, dict) else ""


def ask(
    port: int,
    token: str,
    method: str,
    path: str,
    body: str | None = None,
    seconds: float = ANSWER_SECONDS,
    **headers: str,
) -> Answer:
    """A request for a path below /v1 of the controller at a port of 127.0.0.1; `headers` with _ for -."""
    given = {"Content-Type": "application/toml", "Authorization": f"Bearer {token}"}
    given |= {key.replace("_", "-"): it for key, it in headers.items()}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=seconds)
    sent = False
    try:
        connection.connect()
        sent = True
        connection.request(method, f"/v1{path}", body, given)
        answer = connection.getresponse()
        return Answer(
            answer.status, json.loads(answer.read()), {name.lower(): it for name, it in answer.headers.items()}
        )
    except (OSError, http.client.HTTPException, ValueError) as problem:
        return Answer(0, {"error": repr(problem)}, {}, sent)
    finally:
        connection.close()


class Client(threading.Thread):
    """One of them, with jobs of its own and one that all share."""

    def __init__(self, number: int, controllers: Sequence[int], token: str, record: Record, seed: int) -> None:
        """`controllers`: their HTTP ports."""
        super().__init__(name=f"client {number}", daemon=True)
        self._controllers, self._token, self._record = controllers, token, record
        self._random = random.Random(f"{seed} client {number}")
        self._ids = {f"c{number}-{place}": 10 * number + place for place in range(4)}
        self._there: dict[str, bool] = dict.fromkeys(self._ids, False)
        self._go = threading.Event()
        self._idle = threading.Event()
        self._idle.set()
        self._end = threading.Event()
        self._last = 0  # which controller has led
        self._asked = ""

    def resume(self) -> None:
        """Changes jobs from now on."""
        self._go.set()

    def rest(self) -> None:
        """Begins no other change. The last one ends when it is known what has become of it; see `doing`."""
        self._go.clear()

    @property
    def doing(self) -> str:
        """What it is at, and what it was told last; empty: nothing."""
        return "" if self._idle.is_set() else f"{self.name} does not get what it asks for: {self._asked}"

    def end(self) -> None:
        """No more."""
        self._end.set()
        self._go.set()
        self.join()

    def run(self) -> None:
        while not self._end.is_set():
            self._go.wait()
            self._idle.clear()
            try:
                if self._go.is_set() and not self._end.is_set():
                    (self._share if self._random.random() < 0.25 else self._change)()
                    self._end.wait(self._random.uniform(0, 2 * _PAUSE))
            except (ValueError, KeyError) as problem:  # a controller has said something else than it promises
                self._record.complain(f"{self.name}: {problem!r}, after {self._asked}")
                return
            finally:
                self._idle.set()

    def _change(self) -> None:
        name = self._random.choice(sorted(self._ids))
        text = None if self._there[name] and self._random.random() < 0.5 else self._text(name, self._ids[name])
        key, how = uuid.UUID(int=self._random.getrandbits(128)).hex, self._random.choice(("PUT", "POST"))
        unsure = False
        while not self._end.is_set():
            if text is None:
                answer = self._ask("DELETE", f"/jobs/{name}")
            elif how == "PUT":
                answer = self._ask("PUT", f"/jobs/{name}", text)
            else:
                answer = self._ask("POST", "/jobs", text, Idempotency_Key=key)
            if answer.status == 200 or (answer.status == 404 and text is None):
                # Of a job that is gone already nobody else can say so but who has removed it.
                if answer.status == 404 and not unsure:
                    self._record.complain(f"job {name} was not there when it was to be removed: {answer.error}")
                self._record.acknowledge(name, text)
                self._there[name] = text is not None
                return
            unsure |= may_be_done(answer)
            self._look_at(answer)
            if not unsure and not _leads_nobody(answer):
                return
            self._end.wait(_PAUSE)
        if unsure:
            self._record.unsure(name, text)

    def _share(self) -> None:
        """Changes the shared job, if nobody else has since it was looked at."""
        while not self._end.is_set():
            found = self._ask("GET", f"/jobs/{_SHARED}")
            if found.status in (200, 404):
                break
            self._end.wait(_PAUSE)
        else:
            return
        expected = int(found.body["version"]) if found.status == 200 else 0
        condition = {"If_Match": f'"{expected}"'} if expected else {"If_None_Match": "*"}
        text = self._text(_SHARED, 9)
        answer = self._ask("PUT", f"/jobs/{_SHARED}", text, **condition)
        if answer.status == 200:
            version = int(answer.headers["etag"].strip('"'))
            self._record.acknowledge_version(_SHARED, text, expected, version)
        elif may_be_done(answer):
            self._record.unsure(_SHARED, text, expected)
        self._look_at(answer)

    def _ask(self, method: str, path: str, body: str | None = None, **headers: str) -> Answer:
        """Who leads; one that stands by says so, and the next one is asked."""
        answer = Answer(0, {}, {}, sent=False)
        for _ in self._controllers:
            self._asked = f"{method} {path}, without an answer yet"
            answer = ask(self._controllers[self._last], self._token, method, path, body, ANSWER_SECONDS, **headers)
            self._asked = f"{method} {path}, answer {answer.status}: {answer.error}"
            if not _leads_nobody(answer):
                break
            self._last = (self._last + 1) % len(self._controllers)
        return answer

    def _look_at(self, answer: Answer) -> None:
        if answer.status >= 500 and answer.status != 503:
            self._record.complain(f"a controller answers {answer.status}: {answer.error}")
        if answer.status in (400, 401, 403, 413, 415, 422):
            self._record.complain(f"a controller refuses with {answer.status}: {answer.error}")

    def _text(self, name: str, number: int) -> str:
        """Another one each time, as its rules begin with another layer."""
        text = job_text(name, number, self._random.choice(_HOSTS), base=_SLOTS * number, mask=_SLOTS - 1)
        return text.replace("layers = [0, 10]", f"layers = [0, {self._random.randrange(10, 65535)}]")


def _leads_nobody(answer: Answer) -> bool:
    """The controller is not there, or stands by: another one may lead."""
    return not answer.sent or "stands by: " in answer.error


def may_be_done(answer: Answer) -> bool:
    """Whether nobody knows what has become of a change. What was refused has changed nothing, unless the store has not
    answered."""
    if answer.status == 0:
        return answer.sent
    return answer.status == 503 and "store " in answer.error
