# SPDX-License-Identifier: Apache-2.0
"""The store as the controller has it: transactions, in threads of their own, that end in bounded time."""

import asyncio
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from prometheus_client import Histogram
from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from gradlane_controller.errors import StoreError
from gradlane_controller.store import jobs, schema
from gradlane_controller.store.engine import (
    check_room,
    connect,
    failure,
    parse,
    reading,
    reserve,
    settle,
    shown,
    single,
)
from gradlane_controller.store.jobs import StoredJob

ANSWER_SECONDS = 5.0  # that a transaction may take, waiting for its thread included
SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
"""Upper bounds of the buckets of `Store.seconds`."""
_THREADS = 2

_P = ParamSpec("_P")
_T = TypeVar("_T")


class Store:
    """An open store. Every method raises StoreError, which names the store and what is wrong with it. `seconds`: of its
    transactions, for Prometheus."""

    def __init__(self, url: str) -> None:
        """As `open`, without a look at the tables."""
        self._url = parse(url)
        self.name = shown(self._url)
        self.file = Path(self._url.database) if self._url.drivername == "sqlite" and self._url.database else None
        self.engine = connect(self._url)
        self._reading, self._single = reading(self.engine), single(self.engine)
        self.seconds = Histogram(
            "gradlane_controller_store_request_seconds",
            "Transactions with the store, by whether it has answered",
            ("result",),
            buckets=SECONDS,
            registry=None,
        )
        for result in ("ok", "failed"):
            self.seconds.labels(result)
        self._threads = ThreadPoolExecutor(_THREADS, "store")

    @classmethod
    def open(cls, url: str) -> "Store":
        """`sqlite:///FILE` or `postgresql+psycopg://...`, its tables made or brought up to date. It waits for others
        who do so, and as long as a statement may take."""
        store = cls(url)
        try:
            schema.upgrade(store._url)
            settle(store.engine)
            reserve(store._url)
        except SQLAlchemyError as problem:
            raise failure(store._url, problem) from None
        return store

    def close(self) -> None:
        """Nothing is asked any more."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self.engine.dispose()

    def read(self, function: Callable[Concatenate[Session, _P], _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """The result of `function(session, ...)`, which only reads. Blocks."""
        with self._session(self._reading) as session, session.begin():
            return function(session, *args, **kwargs)

    def update(self, function: Callable[Concatenate[Session, _P], _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """As `read`, in a transaction that changes rows in their place, even if the disk is full. Blocks."""
        with self._session(self.engine) as session, session.begin():
            return function(session, *args, **kwargs)

    def renew(self, function: Callable[Concatenate[Session, _P], _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """As `update`, each statement by itself, so that others need not wait for this process between two of them. A
        loss of power may undo it. Blocks."""
        with self._session(self._single) as session, session.begin():
            return function(session, *args, **kwargs)

    def write(self, function: Callable[Concatenate[Session, _P], _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """As `update`, for more than there is. Blocks."""
        check_room(self._url)
        result = self.update(function, *args, **kwargs)
        settle(self.engine)
        return result

    def append(self, function: Callable[Concatenate[Session, _P], _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """As `write`, on SQLite as `renew`: for what may be lost with the machine's power. Blocks."""
        check_room(self._url)
        how = self.renew if self.engine.dialect.name == "sqlite" else self.update
        result = how(function, *args, **kwargs)
        settle(self.engine)
        return result

    def rehearse(self, function: Callable[Concatenate[Session, _P], _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """As `write`, and takes it back: whether it would succeed now. Blocks."""
        check_room(self._url)
        with self._session(self.engine) as session:
            result = function(session, *args, **kwargs)
            session.flush()
            session.rollback()
            return result

    @contextmanager
    def _session(self, engine: Engine) -> Generator[Session]:
        """One, the time of which is measured."""
        begun, result = time.monotonic(), "ok"
        try:
            with Session(engine) as session:
                yield session
        except SQLAlchemyError as problem:
            result = "failed"
            raise failure(self._url, problem) from None
        finally:
            self.seconds.labels(result).observe(time.monotonic() - begun)

    async def run(
        self,
        how: Callable[Concatenate[Callable[Concatenate[Session, _P], _T], _P], _T],
        function: Callable[Concatenate[Session, _P], _T],
        *args: _P.args,
        **kwargs: _P.kwargs,
    ) -> _T:
        """`how` (`read`, `write`, ...) with that function, in a thread; StoreError after five seconds, then it is
        `unsure` what has become of it."""
        future = asyncio.get_running_loop().run_in_executor(self._threads, lambda: how(function, *args, **kwargs))
        done, _ = await asyncio.wait((future,), timeout=ANSWER_SECONDS)
        if not done:
            future.cancel()
            future.add_done_callback(lambda it: it.cancelled() or it.exception())  # nobody asks for it any more
            raise StoreError(f"{self.name}: no answer in {ANSWER_SECONDS:g} s", unsure=True)
        return await future

    def jobs(self) -> Sequence[StoredJob]:
        """All jobs, by name. Blocks."""
        return self.read(jobs.every)
