# SPDX-License-Identifier: Apache-2.0
"""Signals that end a program let it take down first what it has built."""

import signal
import sys
from collections.abc import Generator
from contextlib import contextmanager

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def in_good_order() -> Generator[None, None, None]:
    """Within the block SIGINT, SIGTERM and SIGHUP raise SystemExit, of 128 and the signal's number, once: later
    signals are ignored. Main thread only.
    """
    before = {number: signal.signal(number, _stop) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            # Once stopped, what is built around the block is taken down in peace as well.
            if signal.getsignal(number) is _stop:
                signal.signal(number, handler)


def _stop(number: int, _frame: object) -> None:
    for each in _SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    print(f"\nstopped by {signal.Signals(number).name}: tearing down", file=sys.stderr)
    raise SystemExit(128 + number)
