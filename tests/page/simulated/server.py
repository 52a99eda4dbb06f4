# SPDX-License-Identifier: Apache-2.0
"""Serves the page and the API's contract, from a simulation or a recording, in threads of this process."""

import contextlib
import json
import math
import socket
import threading
import time
from collections.abc import Generator
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol
from urllib.parse import parse_qs, unquote, urlsplit

from tests.page.simulated.desired import DesiredState, Refused
from tests.support.paths import ROOT

PAGE = ROOT / "controller" / "src" / "gradlane_controller" / "page"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
TYPES = {
    ".html": "text/html",
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
    ".txt": "text/plain",
}
SCOPES = ("read", "jobs", "admin")
TOKENS = {f"{scope}-token": set(SCOPES[: i + 1]) for i, scope in enumerate(SCOPES)}
MAX_ITEMS = 400


class Source(Protocol):
    """Where snapshots come from: one for each second since `base` (s since 1970)."""

    base: float

    def fabric(self) -> dict[str, Any]:
        """What GET /v1/fabric answers."""
        ...

    def job_files(self) -> dict[str, str]:
        """By name."""
        ...

    def snapshot(self, second: int) -> dict[str, Any]:
        """The state in that second."""
        ...

    def events(self, first: int, last: int) -> list[dict[str, Any]]:
        """The timeline between these seconds (inclusive), the oldest first."""
        ...


class Server:
    """A context: inside it answers at `address`. Every browser test has its own."""

    def __init__(self, source: Source, port: int = 0, interval: float = 1.0) -> None:
        self.source = source
        self.desired = DesiredState(source.fabric(), source.job_files())
        self.interval = interval
        self.requests: list[tuple[str, str]] = []  # method and path with query, of the API
        self._lock = threading.Lock()
        self._latest: tuple[int, bytes] = (-1, b"")
        self._cut = threading.Event()  # connections end and new ones are refused
        self._stopped = threading.Event()
        server = self

        class Handler(_Handler):
            of = server

        class Http(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 64

            def handle_error(self, request: Any, client_address: Any) -> None:
                """A browser that goes away is no error."""

        self._http = Http(("127.0.0.1", port), Handler)
        self.address = f"http://127.0.0.1:{self._http.server_port}"
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    def __enter__(self) -> "Server":
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stopped.set()
        self._http.shutdown()
        self._http.server_close()

    @property
    def second(self) -> int:
        """The present one."""
        return int(time.time() - self.source.base)

    def message(self, second: int) -> bytes:
        """The event `state` of that second, made once for all streams."""
        with self._lock:
            if self._latest[0] != second:
                state = json.dumps(self.desired.adapt(self.source.snapshot(second)), separators=(",", ":"))
                self._latest = second, f"event: state\ndata: {state}\n\n".encode()
            return self._latest[1]

    @contextlib.contextmanager
    def cut_off(self) -> Generator[None, None, None]:
        """No connection to the API lives or begins inside of this."""
        self._cut.set()
        try:
            yield
        finally:
            self._cut.clear()

    @property
    def is_cut_off(self) -> bool:
        """Whether nobody gets through."""
        return self._cut.is_set() or self._stopped.is_set()

    def wait(self, seconds: float) -> None:
        """Returns earlier when it ends."""
        self._stopped.wait(seconds)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    of: Server

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing."""

    def do_GET(self) -> None:
        self._answer()

    do_POST = do_PUT = do_DELETE = do_GET

    def _answer(self) -> None:
        url = urlsplit(self.path)
        length = int(self.headers.get("Content-Length", "0"))
        body = self.rfile.read(length).decode()
        if not url.path.startswith("/v1/"):
            self._page(url.path)
            return
        if self.of.is_cut_off:
            self.close_connection = True
            with contextlib.suppress(OSError):
                self.connection.shutdown(socket.SHUT_RDWR)
            return
        self.of.requests.append((self.command, self.path))
        try:
            query = {name: values[0] for name, values in parse_qs(url.query).items()}
            self._api(url.path.removeprefix("/v1/"), query, body)
        except Refused as problem:
            self._send_json(problem.status, {"error": str(problem)})

    def _page(self, path: str) -> None:
        file = PAGE / ("index.html" if path == "/" else path.lstrip("/"))
        if PAGE not in file.resolve().parents or not file.is_file():
            self._send(404, b"no such file", "text/plain")
            return
        extra = {"Content-Security-Policy": POLICY, "X-Content-Type-Options": "nosniff"}
        self._send(200, file.read_bytes(), TYPES[file.suffix], extra)

    def _allow(self, scope: str) -> None:
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if token not in TOKENS:
            raise Refused(401, "no such token; send Authorization: Bearer TOKEN")
        if scope not in TOKENS[token]:
            raise Refused(403, f"this token may not do that: it lacks the scope {scope}")

    def _api(self, path: str, query: dict[str, str], body: str) -> None:
        self._allow("read")
        source, now, parts = self.of.source, self.of.second, [unquote(it) for it in path.split("/")]
        match self.command, parts:
            case "GET", ["stream"]:
                self._stream()
            case "GET", ["fabric"]:
                self._send_json(200, source.fabric())
            case "GET", ["state"]:
                self._send_json(200, source.snapshot(now))
            case "GET", ["events"]:
                self._send_json(200, _events(source, now, query))
            case "GET", ["history"]:
                self._send_json(200, _history(source, now, query))
            case "GET", ["jobs"]:
                self._send_json(200, {"items": self.of.desired.jobs(), "next": None})
            case "GET", ["jobs", name]:
                job = self.of.desired.job(name)
                self._send_json(200, job, {"ETag": f'"{job["version"]}"'})
            case "PUT", ["jobs", name]:
                self._allow("jobs")
                match = self.headers.get("If-Match"), self.headers.get("If-None-Match")
                self._send_json(200, self.of.desired.put(name, body, *match))
            case "DELETE", ["jobs", name]:
                self._allow("jobs")
                self._send_json(200, self.of.desired.delete(name, self.headers.get("If-Match")))
            case "POST", ["plan"]:
                self._send_json(200, self.of.desired.plan(body, live=query.get("live") == "true"))
            case "POST", ["switches", name, ("drain" | "undrain") as verb]:
                self._allow("admin")
                self.of.desired.drain(name, verb)
                self._send_json(200, {"switch": name, "state": verb})
            case "POST", ["adaptive", "train", ("undo" | "resume") as verb]:
                self._allow("admin")
                self._send_json(200, self.of.desired.tuning(verb))
            case _:
                raise Refused(404, f"no {self.path} here")

    def _stream(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Cache-Control", "no-store")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        told = self.of.second
        with contextlib.suppress(OSError):
            while not self.of.is_cut_off:
                now = self.of.second
                text = ""
                for event in self.of.source.events(told + 1, now):
                    text += f"event: event\nid: {event['id']}\ndata: {json.dumps(event)}\n\n"
                told = now
                self.wfile.write(self.of.message(now) + text.encode())
                self.wfile.flush()
                self.of.wait(self.of.interval)

    def _send_json(self, status: int, answer: Any, extra: dict[str, str] | None = None) -> None:
        self._send(status, json.dumps(answer, separators=(",", ":")).encode(), "application/json", extra)

    def _send(self, status: int, body: bytes, kind: str, extra: dict[str, str] | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in (extra or {}).items():
            self.send_header(name, value)
        self.end_headers()
        with contextlib.suppress(OSError):
            self.wfile.write(body)


def _events(source: Source, now: int, query: dict[str, str]) -> dict[str, Any]:
    """The latest `limit` ones without `after`, else the first that came after that number."""
    found = source.events(max(0, now - 4 * 3600), now)
    if kind := query.get("kind"):
        found = [it for it in found if it["kind"] == kind]
    limit = min(MAX_ITEMS, int(query.get("limit", "100")))
    if after := query.get("after"):
        found = [it for it in found if it["id"] > int(after)][:limit]
    return {"items": found[-limit:], "next": None}


def _history(source: Source, now: int, query: dict[str, str]) -> dict[str, Any]:
    """Snapshots from that of one time (ISO 8601) to another, `step` seconds apart."""
    first, last = (_second(source, query[name]) for name in ("from", "to"))
    step = max(1, int(float(query.get("step", "1"))))
    seconds = range(max(0, first), min(now, last) + 1, step)[:MAX_ITEMS]
    return {"items": [source.snapshot(it) for it in seconds], "next": None}


def _second(source: Source, text: str) -> int:
    try:
        # Times are told in whole milliseconds, which may be a little before the second that they mean.
        return math.floor(datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() - source.base + 0.001)
    except ValueError:
        raise Refused(400, f"{text!r} is no time; write it as 2026-01-01T00:00:00Z") from None


def page_is_built() -> bool:
    """Whether there is a page to serve."""
    return (PAGE / "index.html").is_file()
