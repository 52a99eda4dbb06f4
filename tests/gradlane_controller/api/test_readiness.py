# SPDX-License-Identifier: Apache-2.0
"""Whether a controller is ready, and why not."""

from typing import Any

import pytest

from gradlane_controller.api.routes.plain import unready
from tests.gradlane_controller.api.server import Server


def switch(**other: Any) -> dict[str, Any]:
    return {"name": "s1", "connected": True, "ready": True, "refused": [], "problem": ""} | other


AWAY = switch(connected=False, ready=False, problem="can't be reached")


@pytest.mark.parametrize(
    ("leader", "switches", "problems"),
    [
        (True, [switch()], []),
        (True, [switch(), AWAY], []),  # which is not reached
        (True, [AWAY], ["no switch is reached"]),
        (True, [switch(ready=False, problem="is being converged"), switch()], ["s1: is being converged"]),
        (True, [switch(refused=["an entry"], problem="refuses 1 of its entries")], ["s1: refuses 1 of its entries"]),
        (False, [switch()], ["this controller stands by: c2 leads"]),
    ],
)
def test_ready_is_who_leads_and_has_converged_what_it_reaches(
    leader: bool, switches: list[dict[str, Any]], problems: list[str]
) -> None:
    assert unready({"controller": {"leader": leader, "who": "c2 leads"}, "switches": switches}) == problems


def test_it_is_said_without_a_token_and_the_process_lives_all_the_same(server: Server) -> None:
    status, answer = server.ask("GET", "/readyz", token=None)
    assert (status, answer["ready"]) == (503, False)
    assert answer["problems"]
    assert server.ask("GET", "/healthz", token=None) == (200, {"alive": True})
