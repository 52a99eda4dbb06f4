# SPDX-License-Identifier: Apache-2.0
"""Random requests that schemathesis makes from the OpenAPI document: none is an error of the server, answers are as the
document says, and who may not change anything changes nothing."""

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
)

from gradlane_controller.client import JOB_TYPE
from tests.gradlane_controller.api.server import PATIENCE, Server
from tests.gradlane_controller.api.test_security import NEEDS, OPEN
from tests.gradlane_controller.fake_switch import FakeSwitch
from tests.gradlane_controller.texts import fabric_text, job_text
from tests.support.effort import tries

CHECKS = [not_a_server_error, content_type_conformance, response_headers_conformance, response_schema_conformance]
EXAMPLES = tries(5)
schemathesis.serializer.alias(JOB_TYPE, "text/plain")


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    switch = FakeSwitch()
    switch.start()
    it = Server(tmp_path_factory.mktemp("live"), fabric=fabric_text(switch.address), jobs=(job_text(),))
    yield it
    it.close()
    switch.stop()


@pytest.fixture(scope="module")
def document(live: Server) -> Any:
    return schemathesis.openapi.from_dict(live.ask("GET", "/openapi.json")[1])


def held(live: Server) -> Any:
    """What requests could change."""
    tokens = [{**it, "used": None} for it in live.ask("GET", "/v1/tokens?limit=1000")[1]["items"]]
    jobs = live.ask("GET", "/v1/jobs")[1]["items"]
    return tokens, jobs, live.ask("GET", "/v1/fabric")[1]


def ask(live: Server, case: schemathesis.Case, token: str | None) -> int:
    headers = {} if token is None else {"Authorization": f"Bearer {live.tokens[token]}"}
    case.headers = {name: it for name, it in (case.headers or {}).items() if name.lower() != "authorization"}
    address = f"http://127.0.0.1:{live.port}"
    return case.call_and_validate(base_url=address, headers=headers, checks=CHECKS, timeout=PATIENCE).status_code


OPERATIONS = [it for it in (*NEEDS, *OPEN) if it != ("GET", "/v1/stream")]  # which does not end


@pytest.mark.parametrize("mode", list(GenerationMode))
@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_whatever_is_sent_is_answered_as_documented_and_who_may_only_read_changes_nothing(
    live: Server, document: Any, method: str, path: str, mode: GenerationMode
) -> None:
    cases: list[schemathesis.Case] = []

    @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(case=document[path][method].as_strategy(generation_mode=mode))
    def strangers_and_readers(case: schemathesis.Case) -> None:
        needed = NEEDS.get((method, path))
        assert ask(live, case, None) >= 400 or needed is None
        assert ask(live, case, "read") >= 400 or needed in (None, "read")
        cases.append(case)

    before = held(live)
    try:
        strangers_and_readers()
    except Unsatisfiable:
        assert mode is GenerationMode.NEGATIVE  # there is nothing about this request that could be wrong
    assert held(live) == before
    for case in cases:
        ask(live, case, "admin")
