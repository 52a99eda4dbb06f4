# SPDX-License-Identifier: Apache-2.0
"""SIGHUP, which has a service read its files again. It ends a process that does not handle it yet."""

import asyncio
import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

_HANGUP = {signal.SIGHUP}


@contextmanager
def kept(*, serving: bool) -> Generator[None]:
    """One that comes meanwhile waits until `hear`, in a process that is to be `serving`: so nothing that has been read
    by then stays as it was. Modules that take long to import are imported inside."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _HANGUP if serving else ())
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def hear(function: Callable[..., object], *arguments: Any) -> None:
    """Has the running event loop call the function for each from now on, and for one that was kept."""
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, function, *arguments)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _HANGUP)
