# SPDX-License-Identifier: Apache-2.0
"""What the runner asks of the kernel so that nothing outlives it: death signals and shared memory of its own."""

import ctypes
import os

# Before a command line: the kernel kills that process when its parent dies (PR_SET_PDEATHSIG, prctl(2)).
END_WITH_PARENT = ("setpriv", "--pdeathsig", "KILL", "--")

_CLONE_NEWNS = 0x00020000
_MS_REC = 0x4000
_MS_PRIVATE = 0x40000
_libc = ctypes.CDLL(None, use_errno=True)


def private_shared_memory() -> None:
    """Gives this process and its children a /dev/shm of their own, which goes with the last of them.

    Raises OSError where the kernel refuses a mount namespace.
    """
    _check(_libc.unshare(_CLONE_NEWNS), "a mount namespace")
    _check(_libc.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None), "a private mount tree")
    _check(_libc.mount(b"tmpfs", b"/dev/shm", b"tmpfs", 0, b"mode=1777"), "a private /dev/shm")


def _check(status: int, what: str) -> None:
    if status != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what} is refused: {os.strerror(number)}")
