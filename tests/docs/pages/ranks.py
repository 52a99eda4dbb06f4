# SPDX-License-Identifier: Apache-2.0
"""Runs a program once for each rank, as forks of one process that has imported PyTorch if it does.

python -m tests.docs.pages.ranks PROGRAM FOLDER ...        each rank's folder of its agent's socket
"""

import ctypes
import importlib
import os
import runpy
import sys
from pathlib import Path

_CLONE_NEWNS = 0x20000
_MS_BIND, _MS_REC, _MS_PRIVATE = 0x1000, 0x4000, 1 << 18


def _in_place_of(folder: str, default: str) -> None:
    """For this process alone the default folder is that one."""
    libc = ctypes.CDLL(None, use_errno=True)
    alone = (None, b"/", None, _MS_REC | _MS_PRIVATE, None)  # no other namespace gets what is mounted here
    bind = (folder.encode(), default.encode(), None, _MS_BIND, None)
    if libc.unshare(_CLONE_NEWNS) or libc.mount(*alone) or (folder != default and libc.mount(*bind)):
        raise OSError(ctypes.get_errno(), f"{folder} can't be mounted at {default}")


def main(program: str, *folders: str) -> int:
    """0 if all ranks end well."""
    if "torch" in Path(program).read_text():
        importlib.import_module("gradlane.torch")
    started: list[int] = []
    for rank, folder in enumerate(folders):
        if not (pid := os.fork()):
            os.environ["RANK"] = str(rank)
            sys.argv[:] = [program]
            _in_place_of(folder, "/run/gradlane")
            runpy.run_path(program, run_name="__main__")
            sys.exit()
        started.append(pid)
    return max(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) != 0 for pid in started)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
