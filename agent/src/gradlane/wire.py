# SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
"""The wire header: its only definition. The C core's offsets and the tests' scapy layer are derived from it.

docs/wire-format.md explains the fields; p4src/shared/headers.p4 is the switch's view, compared by a test.
"""

from dataclasses import dataclass
from enum import IntEnum, IntFlag

VERSION = 1
UDP_PORT = 47400
CONTROL_PORT = 47401
# The DSCP (CS7) of the agents' control connections, and the queue class in which switches serve it, the top one.
CONTROL_DSCP, CONTROL_CLASS = 56, 7

# (name, bits), big-endian, in order.
FIELDS: tuple[tuple[str, int], ...] = (
    ("version", 4),
    ("kind", 4),
    ("magnitude", 8),
    ("job", 16),
    ("way", 6),
    ("source", 10),
    ("layer", 16),
    ("step", 32),
    ("tensor", 16),
    ("flags", 8),
    ("element_type", 8),
    ("message", 32),
    ("slice", 16),
    ("slices", 16),
    ("budget", 16),
    ("length", 16),
    ("token", 64),
)
HEADER_BYTES = sum(bits for _, bits in FIELDS) // 8
# What `source` can tell apart.
MAX_RANKS = 1 << dict(FIELDS)["source"]

# A message has one bitmap datagram, so it has at most this many slices.
MAX_SLICES = 8192


class Kind(IntEnum):
    """What a datagram is. Only DATA may be dropped by a switch's policy."""

    DATA = 0
    REPAIR = 1
    TRIMMED = 2  # DATA whose payload a switch has cut off
    PROBE = 3
    BITMAP = 4
    STOP = 5
    REPORT = 6
    TRACE = 7  # collects a record of every switch that it passes


class Flag(IntFlag):
    """Bits of the field `flags`."""

    PULL = 1  # results; otherwise contributions (push)
    END = 2  # the last slice of the sender's first pass; of a PROBE or BITMAP: the first pass is over
    MULTICAST = 4
    RETURNED = 8  # a TRACE that goes back: it collects nothing more
    CRITICAL = 16  # of a push: the training is in a critical phase, so a server's results may lose less, too
    SUM = 32  # of a DATA or REPAIR: a switch adds it to others; with PULL: their sum


class ElementType(IntEnum):
    """Elements on the wire: the lower four bits of the field `element_type`. Booleans travel as UINT8."""

    FLOAT32 = 1
    FLOAT16 = 2
    BFLOAT16 = 3
    FLOAT64 = 4
    UINT8 = 5
    INT8 = 6
    INT32 = 7
    INT64 = 8


class Lanes(IntEnum):
    """What a SUM has in the place of an ElementType: unsigned integers, biased, big-endian."""

    INT16_LANES = 9
    INT32_LANES = 10


@dataclass(frozen=True)
class Header:
    """One header, field by field; every value is an unsigned integer of the width given in FIELDS."""

    kind: int
    job: int
    source: int
    message: int
    token: int
    magnitude: int = 0
    layer: int = 0
    step: int = 0
    tensor: int = 0
    flags: int = 0
    element_type: int = ElementType.FLOAT32
    slice: int = 0
    slices: int = 1
    budget: int = 0
    length: int = 0
    way: int = 0
    version: int = VERSION

    def pack(self) -> bytes:
        """The header's HEADER_BYTES bytes. Raises ValueError naming a field that does not fit its width."""
        values, total = vars(self), 0
        for name, bits in FIELDS:
            if not 0 <= values[name] < 1 << bits:
                raise ValueError(f"{name} = {values[name]} does not fit {bits} bits")
            total = total << bits | values[name]
        return total.to_bytes(HEADER_BYTES, "big")

    @classmethod
    def unpack(cls, data: bytes) -> "Header":
        """The header at the start of `data`. Raises ValueError if `data` is shorter than HEADER_BYTES."""
        if len(data) < HEADER_BYTES:
            raise ValueError(f"{len(data)} bytes are no Gradlane header: it has {HEADER_BYTES}")
        total = int.from_bytes(data[:HEADER_BYTES], "big")
        values: dict[str, int] = {}
        for name, bits in reversed(FIELDS):
            values[name] = total & ((1 << bits) - 1)
            total >>= bits
        return cls(**values)


# A sender chooses among so many ways, from 1 on, what switches then take for the number of a flow; with 0 it does not.
WAYS = 16

# Payload of a REPORT. (name, bits), in order, big-endian. `passed` has a number of PASSED_BITS for each way, 16 first.
PASSED_BITS = 3
REPORT_FIELDS: tuple[tuple[str, int], ...] = (
    ("received", 32),
    ("share", 32),
    ("room", 32),
    ("clock", 32),
    ("repair", 1),
    ("marked", 15),
    ("passed", WAYS * PASSED_BITS),
)
REPORT_BYTES = sum(bits for _, bits in REPORT_FIELDS) // 8

# In front of a TRACE's payload, one per switch (hop_h of p4src/shared/headers.p4). (name, bits), in order, big-endian.
HOP_FIELDS: tuple[tuple[str, int], ...] = (
    ("switch_id", 16),
    ("ingress_port", 16),
    ("egress_port", 16),
    ("queue_class", 4),
    ("color", 4),
    ("depth_unit", 8),
    ("depth", 32),
    ("wait", 32),
)
HOP_BYTES = sum(bits for _, bits in HOP_FIELDS) // 8
# A trace with more records is refused. A path in a fabric of three tiers has five switches.
MAX_HOPS = 8

# In front of the lanes of a SUM (sum_h of p4src/v1model/headers.p4). (name, bits), in order, big-endian.
SUM_FIELDS: tuple[tuple[str, int], ...] = (
    ("generation", 32),
    ("members", 32),
    ("slot", 16),
    ("exponent", 8),
    ("epoch", 8),
)
SUM_BYTES = sum(bits for _, bits in SUM_FIELDS) // 8
# Lanes come in words of so many bytes, and a slice has so many of them at most.
SUM_WORD, MAX_SUM_WORDS = 128, 11


def c_definitions() -> str:
    """C macros: byte offsets GL_AT_<FIELD> and those of the other layouts, sizes, the numbers of the enums above."""
    lines = [
        "/* Generated from gradlane/wire.py. */",
        f"#define GL_VERSION {VERSION}",
        f"#define GL_HEADER {HEADER_BYTES}",
        f"#define GL_MAX_RANKS {MAX_RANKS}",
        f"#define GL_MAX_SLICES {MAX_SLICES}",
        f"#define GL_HOP {HOP_BYTES}",
        f"#define GL_MAX_HOPS {MAX_HOPS}",
        f"#define GL_WAYS {WAYS}",
        f"#define GL_SOURCE_BITS {dict(FIELDS)['source']}",
        f"#define GL_PASSED_BITS {PASSED_BITS}",
        f"#define GL_MARKED_BITS {dict(REPORT_FIELDS)['marked']}",
        f"#define GL_REPORT {REPORT_BYTES}",
        f"#define GL_SUM_BYTES {SUM_BYTES}",
        f"#define GL_SUM_WORD {SUM_WORD}",
        f"#define GL_MAX_SUM_WORDS {MAX_SUM_WORDS}",
    ]
    layouts = {"GL_AT": FIELDS, "GL_REPORT_AT": REPORT_FIELDS, "GL_HOP_AT": HOP_FIELDS, "GL_SUM_AT": SUM_FIELDS}
    for prefix, layout in layouts.items():
        position = 0
        for name, bits in layout:
            if bits >= 8:
                lines.append(f"#define {prefix}_{name.upper()} {position // 8}")
            position += bits
    for prefix, members in (("KIND", Kind), ("FLAG", Flag), ("TYPE", ElementType), ("TYPE", Lanes)):
        lines += [f"#define GL_{prefix}_{member.name} {member.value}" for member in members]
    return "\n".join(lines) + "\n"
