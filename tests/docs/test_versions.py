# SPDX-License-Identifier: Apache-2.0
"""What the pages on versions say is what the sources say."""

import re
from importlib.metadata import version

from gradlane import wire
from gradlane.control import handshake
from gradlane.ipc import messages
from gradlane_switch.p4runtime import service
from tests.support.paths import DOCS, ROOT

VERSION = (ROOT / "VERSION").read_text().strip()


def test_the_page_has_the_numbers_of_this_version() -> None:
    page = (DOCS / "compatibility.md").read_text()
    assert f"the agents' protocol ({handshake.AGENTS_VERSION}), and that of the datagrams ({wire.VERSION})" in page
    assert f"this agent version {handshake.VERSION}`" in page
    assert f"the agent's socket ({messages.VERSION})" in page
    assert f"of the agent's socket, this agent version {messages.VERSION}`" in page
    assert f"the datagrams' version ({wire.VERSION})" in page
    assert f"{service.API_VERSION}, as gradlane-switch says" in page


def test_every_distribution_has_the_version_of_the_one_place() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+((a|b|rc)\d+)?", VERSION)
    for part in ("agent", "switch", "controller"):
        assert (ROOT / part / "VERSION").resolve() == ROOT / "VERSION"
    for name in ("gradlane", "gradlane-switch", "gradlane-controller"):
        assert version(name) == VERSION, "make test installs them again"


def test_the_changelog_is_of_releases_in_their_order_with_a_day_each() -> None:
    titles = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert titles[0] == "[Unreleased]"
    released = [re.fullmatch(r"\[(\d+)\.(\d+)\.(\d+)\] - \d{4}-\d\d-\d\d", title) for title in titles[1:]]
    numbers = [tuple(map(int, found.groups())) for found in released if found is not None]
    assert len(numbers) == len(released)
    assert numbers == sorted(numbers, reverse=True)
