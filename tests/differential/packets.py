# SPDX-License-Identifier: Apache-2.0
"""Frames that reach every branch of a program's parser, from a seed: a walk through the parse graph of its BMv2 JSON.

The walk picks a transition in each state and writes what the state selects on, so that the transition is taken, where
that comes out of the frame. Other fields get what a table, a value set or the program's TOML file names, a value at a
border, or random bits. Some frames are then cut, changed or lengthened.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

MAX_BITS = 1500 * 8
MAX_STATES = 64
PORTS = (1, 2, 3, 4)

Name = tuple[str, str]


@dataclass(frozen=True)
class Sample:
    """Values of a field: `value` in the bits of `mask`, anything in the others."""

    value: int
    mask: int


class _Frame:
    """A frame that grows to the right, in bits."""

    def __init__(self) -> None:
        self.value = 0
        self.length = 0

    def append(self, value: int, width: int) -> None:
        self.value = self.value << width | value
        self.length += width

    def get(self, offset: int, width: int) -> int:
        return self.value >> (self.length - offset - width) & ((1 << width) - 1)

    def put(self, offset: int, width: int, value: int) -> None:
        shift = self.length - offset - width
        self.value = self.value & ~(((1 << width) - 1) << shift) | value << shift


class Generator:
    """Frames for one program. `samples`: by (header, field); `members`: the value sets' members by set."""

    def __init__(
        self,
        document: Mapping[str, Any],
        samples: Mapping[Name, Sequence[Sample]],
        members: Mapping[str, Sequence[tuple[int, ...]]],
        seed: str,
        ports: Sequence[int] = PORTS,
    ) -> None:
        self._random = random.Random(seed)
        self._ports = ports
        self._samples = samples
        self._members = members
        types = {item["name"]: item for item in document["header_types"]}
        self._types = {item["name"]: types[item["header_type"]] for item in document["headers"]}
        ids = {item["id"]: item["name"] for item in document["headers"]}
        self._stacks = {
            item["name"]: [ids[number] for number in item["header_ids"]] for item in document.get("header_stacks", [])
        }
        unions = {item["id"]: item["name"] for item in document.get("header_unions", [])}
        self._union_stacks = {
            item["name"]: [unions[number] for number in item["header_union_ids"]]
            for item in document.get("header_union_stacks", [])
        }
        parser = document["parsers"][0]
        self._start: str = parser["init_state"]
        self._states = {state["name"]: state for state in parser["parse_states"]}
        self.reached: set[str] = set()

    @property
    def states(self) -> frozenset[str]:
        """The parser's states; `reached` are those that frames have gone through."""
        return frozenset(self._states)

    def frames(self, count: int) -> Iterator[tuple[int, bytes]]:
        """`count` frames as (ingress port, frame)."""
        for _ in range(count):
            port = self._random.choice(self._ports)
            frame = _Walk(self, self._random, port).frame()
            yield port, self._spoil(frame)

    def _spoil(self, frame: bytes) -> bytes:
        chance = self._random.random()
        if chance < 0.75:
            return frame
        if chance < 0.86:
            return frame[: self._random.randrange(1, len(frame) + 1)]
        if chance < 0.94:
            changed = bytearray(frame)
            for _ in range(self._random.randrange(1, 4)):
                changed[self._random.randrange(len(changed))] ^= 1 << self._random.randrange(8)
            return bytes(changed)
        if chance < 0.97:
            return frame + self._random.randbytes(self._random.randrange(1, 300))
        return self._random.randbytes(self._random.randrange(1, 100))

    def fields(self, header: str) -> list[tuple[str, int]]:
        """Names and widths in bits of a header's fields; a varbit field's width is -1."""
        return [(name, -1 if width == "*" else int(width)) for name, width, *_ in self._types[header]["fields"]]

    def value(self, name: Name, width: int) -> int:
        """A value for a field."""
        whole = (1 << width) - 1
        samples = self._samples.get(name, ())
        if samples and self._random.random() < 0.6:
            sample = self._random.choice(samples)
            value = sample.value & sample.mask | self._random.getrandbits(width) & ~sample.mask & whole
            return (value + self._random.choice((0, 0, 0, 0, 1, -1))) & whole
        if self._random.random() < 0.4:
            return self._random.choice((0, 1, whole, whole >> 1, 1 << width >> 1, self._random.randrange(16))) & whole
        return self._random.getrandbits(width)

    def stack(self, name: str) -> list[str]:
        """The elements of a header stack, or the unions of a stack of unions."""
        return self._stacks[name] if name in self._stacks else self._union_stacks[name]

    def state(self, name: str | None) -> Mapping[str, Any]:
        """A state of the parser."""
        return self._states[self._start if name is None else name]

    def members(self, name: str) -> Sequence[tuple[int, ...]]:
        """The members of a value set."""
        return self._members.get(name, ())


class _Walk:
    """One way through the parser."""

    def __init__(self, generator: Generator, chance: random.Random, port: int) -> None:
        self._generator = generator
        self._random = chance
        self._frame = _Frame()
        self._cursor = 0
        self._places: dict[Name, tuple[int, int]] = {}  # fields that are bits of the frame: offset and width
        self._values: dict[Name, int] = {("standard_metadata", "ingress_port"): port}
        self._next: dict[str, int] = {}

    def frame(self) -> bytes:
        """A whole frame."""
        state: str | None = None
        for _ in range(MAX_STATES):
            node = self._generator.state(state)
            self._generator.reached.add(node["name"])
            for operation in node["parser_ops"]:
                if not self._run(operation):
                    return self._finish()
            state = self._transition(node)
            if state is None or self._cursor > MAX_BITS:
                break
        return self._finish()

    def _finish(self) -> bytes:
        self._reach(-(-self._frame.length // 8) * 8)
        body = self._frame.value.to_bytes(self._frame.length // 8, "big")
        return body + self._random.randbytes(self._random.randrange(0, 60))

    def _reach(self, length: int) -> None:
        if length > self._frame.length:
            width = length - self._frame.length
            self._frame.append(self._random.getrandbits(width), width)

    def _run(self, operation: Mapping[str, Any]) -> bool:
        """One parser operation. False when the rest can't be followed."""
        args = operation["parameters"]
        match operation["op"]:
            case "extract":
                return self._extract(args[0], 0)
            case "extract_VL":
                length = self._evaluate(args[1])
                return length is not None and 0 <= length <= MAX_BITS and self._extract(args[0], length)
            case "set":
                self._assign((args[0]["value"][0], args[0]["value"][1]), args[1])
            case "advance":
                distance = self._evaluate(args[0])
                if distance is None or not 0 <= distance <= MAX_BITS:
                    return False
                self._cursor += distance
                self._reach(self._cursor)
            case _:
                pass  # verify, and what changes no field that a select could need
        return True

    def _extract(self, what: Mapping[str, Any], variable: int) -> bool:
        header = self._header(what)
        if header is None:
            return False
        for name, width in self._generator.fields(header):
            size = variable if width < 0 else width
            end = self._cursor + size
            if end > self._frame.length and size:
                value = self._generator.value((header, name), size)
                missing = end - self._frame.length
                self._frame.append(value & ((1 << missing) - 1), missing)
            self._places[header, name] = (self._cursor, size)
            self._cursor = end
        return True

    def _header(self, what: Mapping[str, Any]) -> str | None:
        value = what["value"]
        if what["type"] == "regular":
            return value
        name = value if what["type"] == "stack" else value[0]
        index = self._next.get(name, 0)
        elements = self._generator.stack(name)
        if index >= len(elements):
            self._cursor += 8  # an error of the parser; some more bytes, so that it isn't one of length
            self._reach(self._cursor)
            return None
        self._next[name] = index + 1
        return elements[index] if what["type"] == "stack" else f"{elements[index]}.{value[1]}"

    def _assign(self, target: Name, source: Mapping[str, Any]) -> None:
        self._places.pop(target, None)
        self._values.pop(target, None)
        place = self._place(source)
        value = self._evaluate(source)
        if place is not None:
            self._places[target] = place
        elif value is not None:
            self._values[target] = value

    def _place(self, node: Mapping[str, Any]) -> tuple[int, int] | None:
        """Where in the frame a value is, if it is there as it is."""
        while node["type"] == "expression" and "op" not in node["value"]:
            node = node["value"]
        match node["type"]:
            case "field":
                return self._places.get((node["value"][0], node["value"][1]))
            case "lookahead":
                offset, width = node["value"]
                self._reach(self._cursor + offset + width)
                return self._cursor + offset, width
            case "stack_field":
                stack, name = node["value"]
                index = self._next.get(stack, 0)
                return self._places.get((self._generator.stack(stack)[index - 1], name)) if index else None
            case _:
                return None

    def _evaluate(self, node: Any) -> int | None:
        """What a value is, if that is known here."""
        if isinstance(node, bool) or node is None:
            return None if node is None else int(node)
        if "op" in node:
            operation = _OPERATIONS.get(node["op"])
            values = [self._evaluate(node[side]) for side in ("left", "right") if node.get(side) is not None]
            if operation is None or None in values:
                return None
            return operation(*values)
        if node["type"] == "expression":
            return self._evaluate(node["value"])
        if node["type"] == "hexstr":
            return int(node["value"], 16)
        if node["type"] == "bool":
            return int(node["value"])
        place = self._place(node)
        if place is not None:
            return self._frame.get(*place)
        return self._values.get(tuple(node["value"])) if node["type"] == "field" else None

    def _transition(self, state: Mapping[str, Any]) -> str | None:
        keys = state["transition_key"]
        places = [self._place(key) for key in keys]
        widths = [self._width(key, place) for key, place in zip(keys, places, strict=True)]
        cases = [case for item in state["transitions"] for case in self._cases(item, widths)]
        # BMv2 takes the last default, and after all other cases.
        defaults = [case for case in cases if case[0] is None]
        cases = [case for case in cases if case[0] is not None] + defaults[-1:]
        if not cases:
            return None
        weights = [1 if case[0] is None else 4 for case in cases]
        wanted, following = self._random.choices(cases, weights)[0]
        for place, part in zip(places, wanted or (), strict=False):
            if place is not None:
                old = self._frame.get(*place)
                self._frame.put(*place, (part[0] & part[1] | old & ~part[1]) & ((1 << place[1]) - 1))
        values = [self._evaluate(key) for key in keys]
        if None in values:
            return following
        for parts, state_name in cases:
            if parts is None or all(
                value & mask == wanted_value & mask  # type: ignore[operator]
                for value, (wanted_value, mask) in zip(values, parts, strict=True)
            ):
                return state_name
        return None

    def _width(self, key: Mapping[str, Any], place: tuple[int, int] | None) -> int:
        if place is not None:
            return place[1]
        if key["type"] == "field":
            return dict(self._generator.fields(key["value"][0]))[key["value"][1]]
        return 8

    def _cases(
        self, item: Mapping[str, Any], widths: Sequence[int]
    ) -> Iterator[tuple[tuple[tuple[int, int], ...] | None, str | None]]:
        """What a transition wants of each key, as (value, mask), and the state that follows."""
        following = item["next_state"]
        if item["type"] == "default":
            yield None, following
        elif item["type"] == "parse_vset":
            for member in self._generator.members(item["value"]):
                yield tuple((part, -1) for part in member), following
        else:
            value = int(item["value"], 16)
            mask = -1 if item["mask"] is None else int(item["mask"], 16)
            parts: list[tuple[int, int]] = []
            for width in reversed(widths):
                size = -(-width // 8) * 8
                whole = (1 << width) - 1
                parts.insert(0, (value & whole, mask & whole))
                value >>= size
                mask >>= size
            yield tuple(parts), following


_OPERATIONS: dict[str, Callable[..., int]] = {
    "+": lambda a, b: a + b,
    "-": lambda *v: v[0] - v[1] if len(v) == 2 else -v[0],
    "*": lambda a, b: a * b,
    "<<": lambda a, b: a << min(b, 4096),
    ">>": lambda a, b: a >> b,
    "&": lambda a, b: a & b,
    "|": lambda a, b: a | b,
    "^": lambda a, b: a ^ b,
    "~": lambda a: ~a,
    "==": lambda a, b: int(a == b),
    "!=": lambda a, b: int(a != b),
    "<": lambda a, b: int(a < b),
    "<=": lambda a, b: int(a <= b),
    ">": lambda a, b: int(a > b),
    ">=": lambda a, b: int(a >= b),
    "and": lambda a, b: int(bool(a) and bool(b)),
    "or": lambda a, b: int(bool(a) or bool(b)),
    "not": lambda a: int(not a),
    "d2b": lambda a: int(a != 0),
    "b2d": int,
}
