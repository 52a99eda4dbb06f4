# SPDX-License-Identifier: Apache-2.0
"""Who imports this can fork once, and what it forks can't."""

import os

_fork, _first = os.fork, os.getpid()


def _fork_once() -> int:
    if os.getpid() != _first:
        raise BlockingIOError("no more processes")
    return _fork()


os.fork = _fork_once
