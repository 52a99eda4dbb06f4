# SPDX-License-Identifier: Apache-2.0
"""Clients that read all table entries, each again and again, until standard input ends: ADDRESS CLIENTS"""

import sys
import threading
from contextlib import suppress
from typing import Any

import grpc
from finsy.proto import p4r, p4r_grpc

_EVERYTHING = p4r.ReadRequest(device_id=1, entities=[p4r.Entity(table_entry=p4r.TableEntry())])


def _read(address: str) -> None:
    with suppress(grpc.RpcError), grpc.insecure_channel(address) as channel:
        stub: Any = p4r_grpc.P4RuntimeStub(channel)
        while True:
            for _ in stub.Read(_EVERYTHING):
                pass


def main() -> None:
    """Says "ready" when they have begun."""
    for _ in range(int(sys.argv[2])):
        threading.Thread(target=_read, args=[sys.argv[1]], daemon=True).start()
    print("ready", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
