# SPDX-License-Identifier: Apache-2.0
"""Numbers of the P4 program."""

from enum import IntEnum


class Reason(IntEnum):
    """What was decided for a packet: `Reason` of p4src/shared/types.p4, and what only sums have."""

    FORWARDED = 0
    BUDGET_SPENT = 1
    STALE_MESSAGE = 2
    WITHIN_SHARE = 3
    UNKNOWN_VERSION = 4
    MALFORMED = 5
    TRIMMED_YELLOW = 6
    TRIMMED_RED = 7
    PUNTED_ARP = 8
    PUNTED_ND = 9
    PUNTED_TTL = 10
    PUNTED_LOCAL = 11
    DROPPED_YELLOW = 12
    DROPPED_RED = 13
    DROPPED_GUARD = 14
    DROPPED_NO_ROUTE = 15
    DROPPED_NO_BRIDGE = 16
    DROPPED_NOT_IP = 17
    DROPPED_BAD_IP = 18
    DROPPED_CHECKSUM = 19
    DROPPED_TRUNCATED = 20
    DROPPED_PUNT_RATE = 21
    PUNTED_LLDP = 22
    PUNTED_PROBE = 23
    DROPPED_HIDDEN = 24
    DROPPED_SOURCE = 25
    DROPPED_LLDP = 26
    DROPPED_GROUP = 27
    DEMOTED = 28
    ABSORBED = 29
    DROPPED_SUM = 30


class SumEvent(IntEnum):
    """What became of a gradient that a switch should sum, by `SumEvent` of p4src/shared/sums.p4."""

    CONTRIBUTION = 0  # written to a slot or added
    RESULT = 1
    ANSWER = 2  # the result again, for one who has missed it
    DUPLICATE = 3
    STALE = 4
    NO_SLOTS = 5
    REFUSED = 6  # of a wrong form, or from where no member of the job is
    LATE = 7  # an answer to one who was left out
    PARTIAL = 8  # the sum of all beneath the switch has gone up


class Way(IntEnum):
    """What a frame that leaves counts as in `sent`: `Way` of p4src/v1model/arch.p4."""

    PATH = 0
    TREE = 1
    TRIMMED_IPV4 = 2
    TRIMMED_IPV6 = 3


CLASSES = 8
BUCKETS = 16  # of p4src/v1model/aggregation.p4: a slice's number modulo this
TRIMMED_BYTES = {Way.TRIMMED_IPV4: 78, Way.TRIMMED_IPV6: 98}  # that are left of a slice
PUNTS = tuple(reason for reason in Reason if reason.name.startswith("PUNTED"))


def punt_cell(port: int, reason: int) -> int:
    """The cell of `punt_rates` for what a port sends to the controller for this reason."""
    return port << 3 | reason & 7


def sent_cell(port: int, way: Way, queue_class: int) -> int:
    """The cell of `sent` for what leaves a port so."""
    return port << 5 | way << 3 | queue_class
