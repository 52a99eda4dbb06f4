# SPDX-License-Identifier: Apache-2.0
"""The entities that the controller writes to a switch."""

from ipaddress import IPv4Address, IPv6Address

from finsy import P4DigestEntry, P4MeterEntry, P4MulticastGroupEntry, P4TableEntry

Entity = P4TableEntry | P4MulticastGroupEntry | P4MeterEntry | P4DigestEntry


def mapped(address: IPv4Address | IPv6Address) -> str:
    """As the data plane has it."""
    return f"::ffff:{address}" if address.version == 4 else str(address)
