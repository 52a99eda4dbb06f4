# SPDX-License-Identifier: Apache-2.0
"""The Containerfile and its page: programs take what they are run with, and health checks tell life from death."""

import contextlib
import http.server
import json
import os
import re
import shlex
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from tests.deploy.commands import PARSERS
from tests.gradlane_switch.switch_process import Process
from tests.support.paths import DOCS, ROOT

FILE = (ROOT / "deploy" / "containers" / "Containerfile").read_text().replace("\\\n", "")
PAGE = (DOCS / "containers.md").read_text()
IMAGES = {"agent": "gradlane", "switch": "gradlane-switch", "controller": "gradlane-controller"}


def stage(name: str) -> dict[str, list[str]]:
    """The instructions of an image, by their names."""
    text = re.split(r"^FROM ", FILE.partition(f" AS {name}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]
    found: dict[str, list[str]] = {}
    for word, rest in re.findall(r"^([A-Z]+) (.*)$", text, re.MULTILINE):
        found.setdefault(word, []).append(rest)
    return found


def health(name: str) -> list[str]:
    """The command of its health check, run by the Python of the tests."""
    (line,) = stage(name)["HEALTHCHECK"]
    command: list[str] = json.loads(line.partition("CMD ")[2])
    return [sys.executable, *command[1:]] if command[0] == "python3" else command


def healthy(name: str, address: str) -> bool:
    variables = {**os.environ, "GRADLANE_HEALTH": address}
    return not subprocess.run(health(name), env=variables, capture_output=True, timeout=60, check=False).returncode


@pytest.mark.parametrize(("image", "program"), IMAGES.items())
def test_a_program_takes_what_its_image_runs_and_what_the_page_types(image: str, program: str) -> None:
    found = stage(image)
    assert json.loads(found["ENTRYPOINT"][0]) == [program]
    typed = re.findall(rf"gradlane-{image}:[\d.]+((?: [^\n]*)?)$", PAGE.replace("\\\n", ""), re.MULTILINE)
    assert typed
    for arguments in (json.loads(found["CMD"][0]), *(shlex.split(each) for each in typed)):
        if arguments:
            PARSERS[program]().parse_args(arguments)  # ends the program if it does not take them


@pytest.mark.parametrize("image", ["agent", "controller"])
def test_who_needs_no_capability_is_not_root(image: str) -> None:
    (user,) = stage(image)["USER"]
    assert int(user) > 0
    assert f"| {image} | {user} | none |" in PAGE


def test_nothing_gets_into_the_images_but_wheels() -> None:
    ignored = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line[:1] != "#"]
    assert ignored == ["*", "!out/dist/*.whl"]
    assert [it for it in re.findall(r"^COPY (.*)$", FILE, re.MULTILINE) if not it.startswith("--from=")] == [
        "out/dist/*.whl /wheels/"
    ]


def test_a_switch_is_healthy_while_it_serves() -> None:
    process = Process()
    try:
        assert healthy("switch", process.address)
    finally:
        process.stop()
    assert not healthy("switch", process.address)


@contextlib.contextmanager
def answering(status: int) -> Iterator[str]:
    """Somebody who answers every request so, and the address."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/healthz"
        server.shutdown()


def test_a_controller_is_healthy_when_it_answers_so() -> None:
    with answering(200) as address:
        assert healthy("controller", address)
    with answering(503) as address:
        assert not healthy("controller", address)
    assert not healthy("controller", address)
