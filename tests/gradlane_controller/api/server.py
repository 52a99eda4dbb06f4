# SPDX-License-Identifier: Apache-2.0
"""The HTTP API of a controller, in a thread."""

import asyncio
import http.client
import json
import select
import socket
import ssl
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

from gradlane_controller.api.application import make_application
from gradlane_controller.api.connections import serving
from gradlane_controller.api.context import Context
from gradlane_controller.api.tokens import Scope
from gradlane_controller.client import JOB_TYPE
from gradlane_controller.desired import pipeline
from gradlane_controller.service import Controller
from gradlane_controller.store import Store
from tests.gradlane_controller.texts import fabric_text
from tests.support.ports import free_ports

PATIENCE = 60.0


class Server:
    """`controller` may be given other methods. `tokens` are of each scope, by its name."""

    def __init__(
        self,
        folder: Path,
        context: ssl.SSLContext | None = None,
        fabric: str | None = None,
        jobs: tuple[str, ...] = (),
        grace: float = 60.0,
    ) -> None:
        """`fabric`: of switches that are there, which the controller converges; `grace`: as Trainings takes it."""
        self._grace = grace
        (folder / "fabric.toml").write_text(fabric or fabric_text("127.0.0.1:9"))
        self._files = [folder / f"job{number}.toml" for number in range(len(jobs))]
        for file, text in zip(self._files, jobs, strict=True):
            file.write_text(text)
        self._runs = fabric is not None
        (self.port,) = free_ports(1)
        self.tokens: dict[str, str] = {}
        self.folder, self._context = folder, context
        self.store_url = f"sqlite:///{folder / 'fabric.db'}"
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self._thread.start()
        assert self._started.wait(PATIENCE)

    async def _run(self) -> None:
        self.store = Store.open(self.store_url)
        self.controller = Controller(
            pipeline.Programs(pipeline.DEFAULT_FOLDER), self.folder / "fabric.toml", self._files, self.store
        )
        # The test's threads and this one share one GIL, so on a busy machine the lease would not be renewed in time.
        leads = patch.object(self.controller.leadership, "_seconds", new=lambda least=0.0: 3600.0)
        leads.start()
        self.context = Context.of(self.controller, self.store, grace=self._grace)
        for scope in Scope:
            _, self.tokens[scope.text] = await self.context.tokens.create(f"for {scope.text}", scope)
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        running = asyncio.gather(self.context.run(), *([self.controller.run()] if self._runs else []))
        if self._runs:
            await self.controller.wait_until_ready()
        where = "127.0.0.1", self.port, self._context
        application = make_application(self.context, "127.0.0.1")
        async with serving(application, *where, self.context.traffic.refused) as self.places:
            self._started.set()
            await self._stop.wait()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        leads.stop()
        self.store.close()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), PATIENCE)

    def call(self, function: Callable[..., object], *arguments: Any, **more: Any) -> None:
        """Has it called by the server's thread."""
        self._loop.call_soon_threadsafe(lambda: function(*arguments, **more))

    def make_token(self, scope: Scope, lifetime: timedelta | None = None, host: str | None = None) -> tuple[str, str]:
        """Its id, and what to send."""
        made = asyncio.run_coroutine_threadsafe(self.context.tokens.create("made", scope, lifetime, host), self._loop)
        token, text = made.result(PATIENCE)
        return token.id, text

    def ask(
        self, method: str, path: str, body: Any = None, token: str | None = "admin", **headers: str
    ) -> tuple[int, Any]:
        """Status and JSON; `token`: of that scope, or another one, or none; `headers` with _ for -."""
        status, answer, _ = self.ask_all(method, path, body, token, **headers)
        return status, answer

    def ask_all(
        self, method: str, path: str, body: Any = None, token: str | None = "admin", **headers: str
    ) -> tuple[int, Any, dict[str, str]]:
        """The same, and the answer's headers, in lower case."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        given = {"Content-Type": JOB_TYPE} | {key.replace("_", "-"): it for key, it in headers.items()}
        if token is not None:
            given["Authorization"] = f"Bearer {self.tokens.get(token, token)}"
        try:
            connection.request(method, path, body, given)
            answer = connection.getresponse()
            content = answer.read()
            found = {name.lower(): value for name, value in answer.getheaders()}
            return answer.status, json.loads(content) if content else None, found
        finally:
            connection.close()

    def send(self, *parts: bytes, patience: float = 0.0) -> bytes:
        """What comes back for raw bytes until the server closes the connection. A client that says it has no more
        before an answer begins is answered by chance; it waits for that for so many s."""
        with self.connect() as sock:
            try:
                for part in parts:
                    sock.sendall(part)
                select.select([sock], [], [], patience)
                sock.shutdown(socket.SHUT_WR)
            except OSError:
                pass  # it has closed already
            return read(sock)

    def head(self, method: str, path: str, token: str = "admin") -> bytes:
        """The first lines of a request, to be sent as they are."""
        return f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {self.tokens[token]}\r\n".encode()


def read(sock: socket.socket) -> bytes:
    """Until the other side closes. TimeoutError if it does not."""
    found = b""
    try:
        while more := sock.recv(65536):
            found += more
    except ConnectionError:
        pass
    return found
