# SPDX-License-Identifier: Apache-2.0
"""Values of translated types (`@p4runtime_translation`): the program has a number, controllers have a number of another
width, or a string. P4Runtime specification, "User-Defined Types" and "PSA Metadata Translation".
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from finsy.proto import rpc_code

from gradlane_switch.constraints.annotations import bodies
from gradlane_switch.errors import EntityError, ProgramError
from gradlane_switch.p4info.bytestrings import decode, encode, invalid

_LONGEST_NAME = 1024  # bytes
_MAPPING = re.compile(r'\{\s*"((?:[^"\\]|\\.)*)"\s*,\s*(0[xX][0-9a-fA-F]+|\d+)\s*\}')


@dataclass(frozen=True)
class Resized:
    """The same number, of `width` bits in the program and `bits` for controllers."""

    width: int
    bits: int

    def decode(self, text: bytes, what: str) -> int:
        """The program's number for what a controller wrote. Raises EntityError (OUT_OF_RANGE)."""
        return decode(encode(decode(text, self.bits, what)), self.width, what)

    def encode(self, value: int) -> bytes:
        """What controllers see of a number."""
        return encode(value)


class Names:
    """The strings of one type, and a number of the program's `width` in bits for each.

    A decimal number stands for itself, so that ports can be named. Other strings get a number that is free when they
    are first written, from the second highest on downwards: 0 and the highest often mean something to a program. They
    keep it while something that controllers wrote has it. `fixed` strings always have theirs.
    """

    def __init__(self, type_name: str, width: int, fixed: Mapping[bytes, int]) -> None:
        self.width = width
        self._type = type_name
        self._fixed = fixed
        self.clear()

    def clear(self) -> None:
        """Forgets all strings but the fixed ones."""
        self._numbers = dict(self._fixed)
        self._texts = {number: text for text, number in self._fixed.items()}
        self._uses = Counter(self._texts.keys())
        self._new: list[int] = []
        self._next = (1 << self.width) - 2

    def decode(self, text: bytes, what: str) -> int:
        """The number of a string; a new one is kept until `settle`, or as long as it is held. Raises EntityError."""
        number = self.known(text)
        if number is None:
            if len(text) > _LONGEST_NAME:
                raise invalid(f"{what}: a string of {len(text)} bytes is too long (at most {_LONGEST_NAME})")
            number = self._free(what)
        if number not in self._texts:
            self._numbers[text], self._texts[number] = number, text
            self._new.append(number)
        return number

    def known(self, text: bytes) -> int | None:
        """The number that a string has, or stands for; None if it has none yet."""
        number = self._numbers.get(text)
        if number is None and text.isdigit() and len(text) <= self.width and text == b"%d" % int(text):
            value = int(text)
            return None if value >> self.width or value in self._texts else value
        return number

    def encode(self, value: int) -> bytes:
        """The string of a number; one that has none is shown in decimal."""
        return self._texts.get(value, b"%d" % value)

    def hold(self, number: int) -> None:
        """Something that was written has the number."""
        self._uses[number] += 1

    def release(self, number: int) -> None:
        """It has it no more."""
        self._uses[number] -= 1
        self._forget(number)

    def settle(self) -> None:
        """Forgets strings that were new in a request, and that nothing holds."""
        for number in self._new:
            self._forget(number)
        self._new.clear()

    def _forget(self, number: int) -> None:
        if self._uses[number] <= 0:
            del self._uses[number]
            if number in self._texts:
                del self._numbers[self._texts.pop(number)]

    def _free(self, what: str) -> int:
        last = (1 << self.width) - 2
        for _ in range(min(last, len(self._texts) + len(self._uses) + 1)):
            number, self._next = self._next, self._next - 1 if self._next > 1 else last
            if number not in self._texts and number not in self._uses:
                return number
        raise EntityError(rpc_code.RESOURCE_EXHAUSTED, f"{what}: all numbers of type {self._type} are in use")


Translation: TypeAlias = Resized | Names


def decode_value(text: bytes, width: int, what: str, translation: Translation | None) -> int:
    """The program's number for a value that a controller wrote. Raises EntityError."""
    return decode(text, width, what) if translation is None else translation.decode(text, what)


def encode_value(value: int, translation: Translation | None) -> bytes:
    """What controllers see of a number, in canonical form."""
    return encode(value) if translation is None else translation.encode(value)


class Translations:
    """The translated types of a P4Info's type_info. Their widths in the program are known from what has such a type."""

    def __init__(self, types: Any) -> None:
        self._types = types
        self._widths: dict[str, int] = {}
        self.names: dict[str, Names] = {}

    def translated(self, item: Any) -> str | None:
        """The name of the type of a match field, a parameter or a metadata field, if it is translated."""
        spec = self._types.new_types.get(item.type_name.name) if item.HasField("type_name") else None
        if spec is None or spec.WhichOneof("representation") != "translated_type":
            return None
        return item.type_name.name

    def width(self, name: str) -> int | None:
        """How many bits a type has in the program, if that is known."""
        return self._widths.get(name)

    def of(self, item: Any, width: int, what: str) -> Translation | None:
        """How values of an item of `width` bits are translated; None if they are not. Raises ProgramError."""
        name = self.translated(item)
        if name is None:
            return None
        if self._widths.setdefault(name, width) != width:
            raise ProgramError(f"type {name} has {self._widths[name]} bits, and {what} has {width}")
        kind = self._types.new_types[name].translated_type
        if kind.WhichOneof("sdn_type") == "sdn_string":
            if name not in self.names:
                self.names[name] = Names(name, width, self._fixed(name, width))
            return self.names[name]
        bits = kind.sdn_bitwidth
        if item.bitwidth != bits or not bits:
            raise ProgramError(f"P4Info has {what} of {item.bitwidth} bits, and its type {name} of {bits}")
        return None if bits == width else Resized(width, bits)

    def _fixed(self, name: str, width: int) -> dict[bytes, int]:
        """The strings with numbers in `@p4runtime_translation_mappings`, which is SONiC's."""
        found: dict[bytes, int] = {}
        for body in bodies("p4runtime_translation_mappings", self._types.new_types[name].annotations):
            for text, number in _MAPPING.findall(body):
                found[re.sub(r"\\(.)", r"\1", text).encode()] = int(number, 0)
        if len(set(found.values())) < len(found) or any(number >> width for number in found.values()):
            raise ProgramError(f"type {name}: its mappings are not distinct numbers of {width} bits")
        return found
