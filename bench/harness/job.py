# SPDX-License-Identifier: Apache-2.0
"""The job file of a benchmark that trains nothing: workers, the network's rate and buffer, and no policy."""

import os
from collections.abc import Mapping, Sequence
from typing import Any


def document(
    name: str,
    number: int,
    hosts: Sequence[tuple[str, str]],
    rate: int,
    buffer: int,
    tolerance: float | None = None,
    transport: Mapping[str, Any] | None = None,
    sync: Mapping[str, Any] | None = None,
) -> Mapping[str, Any]:
    """The file before it is TOML. `number`: the job's id; `hosts`: name and address of each rank's; `rate` in bit/s and
    `buffer` in bytes, of a port; `tolerance`: the loss tolerated of pushes and pulls, None for the default;
    `transport`: more of that table; `sync`: that table."""
    return {
        "job": {"name": name, "id": number, "key": os.urandom(16).hex()},
        "worker": [{"rank": rank, "host": host, "address": address} for rank, (host, address) in enumerate(hosts)],
        "transport": {"rate": f"{rate}bit", "buffer": f"{buffer}B", **(transport or {})},
        **({} if tolerance is None else {"loss": {"push": tolerance, "pull": tolerance}}),
        **({"sync": sync} if sync else {}),
        "slots": {"base": 0, "mask": 4095},
    }
