# SPDX-License-Identifier: Apache-2.0
"""The entities that the controller writes to a switch."""

from ipaddress import IPv4Address, IPv6Address

from finsy import P4DigestEntry, P4MeterEntry, P4MulticastGroupEntry, P4TableEntry

from gradlane.job import Job

Entity = P4TableEntry | P4MulticastGroupEntry | P4MeterEntry | P4DigestEntry


def mapped(address: IPv4Address | IPv6Address) -> str:
    """As the data plane has it."""
    return f"::ffff:{address}" if address.version == 4 else str(address)


def group_number(job: Job, index: int) -> int:
    """Of a job's multicast groups: of each aggregator, by its index, and behind them those of its sums.

    Slot ranges are disjoint, so half of the range numbers groups of the job's alone. Half, because BMv2 refuses groups
    from 32768 on.
    """
    return (job.slots.base + 1) // 2 + index + 1
