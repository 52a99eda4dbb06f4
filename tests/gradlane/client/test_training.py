# SPDX-License-Identifier: Apache-2.0
"""How a process gets its job from controllers that are away, stand by, refuse, or talk nonsense; on a clock of the
test's."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gradlane import AgentError, job
from gradlane.client import training
from gradlane.controller_client import Answer, RequestError

WANTED = {"name": "j", "rank": 0, "workers": 1, "processes": 1, "address": "10.0.1.2", "template": None}
TEXT = job.fill('[job]\nname = "j"\nid = 1\n[transport]\nrate = "1gbit"\n', [("h1", "10.0.1.2", 1)])
MADE = Answer({"job": "j", "id": 1, "text": TEXT}, {}, 200)
WAIT = Answer({"missing": "rank 3", "seconds": 2.0, "patience": 60}, {}, 202)
STANDS_BY = RequestError("c1: stands by", 503)
AWAY = RequestError("c1: connection refused")
LIMITED = RequestError("c1: too many requests", 429, again=4.0)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


class Controller:
    """Answers as it is told, the last answer again and again."""

    def __init__(self, clock: Clock, *answers: Answer | RequestError, takes: float = 0.0) -> None:
        self.clock, self.answers, self.takes = clock, list(answers), takes
        self.asked: list[dict[str, Any]] = []

    def ask(self, method: str, path: str, body: str, media_type: str) -> Answer:
        assert (method, path, media_type) == ("POST", "/v1/trainings", "application/json")
        self.asked.append(json.loads(body))
        self.clock.now += self.takes
        found = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(found, RequestError):
            raise found
        return found

    def __str__(self) -> str:
        return "controller at x"


def asked(clock: Clock, *controllers: Controller) -> job.Job:
    return training.ask(training.Controllers(controllers), WANTED, lambda: clock.now, clock.sleep)  # type: ignore[arg-type]


def test_it_asks_until_all_are_there_as_often_as_it_is_told() -> None:
    clock = Clock()
    one = Controller(clock, WAIT, WAIT, MADE)
    assert asked(clock, one).text == TEXT
    assert one.asked == [WANTED] * 3
    assert clock.slept == [2.0, 2.0]


def test_the_next_controller_is_asked_when_one_is_away_or_stands_by() -> None:
    clock = Clock()
    one, two = Controller(clock, AWAY), Controller(clock, STANDS_BY, WAIT, MADE)
    assert asked(clock, one, two).name == "j"
    assert len(two.asked) == 3
    assert len(one.asked) == 2
    assert clock.now < 5


def test_who_asks_too_often_waits_and_asks_the_same_one() -> None:
    clock = Clock()
    one, two = Controller(clock, LIMITED, MADE), Controller(clock, AWAY)
    assert asked(clock, one, two).name == "j"
    assert (clock.slept, two.asked) == ([4.0], [])


@pytest.mark.parametrize(
    ("answers", "words", "after"),
    [
        ((WAIT,), "after 60 s .job.patience. the controller at x still waits for rank 3", 60),
        ((AWAY,), "for 30 s: c1: connection refused", 30),
        ((STANDS_BY,), "for 30 s: c1: stands by", 30),
        ((RequestError("c1: another token's", 403),), "another token's", 0),
        ((RequestError("c1: conflict", 409),), "conflict", 0),
        ((RequestError("c1: no such", 404),), "no such", 0),
        ((WAIT, RequestError("c1: bad template", 400)), "bad template", 2),
        ((Answer(None, {}, 202),), "something else answers there", 0),
        ((Answer({"seconds": 1e9, "patience": 1, "missing": ""}, {}, 202),), "something else answers there", 0),
        ((Answer({"seconds": "nan", "patience": "nan", "missing": ""}, {}, 202),), "something else answers there", 0),
        ((Answer({"text": 3}, {}, 200),), "something else answers there", 0),
    ],
)
def test_it_ends_in_time_with_what_is_wrong(answers: Any, words: str, after: float) -> None:
    clock = Clock()
    with pytest.raises(AgentError, match=words):
        asked(clock, Controller(clock, *answers))
    assert after <= clock.now <= after + 3


def test_a_file_that_is_no_job_is_named() -> None:
    clock = Clock()
    with pytest.raises(job.JobError, match="job 'j' of the controller at x"):
        asked(clock, Controller(clock, Answer({"text": "x = 1"}, {}, 200)))


@pytest.mark.parametrize(
    ("environment", "more", "words"),
    [
        ({}, {}, "where is the job"),
        ({"GRADLANE_CONTROLLER": "h:1"}, {}, "not the job"),
        ({"GRADLANE_CONTROLLER": "h:1", "GRADLANE_JOB_NAME": "j"}, {}, "RANK of the environment is ''"),
        ({"GRADLANE_CONTROLLER": "h:1", "GRADLANE_JOB_NAME": "j", "RANK": "0"}, {}, "WORLD_SIZE of the environment"),
        ({"GRADLANE_JOB_NAME": "j", "RANK": "0", "WORLD_SIZE": "3", "LOCAL_WORLD_SIZE": "2"}, {"controller": "h:1"},
         "no multiple"),
        ({}, {"controller": "h:1", "file": "job.toml"}, "name one of them"),
    ],
)  # fmt: skip
def test_what_is_missing_is_said(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], more: dict[str, str], words: str
) -> None:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GRADLANE_CONTROLLER", "GRADLANE_JOB_NAME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(AgentError, match=words):
        training.obtain(more.get("file"), None, None, controller=more.get("controller"))


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"GRADLANE_TOKEN": "a b"}, "token: has characters"),
        ({"GRADLANE_TOKEN_FILE": "/none"}, "token: /none: can't be read"),
        ({"GRADLANE_CONTROLLER_CA": "/none"}, "ca: /none can't be used"),
    ],
)
def test_what_is_wrong_with_the_access_is_said_without_the_token(environment: dict[str, str], words: str) -> None:
    with pytest.raises(AgentError, match=words) as caught:
        training.Controllers.of("h:1", environment)
    assert "a b" not in str(caught.value)
    with pytest.raises(AgentError, match="must be HOST:PORT"):
        training.Controllers.of("h:1,h", {})
    with pytest.raises(AgentError, match="is empty"):
        training.Controllers.of(" , ", {})


def test_a_template_is_a_name_or_the_text_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "t.toml"
    file.write_text("[loss]\npush = 0.1\n")
    find: Callable[[str | None], str | None] = training._template
    assert [find(it) for it in (None, "", "lossy", str(file))] == [None, None, "lossy", "[loss]\npush = 0.1\n"]
    with pytest.raises(AgentError, match="can't be read"):
        find("none.toml")
