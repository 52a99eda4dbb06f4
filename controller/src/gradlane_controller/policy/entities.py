# SPDX-License-Identifier: Apache-2.0
"""The entities that the controller writes to a switch."""

from functools import lru_cache

from finsy import Action, Match, P4DigestEntry, P4MeterEntry, P4MulticastGroupEntry, P4TableEntry

from gradlane.job import Job
from gradlane.toml_file import Address

Entity = P4TableEntry | P4MulticastGroupEntry | P4MeterEntry | P4DigestEntry


kept = lru_cache(maxsize=1 << 17)
"""For what makes one entity of a few plain values: the same one is then compared by identity, and encoded once."""


def mapped(address: Address) -> str:
    """As the data plane has it."""
    return f"::ffff:{address}" if address.version == 4 else str(address)


def route(address: Address, action: Action) -> P4TableEntry:
    """What is done with packets for that address alone."""
    match = Match(destination=f"{address}/{address.max_prefixlen}")
    return P4TableEntry(f"ipv{address.version}_routes", match=match, action=action)


def group_number(job: Job, index: int) -> int:
    """Of a job's multicast groups: of each aggregator, by its index, and behind them those of its sums.

    Slot ranges are disjoint, so half of the range numbers groups of the job's alone. Half, because BMv2 refuses groups
    from 32768 on.
    """
    return (job.slots.base + 1) // 2 + index + 1
