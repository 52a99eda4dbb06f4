# SPDX-License-Identifier: Apache-2.0
"""Requests of the emulation to its controller."""

from typing import Any

import pytest

from gradlane.controller_client import RequestError
from lab.model.errors import ControlError
from lab.net import control


class Answers:
    """In the place of a client: what a controller says, one after the other."""

    def __init__(self, *answers: RequestError | None) -> None:
        self.left = list(answers)

    def __call__(self, *_: Any, **__: Any) -> "Answers":
        return self

    def ask(self, *_: Any) -> "Answers":
        if (answer := self.left.pop(0)) is not None:
            raise answer
        return self

    content: Any = None


STANDS_BY = RequestError("DELETE: this controller (c1) stands by: nobody leads yet", 503)


def test_a_controller_that_leads_no_more_for_a_moment_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = Answers(STANDS_BY, STANDS_BY, None)
    monkeypatch.setattr(control, "Client", answers)
    control.Controller("127.0.0.1:1").delete_job("trial")
    assert answers.left == []


@pytest.mark.parametrize("refused", [STANDS_BY, RequestError("DELETE: is lost", 503), RequestError("no job", 404)])
def test_what_else_is_refused_and_who_does_not_lead_in_time_is_told(
    monkeypatch: pytest.MonkeyPatch, refused: RequestError
) -> None:
    monkeypatch.setattr(control, "Client", Answers(refused))
    monkeypatch.setattr(control, "_LEADS_SECONDS", -1.0)
    with pytest.raises(ControlError, match=f"DELETE /v1/jobs/trial: {str(refused)[:10]}"):
        control.Controller("127.0.0.1:1").delete_job("trial")
