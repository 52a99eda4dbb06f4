# SPDX-License-Identifier: Apache-2.0
"""Says how a process was begun: python -m ... [exit CODE | raise | wait]."""

import ctypes
import json
import os
import resource
import signal
import sys
from pathlib import Path
from typing import Any

_PR_GET_PDEATHSIG = 2


def _described() -> dict[str, Any]:
    at_parents_end = ctypes.c_int()
    ctypes.CDLL(None).prctl(_PR_GET_PDEATHSIG, ctypes.byref(at_parents_end), 0, 0, 0)
    limits = (resource.RLIMIT_NOFILE, resource.RLIMIT_CORE, resource.RLIMIT_MEMLOCK)
    return {
        "arguments": sys.argv[1:],
        "program": Path(sys.argv[0]).name,
        "main": __name__,
        "path": sys.path,
        "environment": dict(os.environ),
        "directory": os.getcwd(),
        "parent": os.getppid(),
        "group": os.getpgrp(),
        "session": os.getsid(0),
        "signal at the end of its parent": at_parents_end.value,
        "umask": os.umask(0o022),
        "descriptors": {it.name for it in Path("/proc/self/fd").iterdir() if it.exists()} - {"0", "1", "2"},
        "handlers": {number.name: str(signal.getsignal(number)).split(" at ")[0] for number in signal.Signals},
        "blocked": signal.pthread_sigmask(signal.SIG_BLOCK, []),
        "limits": [resource.getrlimit(limit) for limit in limits],
        "affinity": os.sched_getaffinity(0),
        "nice": os.nice(0),
        "threads": len(os.listdir("/proc/self/task")),
        "network": os.readlink("/proc/self/ns/net"),
        "mounts": os.readlink("/proc/self/ns/mnt"),
        "interfaces": set(os.listdir("/sys/class/net")),
        "typed": sys.stdin.read(),
    }


def main() -> None:
    print(json.dumps(_described(), default=sorted), flush=True)
    match sys.argv[1:]:
        case ["exit", code]:
            sys.exit(int(code))
        case ["raise"]:
            raise ValueError("raised")
        case ["wait"]:
            signal.pause()
        case _:
            print("no more to say", file=sys.stderr)


if __name__ == "__main__":
    main()
