# SPDX-License-Identifier: Apache-2.0
"""Gives BMv2 the project's program, and the route that packet_rate sends along: run in the switch's namespace."""

import sys
from typing import Any

from finsy.proto import p4r

from bench.harness.switches import GRADLANE, Client, Entries


def route_updates() -> list[Any]:
    """A route of 10.0.2.0/24 through port 2, as p4.v1.Update messages."""
    return [p4r.Update(type=p4r.Update.INSERT, entity=entity) for entity in _route()]


def _route() -> list[Any]:
    entries = Entries()
    return [*entries.senders([1]), *entries.next_hops([2]), entries.route(bytes([10, 0, 2, 0]), 24, 2)]


def main() -> None:
    """Arguments: ADDRESS of the P4Runtime server."""
    with Client(sys.argv[1]) as client:
        client.set_pipeline(GRADLANE)
        client.write(p4r.Update.INSERT, _route())


if __name__ == "__main__":
    main()
