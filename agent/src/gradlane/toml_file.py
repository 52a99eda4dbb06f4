# SPDX-License-Identifier: Apache-2.0
"""Reading TOML files so that a mistake names the file, the line, the key, what was wrong and what would be right."""

import difflib
import ipaddress
import re
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TypeGuard, cast

from gradlane import toml_lines
from gradlane.errors import GradlaneError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # pyright: ignore[reportMissingImports]

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_MAX_PARTS = 16  # of a dotted key: tomllib takes time that grows with their square
_DEEP_KEY = re.compile(r"""(?<![\w-])(?:(?:[\w-]+|"[^"\n]*"|'[^'\n]*')[ \t]*\.[ \t]*)""" f"{{{_MAX_PARTS}}}")
_MAX_NAME = 63
NAME = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}"
_NAME = re.compile(NAME + r"\Z")


def is_name(text: str) -> bool:
    """Whether `Table.name` takes it."""
    return _NAME.match(text) is not None


class FileError(GradlaneError):
    """A file that can't be used. `file`, `line` (None: not known) and `key` name the place, `reason` what was wrong and
    what would be right. `others` were found in the same file."""

    def __init__(self, file: str, key: str, reason: str, line: int | None = None) -> None:
        place = file if line is None else f"{file}:{line}"
        super().__init__(f"{place}: {key}: {reason}" if key else f"{place}: {reason}")
        self.file = file
        self.line = line
        self.key = key
        self.reason = reason
        self.others: tuple[FileError, ...] = ()


@dataclass(frozen=True)
class _Document:
    """`found`: mistakes after which the reading went on."""

    error: type[FileError]
    file: str
    text: str
    found: list[FileError] = field(default_factory=list[FileError])

    @cached_property
    def lines(self) -> Mapping[str, int]:
        """By key; they are looked for when something is wrong."""
        return toml_lines.lines(self.text)


class Table:
    """One TOML table. Each method takes one key out of it and checks the value; `finish` refuses what is left.

    A key without a `default` is required. Every method raises the error class given to `parse`.
    """

    def __init__(self, document: _Document, path: str, values: Mapping[str, object]) -> None:
        self._document = document
        self._path = path
        self._values = dict(values)
        self._known: list[str] = []

    def error(self, key: str, reason: str) -> FileError:
        """The error for one key of this table, to be raised by the caller."""
        document, full = self._document, f"{self._path}.{key}" if self._path and key else self._path or key
        return document.error(document.file, full, reason, toml_lines.find_in(document.lines, full))

    @contextmanager
    def going_on(self) -> Generator[None, None, None]:
        """A mistake in the body is noted, and `done` raises it: what follows is read, too."""
        try:
            yield
        except FileError as problem:
            self._document.found.append(problem)

    def done(self) -> None:
        """Raises the first mistake that was noted, with all others."""
        if found := self._document.found:
            first, *others = sorted(found, key=lambda it: it.line or 0)
            first.others = tuple(others)
            raise first

    def has(self, key: str) -> bool:
        """Whether an optional key is present and not taken yet."""
        self._known.append(key)
        return key in self._values

    def text(self, key: str, default: str | None = None) -> str:
        """A non-empty string."""
        value = self._take(key, default)
        if not isinstance(value, str) or not value:
            raise self.error(key, f"is {value!r}; it must be a non-empty string")
        return value

    def scalar(self, key: str) -> str:
        """A non-empty string, or a number as one would write it."""
        value = self._take(key, None)
        if isinstance(value, bool) or not isinstance(value, str | int | float) or value == "":
            raise self.error(key, f"is {value!r}; it must be a non-empty string or a number")
        return str(value)

    def texts(self, key: str, count: int) -> list[str]:
        """That many strings."""
        value = self._take(key, None)
        items = cast(list[object], value) if isinstance(value, list) else []
        found = [item for item in items if isinstance(item, str)]
        if len(items) != count or len(found) != count:
            raise self.error(key, f"is {value!r}; it must be a list of {count} strings")
        return found

    def strings(self, key: str) -> list[str]:
        """A string, or a list of at least one."""
        value = self._take(key, None)
        items = cast(list[object], value) if isinstance(value, list) else [value]
        found = [item for item in items if isinstance(item, str) and item]
        if not items or len(found) != len(items):
            raise self.error(key, f"is {value!r}; it must be a string or a list of strings")
        return found

    def name(self, key: str) -> str:
        """A name of 1 to 63 letters, digits, '-', '_' and '.', that starts with a letter or digit."""
        value = self.text(key)
        if not _NAME.match(value):
            raise self.error(key, f"is {value!r}; a name has 1 to 63 letters, digits, '-', '_', '.'")
        return value

    def path(self, key: str, default: Path | None = None) -> Path:
        """An absolute path."""
        return self.absolute(key, self.text(key, None if default is None else str(default)))

    def absolute(self, key: str, text: str) -> Path:
        """A part of what was taken, as an absolute path."""
        path = Path(text)
        if not path.is_absolute():
            raise self.error(key, f"is {text!r}; it must be an absolute path, e.g. '/etc/gradlane/{path.name}'")
        return path

    def choice(self, key: str, choices: Sequence[str], default: str | None = None) -> str:
        """One of the given strings."""
        value = self._take(key, default)
        if value not in choices:
            raise self.error(key, f"is {value!r}; it must be one of {', '.join(map(repr, choices))}")
        return cast(str, value)

    def boolean(self, key: str, default: bool | None = None) -> bool:
        """true or false."""
        value = self._take(key, default)
        if not isinstance(value, bool):
            raise self.error(key, f"is {value!r}; it must be true or false")
        return value

    def integer(self, key: str, low: int, high: int, default: int | None = None) -> int:
        """An integer in [low, high]."""
        value = self._take(key, default)
        if not _is_integer(value) or not low <= value <= high:
            raise self.error(key, f"is {value!r}; it must be an integer from {low} to {high}")
        return value

    def integer_or(self, word: str, key: str, low: int, high: int) -> int | None:
        """An integer in [low, high]; None for that word, which is the default."""
        value = self._take(key, word)
        if value == word:
            return None
        if not _is_integer(value) or not low <= value <= high:
            raise self.error(key, f"is {value!r}; it must be {word!r} or an integer from {low} to {high}")
        return value

    def fraction(self, key: str, default: float | None = None) -> float:
        """A number in [0, 1)."""
        value = self._take(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
            raise self.error(key, f"is {value!r}; it must be a number of at least 0 and below 1")
        return float(value)

    def number(self, key: str, low: float, high: float, default: float | None = None) -> float:
        """A number above `low` and at most `high`."""
        value = self._take(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not low < value <= high:
            raise self.error(key, f"is {value!r}; it must be a number above {low:g} and at most {high:g}")
        return float(value)

    def span(self, key: str, low: int, high: int, default: tuple[int, int] | None = None) -> tuple[int, int]:
        """An inclusive range, written [first, last], within [low, high]."""
        value = self._take(key, default)
        ends = cast(Sequence[object], value) if isinstance(value, list | tuple) else ()
        if len(ends) == 2:
            first, last = ends
            if _is_integer(first) and _is_integer(last) and low <= first <= last <= high:
                return first, last
        raise self.error(key, f"is {value!r}; it must be [first, last] with {low} <= first <= last <= {high}")

    def choice_or_integers(
        self, key: str, allowed: Sequence[str], default: str, count: int, most: int
    ) -> str | tuple[int, ...]:
        """One of a few words, or `count` numbers from 0 to `most`, not all 0."""
        if not isinstance(self._values.get(key), list):
            return self.choice(key, allowed, default)
        values = cast(list[object], self._take(key, None))
        numbers = tuple(value for value in values if _is_integer(value) and 0 <= value <= most)
        if len(numbers) != len(values) or len(numbers) != count or not any(numbers):
            raise self.error(key, f"is {values!r}; it must be a list of {count} number(s) from 0 to {most}, not all 0")
        return numbers

    def quantity(self, key: str, parse: Callable[[str], int], default: str | None = None) -> int:
        """What `parse` (of `gradlane.units`) makes of a string such as "100mbit" or "64kB"."""
        value = self._take(key, default)
        if not isinstance(value, str):
            raise self.error(key, f"is {value!r}; it must be a string with a unit")
        try:
            return parse(value)
        except ValueError as problem:
            raise self.error(key, str(problem)) from None

    def address(self, key: str) -> ipaddress.IPv4Address:
        """An IPv4 address that a host can have (no multicast, broadcast or zero address; loopback is for trials)."""
        address = self._ipv4(key)
        if address.is_multicast or address.is_unspecified or address.is_reserved:
            raise self.error(key, f"is {str(address)!r}; it must be an IPv4 unicast address, e.g. '10.0.1.2'")
        return address

    def address6(self, key: str) -> ipaddress.IPv6Address:
        """An IPv6 address that a host can have in a fabric: unicast, and not of one link only."""
        value = self._take(key, None)
        with suppress(ValueError):
            address = ipaddress.IPv6Address(value if isinstance(value, str) else "")
            if not (address.is_multicast or address.is_unspecified or address.is_link_local or address.ipv4_mapped):
                return address
        raise self.error(key, f"is {value!r}; it must be an IPv6 unicast address, e.g. 'fd00::2'")

    def ip_address(self, key: str) -> Address:
        """As `address` or `address6`, whichever the text looks like."""
        value = self._values.get(key)
        return self.address6(key) if isinstance(value, str) and ":" in value else self.address(key)

    def ip_addresses(self, key: str) -> tuple[Address, ...]:
        """Several, each as `ip_address` takes it; absent counts as none."""
        texts = self.strings(key) if self.has(key) else []
        return tuple(self._sub(key, {str(n): text}).ip_address(str(n)) for n, text in enumerate(texts))

    def multicast_address(self, key: str, count: int, family: int) -> Address:
        """The first of `count` consecutive multicast addresses of IPv4 or 6 (`family`) that routers forward."""
        value = self._take(key, None)
        with suppress(ValueError):
            base = ipaddress.ip_address(value if isinstance(value, str) and "%" not in value else "")
            if base.version == family and _is_routed_multicast(base) and _is_routed_multicast(base + (count - 1)):
                return base
        where = (
            "224.0.1.0 to 239.255.255.255, e.g. '239.1.0.1'"
            if family == 4
            else "ff00::/8, with a scope of 3 or more, e.g. 'ff18::1'"
        )
        raise self.error(key, f"is {value!r}; the {count} multicast addresses from it on must lie in {where}")

    def table(self, key: str) -> "Table":
        """The sub-table of that name; an absent one counts as empty, so that its required keys are missed by name."""
        value = self._take(key, {})
        if not isinstance(value, dict):
            raise self.error(key, f"is {value!r}; it must be a table, [{key}]")
        return self._sub(key, cast(dict[str, object], value))

    def tables(self, key: str, most: int | None = None) -> list["Table"]:
        """The array of tables of that name, of at most so many; absent counts as empty."""
        value = self._take(key, [])
        items = cast(list[object], value) if isinstance(value, list) else [None]
        if not all(isinstance(item, dict) for item in items):
            raise self.error(key, f"must be an array of tables, e.g. [[{key}]]")
        if most is not None and len(items) > most:
            raise self.error(key, f"has {len(items)} tables; at most {most} are possible")
        return [self._sub(f"{key}[{i}]", cast(dict[str, object], item)) for i, item in enumerate(items)]

    def finish(self) -> None:
        """Refuses the keys that nobody asked for."""
        for key in self._values:
            known = sorted(set(self._known))
            near = difflib.get_close_matches(key[:_MAX_NAME], known, 1)
            meant = f"did you mean {near[0]!r}? " if near else ""
            raise self.error(key, f"is not known here; {meant}known: {', '.join(known)}")

    def _take(self, key: str, default: object) -> object:
        self._known.append(key)
        if key in self._values:
            return self._values.pop(key)
        if default is None:
            near = difflib.get_close_matches(key, [it[:_MAX_NAME] for it in list(self._values)[:_MAX_NAME]], 1, 0.75)
            raise self.error(key, f"is missing; is {near[0]!r} meant to be it?" if near else "is missing")
        return default

    def _sub(self, key: str, values: dict[str, object]) -> "Table":
        return Table(self._document, f"{self._path}.{key}" if self._path else key, values)

    def _ipv4(self, key: str) -> ipaddress.IPv4Address:
        value = self._take(key, None)
        if isinstance(value, str):
            try:
                return ipaddress.IPv4Address(value)
            except ValueError:
                pass
        raise self.error(key, f"is {value!r}; it must be an IPv4 address in dotted form, e.g. '10.0.1.2'")


def _is_routed_multicast(address: Address) -> bool:
    """Neither in 224.0.0.0/24 nor of the scope of a link, or a smaller one (RFC 4291, section 2.7)."""
    narrow = int(address) < 0xE0000100 if address.version == 4 else address.packed[1] & 15 < 3
    return address.is_multicast and not narrow


def _is_integer(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def parse(error: type[FileError], text: str, file: str) -> Table:
    """The root table of a TOML document, in time that grows with its length whatever it says.

    Raises `error` with the line of a syntax error.
    """
    if deep := _DEEP_KEY.search(text):
        line = text.count("\n", 0, deep.start()) + 1
        raise error(file, "", f"not valid TOML: line {line} has a key of more than {_MAX_PARTS} parts", line)
    try:
        values = tomllib.loads(text)
    except RecursionError:
        raise error(file, "", "not valid TOML: it is nested too deeply") from None
    except ValueError as problem:  # of which TOMLDecodeError is a kind; numbers of thousands of digits raise others
        raise error(file, "", f"not valid TOML: {problem}", toml_lines.of_problem(text, str(problem))) from None
    unseen: list[object] = [values]
    while unseen:
        value = unseen.pop()
        if isinstance(value, dict):
            unseen.extend(cast(dict[str, object], value).values())
        elif isinstance(value, list):
            unseen.extend(cast(list[object], value))
        elif isinstance(value, int) and not -(1 << 63) <= value < 1 << 64:
            raise error(file, "", "has an integer of more than 64 bits")
    return root_table(error, file, values, text)


def root_table(error: type[FileError], file: str, values: Mapping[str, object], text: str = "") -> Table:
    """The root table of what has been read, perhaps from another format; only TOML's `text` has lines to be named."""
    return Table(_Document(error, file, text), "", values)


def read(error: type[FileError], path: str | Path) -> str:
    """The text of a file. Raises `error` if it can't be read or is not UTF-8."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        reason = problem.strerror if isinstance(problem, OSError) else "not UTF-8 text"
        raise error(str(path), "", f"can't be read: {reason}") from None
