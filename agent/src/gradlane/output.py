# SPDX-License-Identifier: Apache-2.0
"""What a command prints, of which the reader may have enough, as `| head`."""

import os
import signal
import sys
from collections.abc import Callable


def whole(command: Callable[[], int]) -> int:
    """The command's exit code, once all that it has printed is out; if nobody reads that, as if SIGPIPE ended it."""
    try:
        try:
            return command()
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # at the exit nothing may be written either
        return 128 + signal.SIGPIPE
