# SPDX-License-Identifier: Apache-2.0
"""Who asks too often, or with tokens that nobody has, is slowed down, and nobody else."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from starlette.datastructures import Headers

from gradlane_controller.api.errors import Refusal
from gradlane_controller.api.rates import MAX_KNOWN, Buckets, Rate
from gradlane_controller.api.security import FAILURES, REQUESTS, Doorkeeper
from gradlane_controller.api.tokens import Scope, Tokens
from gradlane_controller.store import Store
from tests.gradlane_controller.api.server import Server


def test_failures_are_slowed_down_by_address_and_do_not_lock_out_who_has_a_token(server: Server) -> None:
    wrong = f"gradlane_{'0' * 16}_{'A' * 43}"
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: server.ask_all("GET", "/v1/status", token=wrong), range(3 * FAILURES.at_once)))
    refused = [(answer, headers) for status, answer, headers in found if status == 429]
    assert {status for status, *_ in found} == {401, 429}
    assert refused
    for answer, headers in refused:
        assert "too many requests of 127.0.0.1 with tokens that nobody has" in answer["error"]
        assert int(headers["retry-after"]) >= 1
    assert server.ask("GET", "/v1/status")[0] == 200


def test_a_bucket_holds_what_its_rate_says() -> None:
    now = [0.0]
    it = Buckets(Rate(2.0, 3), lambda: now[0])
    assert [it.take("a") for _ in range(4)] == [0, 0, 0, 0.5]
    assert it.take("b") == 0
    now[0] = 0.5
    assert [it.take("a"), it.take("a")] == [0, 0.5]
    now[0] = 100.0
    assert [it.take("a") for _ in range(4)] == [0, 0, 0, 0.5]  # no more than so many at once
    for number in range(MAX_KNOWN):
        it.take(number)
    assert it.take("a") == 0  # forgotten


def test_a_token_that_asks_too_often_has_to_wait_and_others_need_not(tmp_path: Path) -> None:
    async def run() -> None:
        store = Store.open(f"sqlite:///{tmp_path / 'fabric.db'}")
        tokens = Tokens(store)
        keeper = Doorkeeper(tokens, "127.0.0.1")
        (_, greedy), (_, other) = [await tokens.create(name, Scope.READ) for name in ("greedy", "other")]

        def admit(text: str) -> None:
            keeper.admit("192.0.2.1", Headers({"Authorization": f"Bearer {text}"}))

        def greed() -> None:
            for _ in range(10 * REQUESTS.at_once):
                admit(greedy)

        with pytest.raises(Refusal, match="too many requests with this token") as refused:
            greed()
        assert refused.value.status == 429
        assert refused.value.headers == {"Retry-After": "1"}
        admit(other)
        store.close()

    asyncio.run(run())


def test_ipv6_addresses_of_one_network_are_one_client(tmp_path: Path) -> None:
    keeper = Doorkeeper(Tokens(Store.open(f"sqlite:///{tmp_path / 'fabric.db'}")), "127.0.0.1")

    def status(address: str) -> int:
        with pytest.raises(Refusal) as refused:
            keeper.admit(address, Headers({"Authorization": "Bearer x"}))
        return refused.value.status

    assert [status(f"2001:db8::{n:x}") for n in range(FAILURES.at_once + 1)] == [401] * FAILURES.at_once + [429]
    assert status("2001:db8:0:1::1") == 401
    assert status("192.0.2.1") == 401
    assert [status(f"::ffff:192.0.2.{n}") for n in range(2, 2 + FAILURES.at_once)] == [401] * FAILURES.at_once
    assert status("::ffff:192.0.2.99") == 401  # IPv4 clients of a socket for both
