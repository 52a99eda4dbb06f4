# SPDX-License-Identifier: Apache-2.0
"""The entities that the controller writes to a switch."""

from finsy import P4DigestEntry, P4MeterEntry, P4MulticastGroupEntry, P4TableEntry

Entity = P4TableEntry | P4MulticastGroupEntry | P4MeterEntry | P4DigestEntry
