# SPDX-License-Identifier: Apache-2.0
"""A browser, and servers of simulated fabrics for it."""

import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.page.simulated.server import Server
from tests.page.simulated.simulation import Simulation
from tests.page.simulated.story import PERIOD
from tests.page.simulated.topology import Topology, large, small

CHROMIUM = shutil.which("chromium")
HOUR = 3600
PATIENCE = 60_000  # ms: with 64 switches the browser alone takes both cores for seconds


def simulation(topology: Topology, moment: int) -> Simulation:
    """One in which the story is at that second of its period now, after more than an hour."""
    assert HOUR % PERIOD == 0
    return Simulation(topology, time.time() - HOUR - moment)


@dataclass
class Opened:
    """A page and what went wrong in it. `expected` are parts of messages that are no error in this test."""

    page: Any
    server: Server
    problems: list[str] = field(default_factory=list)
    expected: list[str] = field(default_factory=list)

    def expect_address(self, pattern: str) -> None:
        """Waits until the fragment has that regular expression."""
        self.page.wait_for_function("pattern => new RegExp(pattern).test(location.hash)", arg=pattern)

    def see(self, address: str) -> None:
        """Goes to a view as a link does."""
        self.page.evaluate("address => { location.hash = address }", address)

    @property
    def address(self) -> str:
        """The fragment that the browser shows."""
        return self.page.evaluate("location.hash")

    def unexpected(self) -> list[str]:
        """What went wrong, but for what the test expects."""
        return [it for it in self.problems if not any(part in it for part in self.expected)]


def expect(what: Any) -> Any:
    """Playwright's assertions about a locator, which wait until they hold: what a browser shows comes when it comes."""
    return sync_api().expect(what)


def sync_api() -> Any:
    """Playwright, where it is installed."""
    return pytest.importorskip("playwright.sync_api", reason="playwright is not installed: see requirements.txt")


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """The browser, one for all tests of a file: while it is there, this thread has an event loop that runs, and others'
    tests can have none of their own."""
    if CHROMIUM is None:
        pytest.skip("chromium is not on PATH (Debian: apt-get install chromium): the page was not tested in a browser")
    sync_api().expect.set_options(timeout=PATIENCE)
    with sync_api().sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--js-flags=--expose-gc", "--disable-dev-shm-usage"]
        )
        yield browser
        browser.close()


@pytest.fixture
def small_fabric() -> Iterator[Server]:
    """At a time when nothing is wrong but that a host is late and a port sends foreign gradients."""
    with Server(simulation(small(), 130), interval=0.5) as server:
        yield server


@pytest.fixture
def large_fabric() -> Iterator[Server]:
    """64 switches, 1,024 hosts, 100 jobs; a link is down."""
    with Server(simulation(large(), 45)) as server:
        yield server


@pytest.fixture
def visit(chromium: Any) -> Iterator[Callable[..., Opened]]:
    """Opens the page of a server. After the test nothing may have gone wrong in any of them: no error in the console,
    no exception, nothing that the Content-Security-Policy forbids, nothing asked of anybody else."""
    opened: list[Opened] = []
    contexts: list[Any] = []

    def open_page(
        server: Server, fragment: str = "#token=admin-token", *, wait: str = "main h1", **options: Any
    ) -> Opened:
        context = chromium.new_context(**{"viewport": {"width": 1280, "height": 800}, "locale": "en-GB", **options})
        context.set_default_timeout(PATIENCE)
        contexts.append(context)
        page = context.new_page()
        it = Opened(page, server)
        opened.append(it)
        page.on("console", lambda message: it.problems.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: it.problems.append(f"exception: {error}"))
        page.on(
            "request",
            lambda request: (
                None if request.url.startswith(server.address) else it.problems.append(f"asked for {request.url}")
            ),
        )
        page.add_init_script(
            "addEventListener('securitypolicyviolation', e => console.error('policy: ' + e.violatedDirective))"
        )
        page.goto(f"{server.address}/{fragment}")
        page.wait_for_selector(wait)
        return it

    yield open_page
    problems = [problem for it in opened for problem in it.unexpected()]
    for context in contexts:
        context.close()
    assert problems == []
