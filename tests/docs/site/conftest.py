# SPDX-License-Identifier: Apache-2.0
"""What `make docs` has made. Without it these tests are skipped: `make test-docs` runs them."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def site(pytestconfig: pytest.Config) -> Path:
    return given(pytestconfig, "--site").resolve()


@pytest.fixture(scope="session")
def python(pytestconfig: pytest.Config) -> Path:
    """That of the environment with MkDocs. Its link is not followed, as that tells the environment."""
    return given(pytestconfig, "--site-python").absolute()


def given(config: pytest.Config, option: str) -> Path:
    path = config.getoption(option)
    if path is None:
        pytest.skip("make test-docs runs it")
    return path


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """A browser."""
    found = shutil.which("chromium")
    if found is None:
        pytest.skip("chromium is not on PATH (Debian: apt-get install chromium): the site was not tested in a browser")
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: see requirements.txt")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield browser
        browser.close()
