# SPDX-License-Identifier: Apache-2.0
"""A controller in a thread of this process, which starts at once."""

import asyncio
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gradlane_controller.desired import pipeline
from gradlane_controller.service import Controller
from gradlane_controller.store import Store
from tests.support.agents import pause

PATIENCE = 60.0
PROGRAMS = pipeline.Programs(pipeline.DEFAULT_FOLDER)
PIPELINE = pipeline.load(pipeline.DEFAULT_FOLDER)


class ControllerThread:
    """Runs until `close`; `failure` is what it ended with before."""

    def __init__(self, folder: Path, fabric: str, *jobs: str, check_links: bool = False) -> None:
        (folder / "fabric.toml").write_text(fabric)
        self._files = [folder / f"job{number}.toml" for number in range(len(jobs))]
        for file, text in zip(self._files, jobs, strict=True):
            file.write_text(text)
        self._folder, self._check_links = folder, check_links
        self.failure: BaseException | None = None
        self._made = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self._thread.start()
        assert self._made.wait(PATIENCE)

    async def _run(self) -> None:
        store = Store.open(f"sqlite:///{self._folder}/fabric.db")
        self.it = Controller(PROGRAMS, self._folder / "fabric.toml", self._files, store, check_links=self._check_links)
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.ensure_future(self.it.run())
        self._made.set()
        try:
            await self._task
        except asyncio.CancelledError:
            pass
        except BaseException as problem:  # noqa: BLE001
            self.failure = problem
        finally:
            store.close()

    def do(self, method: Callable[..., Any], *arguments: Any) -> Any:
        """The result of a method of the controller, which may be a coroutine's."""

        async def run() -> Any:
            result = method(*arguments)
            return await result if asyncio.iscoroutine(result) else result

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(PATIENCE)

    def call_soon(self, function: Callable[[], object]) -> None:
        """Has it called by the controller's thread, in its next turn."""
        self._loop.call_soon_threadsafe(function)

    def switch(self, name: str = "s1") -> dict[str, Any]:
        """Its part of the status."""
        return next(it for it in self.do(self.it.status)["switches"] if it["name"] == name)

    def until(self, condition: Callable[[], object], seconds: float = PATIENCE) -> None:
        """Waits for a condition. AssertionError, with the status, if it does not come true, or the controller ends."""
        begun = time.monotonic()
        while not condition():
            assert self.failure is None, self.failure
            assert time.monotonic() < begun + seconds, self.do(self.it.status)
            pause(begun)

    def close(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()
