# SPDX-License-Identifier: Apache-2.0
"""What several commands have in common: the files, and how a running controller is asked."""

import argparse
import contextlib
import json
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gradlane import GradlaneError
from gradlane_controller.desired.pipeline import DEFAULT_FOLDER
from gradlane_controller.http_api import JOB_TYPE

DEFAULT_HTTP = "127.0.0.1:9560"
REQUEST_SECONDS = 60  # a drain waits for every switch

Add = Callable[[str, Callable[[argparse.Namespace], int], str], argparse.ArgumentParser]
"""Adds a command of that name, which runs that function, with a line of help."""


class UsageError(GradlaneError):
    """A flag has a wrong value; the message names it."""


def files(parser: argparse.ArgumentParser) -> None:
    """--fabric and --job."""
    parser.add_argument("--fabric", type=Path, required=True, metavar="FILE", help="the fabric file (TOML)")
    parser.add_argument("--job", type=Path, action="append", default=[], metavar="FILE", help="a job file; repeatable")


def programs(parser: argparse.ArgumentParser) -> None:
    """--p4-dir."""
    parser.add_argument(
        "--p4-dir",
        type=Path,
        default=DEFAULT_FOLDER,
        metavar="DIR",
        help="where p4c's output is: the .json and .p4info.txtpb of the programs (default: the packaged ones)",
    )


def http(parser: argparse.ArgumentParser) -> None:
    """--http, of a running controller."""
    parser.add_argument("--http", default=DEFAULT_HTTP, metavar="HOST:PORT", help=f"its API (default {DEFAULT_HTTP})")


def ask(
    endpoint: str, path: str, expected: set[str], body: bytes | None = None, kind: str = JOB_TYPE
) -> dict[str, Any]:
    """The JSON answer of a running controller, to a POST if there is a body. Raises GradlaneError that names its
    address."""
    parse_endpoint(endpoint)
    where = f"controller at http://{endpoint}"
    try:
        request = urllib.request.Request(f"http://{endpoint}{path}", body, {"Content-Type": kind})
        with urllib.request.urlopen(request, timeout=REQUEST_SECONDS) as answer:
            content = json.load(answer)
    except urllib.error.HTTPError as problem:
        reason = str(problem)
        with contextlib.suppress(ValueError, KeyError):
            reason = json.load(problem)["error"]
        raise GradlaneError(f"{where}: {reason}") from None
    except (OSError, ValueError) as problem:
        reason = getattr(problem, "reason", problem)
        raise GradlaneError(f"{where}: {reason}; is `gradlane-controller run` there?") from None
    if not expected <= set(content):
        raise GradlaneError(f"{where}: something else answers there; name the controller's address with --http")
    return content


def parse_endpoint(text: str) -> tuple[str, int]:
    """HOST and PORT. Raises UsageError."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise UsageError(f"--http: {text!r} must be HOST:PORT, e.g. {DEFAULT_HTTP!r}")
    return host.strip("[]"), int(port)
