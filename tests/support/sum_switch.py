# SPDX-License-Identifier: Apache-2.0
"""The slots in which a switch sums, as the rules say it, one datagram at a time and without a network.

It counts by itself: what the P4 program does, and what workers may rely on, is compared with it.
"""

from dataclasses import dataclass, replace
from enum import IntEnum

from gradlane import wire

SLOTS = 4096
WORD_MODULUS = 1 << 8 * wire.SUM_WORD


class Event(IntEnum):
    """What became of a contribution: the switch counts it under this number."""

    CONTRIBUTION = 0  # written into a slot, or added
    RESULT = 1  # beside CONTRIBUTION: the last one
    ANSWER = 2  # the slot was finished, and its sum goes back to who asked
    DUPLICATE = 3
    STALE = 4
    NO_SLOTS = 5
    REFUSED = 6


@dataclass(frozen=True)
class Contributor:
    """A row of the table `contributors`: one worker's bit, all workers' bits, and where the job's slots are."""

    member: int
    all: int
    slot_base: int
    slot_mask: int


@dataclass(frozen=True)
class SumHeader:
    """What lies between the Gradlane header and the lanes."""

    generation: int
    members: int = 0
    slot: int = 0
    exponent: int = 0  # -128 to 127
    reserved: int = 0

    def pack(self) -> bytes:
        """SUM_BYTES bytes."""
        exponent = self.exponent & 0xFF
        values = (self.generation, self.members, self.slot, exponent, self.reserved)
        return b"".join(v.to_bytes(bits // 8, "big") for v, (_, bits) in zip(values, wire.SUM_FIELDS, strict=True))

    @classmethod
    def unpack(cls, data: bytes) -> "SumHeader":
        """From the first SUM_BYTES bytes."""
        values: list[int] = []
        for _, bits in wire.SUM_FIELDS:
            values.append(int.from_bytes(data[: bits // 8], "big"))
            data = data[bits // 8 :]
        generation, members, slot, exponent, reserved = values
        return cls(generation, members, slot, (exponent ^ 0x80) - 0x80, reserved)


@dataclass(frozen=True)
class Slot:
    """A slot in use. `defect`: see SumSwitch.take."""

    job: int
    generation: int
    number: int
    members: int
    words: tuple[int, ...]
    defect: int | None


@dataclass(frozen=True)
class Outcome:
    """What is counted, and what leaves the switch: nothing, or a result, `to_all` or back to who contributed."""

    events: tuple[Event, ...]
    datagram: bytes | None = None
    to_all: bool = False
    defect: int | None = 0


def serial_difference(a: int, b: int) -> int:
    """a - b of two 32-bit serial numbers (RFC 1982): above 0 if a is newer. Opposite ones are older than each other."""
    return ((a - b + (1 << 31)) & 0xFFFFFFFF) - (1 << 31)


def ones_complement_sum(a: int, b: int) -> int:
    """Of two 16-bit words; 0 and 0xFFFF both mean 0."""
    total = a + b
    return (total & 0xFFFF) + (total >> 16)


class SumSwitch:
    """A switch's slots. A rule can be overridden, so that tests can show what breaks without it."""

    def __init__(self) -> None:
        self.slots: dict[int, Slot] = {}

    def restart(self) -> None:
        """The switch forgets everything."""
        self.slots.clear()

    def take(self, row: Contributor | None, datagram: bytes, defect: int | None = 0) -> Outcome:
        """A datagram (Gradlane header and payload, flag SUM) at an edge port, from a member of its job.

        `row`: of the table, for its port, source and job. `defect`: what the one's complement sum over all that its
        UDP checksum covers lacks to 0, 16 bits: 0 if the checksum is right, None if there is none. Of a result it is
        the sum of its contributions', so the checksum stays one from end to end.
        """
        if not self.well_formed(datagram):
            return Outcome((Event.REFUSED,))
        if row is None:
            return Outcome((Event.NO_SLOTS,))
        header = wire.Header.unpack(datagram)
        summed = SumHeader.unpack(datagram[wire.HEADER_BYTES :])
        index = row.slot_base + (summed.slot & row.slot_mask)
        old = self.slots.get(index)
        new = Slot(header.job, summed.generation, header.message, row.member, words_of(datagram), defect)
        age = 1 if old is None else self.age(new, old)
        if age > 0:
            return self._contributed(index, new, row, datagram)
        if old is None or age < 0 or len(new.words) != len(old.words):
            return Outcome((Event.STALE,))
        if self.is_in(row.member, old):
            if old.members != row.all:
                return Outcome((Event.DUPLICATE,))
            return Outcome((Event.ANSWER,), result_of(datagram, old), False, old.defect)
        return self._contributed(index, self.added(old, new), row, datagram)

    def well_formed(self, datagram: bytes) -> bool:
        """Whether it may be a contribution at all."""
        if len(datagram) < wire.HEADER_BYTES + wire.SUM_BYTES:
            return False
        header = wire.Header.unpack(datagram)
        words, rest = divmod(header.length - wire.SUM_BYTES, wire.SUM_WORD)
        return (
            header.kind in (wire.Kind.DATA, wire.Kind.REPAIR)
            and header.flags & (wire.Flag.SUM | wire.Flag.PULL) == wire.Flag.SUM
            and header.budget == 0
            and header.length == len(datagram) - wire.HEADER_BYTES
            and rest == 0
            and 1 <= words <= wire.MAX_SUM_WORDS
        )

    def age(self, new: Slot, old: Slot) -> int:
        """Above 0: newer than what the slot holds; 0: the same slice; below: older.

        What another job left counts as nothing: slots are given to other jobs, whose clocks differ. Then generations
        count, then numbers.
        """
        if new.job != old.job:
            return 1
        return serial_difference(new.generation, old.generation) or serial_difference(new.number, old.number)

    def is_in(self, member: int, slot: Slot) -> bool:
        """Whether a worker has contributed to the slice."""
        return slot.members & member != 0

    def added(self, old: Slot, new: Slot) -> Slot:
        """Both, word by word. Lanes don't overflow, so that is lane by lane."""
        words = tuple((a + b) % WORD_MODULUS for a, b in zip(old.words, new.words, strict=True))
        known = old.defect is not None and new.defect is not None
        defect = ones_complement_sum(old.defect or 0, new.defect or 0) if known else None
        return replace(old, members=old.members | new.members, words=words, defect=defect)

    def _contributed(self, index: int, slot: Slot, row: Contributor, datagram: bytes) -> Outcome:
        self.slots[index] = slot
        if slot.members != row.all:
            return Outcome((Event.CONTRIBUTION,))
        return Outcome((Event.CONTRIBUTION, Event.RESULT), result_of(datagram, slot), True, slot.defect)


def words_of(datagram: bytes) -> tuple[int, ...]:
    """The lanes of a SUM, in words of SUM_WORD bytes."""
    at = range(wire.HEADER_BYTES + wire.SUM_BYTES, len(datagram), wire.SUM_WORD)
    return tuple(int.from_bytes(datagram[n : n + wire.SUM_WORD], "big") for n in at)


def result_of(datagram: bytes, slot: Slot) -> bytes:
    """A contribution that becomes the result: its own headers, the slot's members and words, and PULL."""
    header = wire.Header.unpack(datagram)
    summed = replace(SumHeader.unpack(datagram[wire.HEADER_BYTES :]), members=slot.members)
    words = b"".join(word.to_bytes(wire.SUM_WORD, "big") for word in slot.words)
    return replace(header, flags=header.flags | wire.Flag.PULL).pack() + summed.pack() + words
