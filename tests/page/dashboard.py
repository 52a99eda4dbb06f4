# SPDX-License-Identifier: Apache-2.0
"""`make dashboard`: the controller's page on a recorded run, or on a simulated fabric. It needs no root.

python -m tests.page.dashboard [--recording FILE | --simulated small|large] [--port 9570]
python -m tests.page.dashboard --record FILE --address URL --token TOKEN --seconds 300
"""

import argparse
import http.client
import json
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.page.simulated.recording import Recording, write
from tests.page.simulated.server import Server, Source, page_is_built
from tests.page.simulated.simulation import Simulation
from tests.page.simulated.topology import large, small

HERE = Path(__file__).parent
RECORDING = HERE / "recordings" / "spine-failure.jsonl.gz"
BEFORE = 3600  # s that can be replayed at once


def main(arguments: list[str] | None = None) -> int:
    """Serves until it is interrupted, or records. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="make dashboard", description="The controller's page without a controller.")
    parser.add_argument("--recording", type=Path, default=RECORDING, help="JSON lines, perhaps gzipped")
    parser.add_argument("--simulated", choices=("small", "large"), help="a made-up fabric instead of a recording")
    parser.add_argument("--port", type=int, default=9570, help="on 127.0.0.1; 0: any")
    parser.add_argument("--record", type=Path, metavar="FILE", help="record a running controller instead")
    parser.add_argument("--address", default="http://127.0.0.1:9560", help="of that controller")
    parser.add_argument("--token", default="", help="for that controller, with the scope read")
    parser.add_argument("--seconds", type=int, default=300, help="how long to record")
    parser.add_argument("--title", default="a recorded run", help="what the recording is of")
    options = parser.parse_args(arguments)
    try:
        if options.record:
            record(options.record, options.title, options.address, options.token, options.seconds)
            return 0
        return serve(_source(options), options.port)
    except (OSError, ValueError) as problem:
        print(f"dashboard: error: {problem}", file=sys.stderr)
        return 1


def serve(source: Source, port: int) -> int:
    """Until it is interrupted."""
    if not page_is_built():
        print("dashboard: error: the page is not built; `make page` builds it", file=sys.stderr)
        return 1
    with Server(source, port) as server:
        what = source.title if isinstance(source, Recording) else "a simulated fabric"
        print(f"{what}\nopen {server.address}/#token=admin-token (Ctrl-C ends it)", flush=True)
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            print()
    return 0


def record(path: Path, title: str, address: str, token: str, seconds: int) -> None:
    """Writes what a controller says for so long. Raises OSError."""

    def ask(what: str) -> Any:
        request = urllib.request.Request(f"{address}/v1/{what}", headers={"Authorization": f"Bearer {token}"})
        return urllib.request.urlopen(request, timeout=10)

    def messages() -> Iterator[tuple[str, Any]]:
        end, kind = time.monotonic() + seconds, ""
        with ask("stream") as stream:
            for line in stream:
                name, _, value = line.decode().rstrip("\r\n").partition(":")
                if name == "event":
                    kind = value.strip()
                elif name == "data" and kind in ("state", "event"):
                    yield kind, json.loads(value)
                if time.monotonic() >= end:
                    return

    with ask("fabric") as answer:
        fabric = json.load(answer)
    files: dict[str, str] = {}
    said: list[tuple[str, Any]] = []
    with suppress(ConnectionError, http.client.HTTPException):  # the controller has ended before
        for kind, content in messages():
            said.append((kind, content))
            if kind == "state" and not files.keys() >= {it["name"] for it in content["jobs"]}:
                with ask("jobs") as answer:
                    files |= {it["name"]: it.get("text") or "" for it in json.load(answer)["items"]}
    write(path, title, fabric, files, iter(said))


def _source(options: argparse.Namespace) -> Source:
    base = time.time() - BEFORE
    if options.simulated:
        return Simulation(small() if options.simulated == "small" else large(), base)
    return Recording(options.recording, base)


if __name__ == "__main__":
    sys.exit(main())
