# SPDX-License-Identifier: Apache-2.0
"""The slots in which a switch sums, as the rules say it, one datagram at a time and without a network.

It counts by itself: what the P4 program does, and what workers may rely on, is compared with it. Several of them make a
tree: what one sends up is a contribution to the next, and what that one sends down is the result at each.
"""

from dataclasses import dataclass, replace
from enum import IntEnum

from gradlane import wire

SLOTS = 4096
EVERYBODY = (1 << dict(wire.SUM_FIELDS)["members"]) - 1
WORD_MODULUS = 1 << 8 * wire.SUM_WORD


class Event(IntEnum):
    """What became of a SUM: the switch counts it under this number."""

    CONTRIBUTION = 0  # written into a slot, or added
    RESULT = 1  # the sum of all goes to the group: made here, or it has come from above
    ANSWER = 2  # the slot was finished, and its sum goes back to who asked
    DUPLICATE = 3
    STALE = 4
    NO_SLOTS = 5
    REFUSED = 6
    LATE = 7  # an answer to who is not in the sum
    PARTIAL = 8  # what this switch has goes up: the sum of all beneath it or, after a reminder, the result


@dataclass(frozen=True)
class Contributor:
    """What a switch's tables say of a datagram: its tree (`sum_trees`), who contributes (`contributors`, `subtrees`).

    `all`: the bits of the job's workers; `here`: of those beneath this switch (0: all, so that it is the root).
    `epoch`: 1 to 255 (0: nobody counts restarts, and nobody is left out).
    `member`: the bit of the worker at the port or, with `fabric`, those of all workers beneath it; of what comes from
    above it says nothing. `above`: whether the port is that towards the root. `stands_for`: in a job of more workers
    than bits, where each switch gives bits to its own children, those that the switch behind the port has given to all
    of its own, for which `member` stands here; else 0.
    """

    member: int
    all: int
    slot_base: int
    slot_mask: int
    here: int = 0
    epoch: int = 0
    fabric: bool = False
    above: bool = False
    stands_for: int = 0

    @property
    def beneath(self) -> int:
        """The bits of the workers beneath this switch."""
        return self.here or self.all


@dataclass(frozen=True)
class SumHeader:
    """What lies between the Gradlane header and the lanes.

    `members`: who is in a result or a partial; of a worker's contribution who may be missing, and the worker itself if
    it has the result. `epoch`: of the switch.
    """

    generation: int
    members: int = 0
    slot: int = 0
    exponent: int = 0  # -128 to 127
    epoch: int = 0

    def pack(self) -> bytes:
        """SUM_BYTES bytes."""
        exponent = self.exponent & 0xFF
        values = (self.generation, self.members, self.slot, exponent, self.epoch)
        return b"".join(v.to_bytes(bits // 8, "big") for v, (_, bits) in zip(values, wire.SUM_FIELDS, strict=True))

    @classmethod
    def unpack(cls, data: bytes) -> "SumHeader":
        """From the first SUM_BYTES bytes."""
        values: list[int] = []
        for _, bits in wire.SUM_FIELDS:
            values.append(int.from_bytes(data[: bits // 8], "big"))
            data = data[bits // 8 :]
        generation, members, slot, exponent, epoch = values
        return cls(generation, members, slot, (exponent ^ 0x80) - 0x80, epoch)


@dataclass(frozen=True)
class Slot:
    """A slot in use. `members`: who is in its words; `covered`: they, and who is left out. `defect`: see `take`."""

    job: int
    generation: int
    number: int
    members: int
    covered: int
    words: tuple[int, ...]
    defect: int | None


@dataclass(frozen=True)
class Outcome:
    """What is counted, and what leaves: nothing, or a datagram `to_all`, `up`, or back to who contributed."""

    events: tuple[Event, ...]
    datagram: bytes | None = None
    to_all: bool = False
    up: bool = False
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
        """The switch forgets everything. Its `epoch` in the tables is another one from then on."""
        self.slots.clear()

    def take(self, row: Contributor | None, datagram: bytes, defect: int | None = 0) -> Outcome:
        """A datagram (Gradlane header and payload, flag SUM) from a member of its job, or from another switch.

        `row`: of the tables, for its port, source and job. `defect`: what the one's complement sum over all that its
        UDP checksum covers lacks to 0, 16 bits: 0 if the checksum is right, None if there is none. Of a result it is
        the sum of its contributions', so the checksum stays one from end to end.
        """
        if not self.well_formed(datagram, fabric=row is not None and row.fabric):
            return Outcome((Event.REFUSED,))
        if row is None:
            return Outcome((Event.NO_SLOTS,))
        header = wire.Header.unpack(datagram)
        summed = SumHeader.unpack(datagram[wire.HEADER_BYTES :])
        if self.is_outdated(summed, row):
            return Outcome((Event.STALE,))
        index = row.slot_base + (summed.slot & row.slot_mask)
        old = self.slots.get(index)
        result = bool(header.flags & wire.Flag.PULL)
        stands = row.stands_for and not result
        members = row.member if stands or not row.fabric else summed.members
        covers = row.all if result else row.member
        new = Slot(header.job, summed.generation, header.message, members, covers, words_of(datagram), defect)
        age = 1 if old is None else self.age(new, old)
        if age < 0 or (age == 0 and old is not None and len(new.words) != len(old.words)):
            return Outcome((Event.STALE,))
        if members & ~covers:
            return Outcome((Event.STALE,))  # of another tree
        if stands and not self.is_whole(summed, row):
            return Outcome((Event.STALE,))
        if age > 0:
            old = None
        if old is not None and self.is_final(old, row) and self.reminds(new, summed, row):
            return Outcome((Event.PARTIAL,), result_of(datagram, old, row), up=True, defect=old.defect)
        if result:
            return self._from_above(index, old, new, row, datagram)
        return self._from_below(index, old, new, row, datagram)

    def well_formed(self, datagram: bytes, *, fabric: bool = False) -> bool:
        """Whether it may be a contribution at all or, from the fabric, a result."""
        if len(datagram) < wire.HEADER_BYTES + wire.SUM_BYTES:
            return False
        header = wire.Header.unpack(datagram)
        words, rest = divmod(header.length - wire.SUM_BYTES, wire.SUM_WORD)
        return (
            header.kind in (wire.Kind.DATA, wire.Kind.REPAIR)
            and header.flags & wire.Flag.SUM != 0
            and (fabric or not header.flags & wire.Flag.PULL)
            and header.budget == 0
            and header.length == len(datagram) - wire.HEADER_BYTES
            and rest == 0
            and 1 <= words <= wire.MAX_SUM_WORDS
        )

    def is_outdated(self, summed: SumHeader, row: Contributor) -> bool:
        """Whether a worker believes in what this switch has forgotten."""
        return not row.fabric and summed.epoch not in (0, row.epoch)

    def is_whole(self, summed: SumHeader, row: Contributor) -> bool:
        """Whether a partial sum has all in it for whom it stands: what some of them gave can't be told apart here."""
        return summed.members == row.stands_for

    def age(self, new: Slot, old: Slot) -> int:
        """Above 0: newer than what the slot holds; 0: the same slice; below: older.

        What another job left counts as nothing: slots are given to other jobs, whose clocks differ. Then generations
        count, then numbers.
        """
        if new.job != old.job:
            return 1
        return serial_difference(new.generation, old.generation) or serial_difference(new.number, old.number)

    def is_in(self, covers: int, slot: Slot) -> bool:
        """Whether any of some workers is accounted for: then their contribution must not be added."""
        return slot.covered & covers != 0

    def is_final(self, slot: Slot, row: Contributor) -> bool:
        """Whether the slot holds the sum of all. It stays as it is until a newer slice comes."""
        return slot.covered == row.all

    def added(self, old: Slot, new: Slot) -> Slot:
        """Both, word by word. Lanes don't overflow, so that is lane by lane."""
        words = tuple((a + b) % WORD_MODULUS for a, b in zip(old.words, new.words, strict=True))
        known = old.defect is not None and new.defect is not None
        defect = ones_complement_sum(old.defect or 0, new.defect or 0) if known else None
        members, covered = old.members | new.members, old.covered | new.covered
        return replace(old, members=members, covered=covered, words=words, defect=defect)

    def reminds(self, new: Slot, summed: SumHeader, row: Contributor) -> bool:
        """Whether it comes from beneath, from who has the result: the switches above may have lost that.

        So says a worker, for itself; and so does the result.
        """
        if row.beneath == row.all:
            return False  # there is no switch above
        if row.fabric:
            return new.covered == row.all and not row.above
        return summed.members & row.member != 0

    def closed(self, slot: Slot, summed: SumHeader, row: Contributor) -> Slot:
        """Without those that the contribution says may be missing, if no other is: so they are left out.

        Only a worker that knows this switch's epoch may say so.
        """
        believes = not row.fabric and summed.epoch == row.epoch != 0
        may_miss = summed.members & row.beneath if believes else 0
        return replace(slot, covered=row.beneath) if slot.covered | may_miss == row.beneath else slot

    def _from_above(self, index: int, old: Slot | None, new: Slot, row: Contributor, datagram: bytes) -> Outcome:
        """A result: it replaces what this switch has of the slice, and goes on down."""
        if old is not None and self.is_final(old, row):
            return Outcome((Event.DUPLICATE,))
        self.slots[index] = new
        return Outcome((Event.RESULT,), result_of(datagram, new, row), to_all=True, defect=new.defect)

    def _from_below(self, index: int, old: Slot | None, new: Slot, row: Contributor, datagram: bytes) -> Outcome:
        """A contribution of a worker, or of all beneath another switch. `old`: what there is of its slice."""
        if old is not None and self.is_final(old, row):
            event = Event.ANSWER if old.members & row.member else Event.LATE
            return Outcome((event,), result_of(datagram, old, row), defect=old.defect)
        known = old is not None and self.is_in(row.member, old)
        slot = new if old is None else old if known else self.added(old, new)
        slot = self.closed(slot, SumHeader.unpack(datagram[wire.HEADER_BYTES :]), row)
        self.slots[index] = slot
        contributed = () if known else (Event.CONTRIBUTION,)
        if self.is_final(slot, row):
            made = result_of(datagram, slot, row)
            return Outcome((*contributed, Event.RESULT), made, to_all=True, defect=slot.defect)
        if slot.covered == row.beneath:
            made = result_of(datagram, slot, row, partial=True)
            return Outcome((*contributed, Event.PARTIAL), made, up=True, defect=slot.defect)
        return Outcome(contributed or (Event.DUPLICATE,))


def words_of(datagram: bytes) -> tuple[int, ...]:
    """The lanes of a SUM, in words of SUM_WORD bytes."""
    at = range(wire.HEADER_BYTES + wire.SUM_BYTES, len(datagram), wire.SUM_WORD)
    return tuple(int.from_bytes(datagram[n : n + wire.SUM_WORD], "big") for n in at)


def result_of(datagram: bytes, slot: Slot, row: Contributor, *, partial: bool = False) -> bytes:
    """What a datagram becomes: its own headers, the slot's members and words, the switch's epoch; PULL if of all."""
    header = wire.Header.unpack(datagram)
    summed = replace(SumHeader.unpack(datagram[wire.HEADER_BYTES :]), members=slot.members, epoch=row.epoch)
    words = b"".join(word.to_bytes(wire.SUM_WORD, "big") for word in slot.words)
    flags = header.flags if partial else header.flags | wire.Flag.PULL
    return replace(header, flags=flags).pack() + summed.pack() + words
