# SPDX-License-Identifier: Apache-2.0
"""Why a packet went where it went: the events of a program that is compiled for tracing, as dictionaries."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from gradlane_switch.ir.expressions import join_words, words_of
from gradlane_switch.ir.layout import layout_of
from gradlane_switch.ir.tables import Conditional, FieldKey, Key, MatchKind
from gradlane_switch.native.ffi import ffi, runtime
from gradlane_switch.state.pipeline import Pipeline
from gradlane_switch.state.tables import Entry

Event = dict[str, Any]

_CAPACITY = 1 << 17  # words
_SHOWN = 128  # bytes of a packet

_COLOURS = ("green", "yellow", "red")
_REASONS = (
    "dropped in ingress",
    "dropped in egress",
    "multicast group does not exist",
    "port does not exist",
    "shorter than an Ethernet header",
    "no room in the port's buffer",
    "port is down",
    "resubmitted, recirculated or cloned too often",
    "assertion failed",
    "pushed out of the queue",
    "out of memory",
    "lost on the link to the host",
    "lost on the link from the host",
)


class Traces:
    """Traced packets of a pipeline: `handle` is the gl_tracer that their events are written to.

    A packet has its port, its time in ns, its length, its first bytes in hex, and "events" in order of time: those of
    its copies as well.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self._words = ffi.new("uint64_t[]", _CAPACITY)
        self.handle: Any = ffi.new("gl_tracer *", {"words": self._words, "capacity": _CAPACITY})
        self._out = ffi.new("uint64_t[]", _CAPACITY)
        self._lost = ffi.new("uint32_t *")
        self._reader = _Reader(pipeline)
        # By the packet's number, in order of arrival: the packet, and how many copies of it wait in queues.
        self._packets: dict[int, tuple[dict[str, Any], int]] = {}

    def take(self, dataplane: Any, unfinished: bool) -> tuple[list[dict[str, Any]], int]:
        """The packets of a data plane that have ended since the last call, and the number of events without room.

        `unfinished`: those that wait as well.
        """
        count = runtime().gl_trace_take(dataplane, self.handle, self._out, self._lost)
        self._read(list(self._out[0:count]))
        # When events were lost, nobody knows what still waits.
        everything = unfinished or self._lost[0]
        ended = [number for number, (_, waiting) in self._packets.items() if everything or not waiting]
        return [self._packets.pop(number)[0] for number in ended], self._lost[0]

    def all(self) -> list[dict[str, Any]]:
        """All packets, where nobody writes any more."""
        self._read(list(self._words[0 : self.handle.used]))
        return [packet for packet, _ in self._packets.values()]

    def _read(self, words: Sequence[int]) -> None:
        library = runtime()
        current: int | None = None
        for kind, content in _split(words):
            if kind == library.GL_TRACE_PACKET:
                current = content[0]
                self._packets[current] = _packet(*content[1:]), 0
                continue
            number, rest, change = current, content, int(kind == library.GL_TRACE_QUEUED)
            if kind in (library.GL_TRACE_DEQUEUED, library.GL_TRACE_FLUSHED):
                number, rest, change = content[0], content[1:], -1
            if kind == library.GL_TRACE_DEQUEUED:
                current = number
            if number is None or number not in self._packets:
                continue  # There was no room for its beginning, or it has been taken.
            packet, waiting = self._packets[number]
            self._packets[number] = packet, waiting + change
            self._reader.add(packet["events"], kind, rest)


def _packet(port: int, time: int, length: int, *data: int) -> dict[str, Any]:
    shown = b"".join(word.to_bytes(8, "little") for word in data)[: min(length, _SHOWN)]
    return {"port": port, "time": time, "length": length, "bytes": shown.hex(), "events": []}


def _split(words: Sequence[int]) -> Iterator[tuple[int, Sequence[int]]]:
    at = 0
    while at < len(words):
        kind, count = words[at] >> 32, words[at] & 0xFFFFFFFF
        yield kind, words[at + 1 : at + 1 + count]
        at += 1 + count


class _Reader:
    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._program = pipeline.program
        self._errors = {number: name for name, number in self._program.errors.items()}
        self._layouts = [layout_of(table.keys) for table in self._program.tables]

    def add(self, events: list[Event], kind: int, content: Sequence[int]) -> None:
        """Appends an event; that of a table's entry completes the one of its key."""
        library = runtime()
        if kind == library.GL_TRACE_ENTRY:
            if events:  # Else there was no room for the table's event.
                self._complete(events[-1], *content)
            return
        events.append(self._event(kind, content))

    def _event(self, kind: int, content: Sequence[int]) -> Event:
        library, program = runtime(), self._program
        match kind:
            case library.GL_TRACE_STATE:
                return {"event": "state", "name": program.parser[content[0]].name}
            case library.GL_TRACE_PARSED:
                return {"event": "parsed", "error": self._errors.get(content[0], str(content[0])), "bytes": content[1]}
            case library.GL_TRACE_BRANCH:
                pipeline, index, holds = content
                node = (program.ingress, program.egress)[pipeline].nodes[index]
                source = node.source if isinstance(node, Conditional) else ""
                return {"event": "condition", "source": source, "holds": bool(holds)}
            case library.GL_TRACE_TABLE:
                return self._table(*content)
            case library.GL_TRACE_ACTION:
                return self._action(*content)
            case library.GL_TRACE_EGRESS:
                return {"event": "egress", "port": content[0]}
            case library.GL_TRACE_CLONE:
                return {"event": "clone", "session": content[0], "copies": content[1]}
            case library.GL_TRACE_GROUP:
                return {"event": "multicast", "group": content[0], "copies": content[1]}
            case library.GL_TRACE_AGAIN:
                return {"event": "recirculate" if content[0] else "resubmit"}
            case library.GL_TRACE_DIGEST:
                return {"event": "digest", "name": program.digests[content[0]].name}
            case library.GL_TRACE_DROPPED | library.GL_TRACE_FLUSHED:
                where = {"port": content[1], "queue": content[2]} if len(content) > 1 else {}
                return {"event": "dropped", "reason": _REASONS[content[0]], **where}
            case library.GL_TRACE_QUEUED:
                names = ("port", "queue", "length", "queue_bytes", "port_bytes")
                return {"event": "queued", **dict(zip(names, content, strict=True))}
            case library.GL_TRACE_DEQUEUED:
                return {"event": "dequeued", **dict(zip(("port", "queue", "waited"), content, strict=True))}
            case library.GL_TRACE_SENT:
                return {"event": "sent", **dict(zip(("port", "queue", "length"), content, strict=True))}
            case library.GL_TRACE_COUNT:
                return {"event": "counter", "name": program.counters[content[0]].name, "index": content[1]}
            case library.GL_TRACE_METER:
                name, colour = program.meters[content[0]].name, _COLOURS[content[2]]
                return {"event": "meter", "name": name, "index": content[1], "colour": colour}
            case library.GL_TRACE_READ | library.GL_TRACE_WRITE:
                done = "read" if kind == library.GL_TRACE_READ else "written"
                name, value = program.registers[content[0]].name, hex(join_words(content[2:]))
                return {"event": "register", "name": name, "index": content[1], done: value}
            case library.GL_TRACE_CONTROLLER:
                return {"event": "packet-in", "length": content[0]}
            case _:
                raise AssertionError(f"an event of the unknown kind {kind}")

    def _table(self, index: int, *words: int) -> Event:
        table, layout = self._program.tables[index], self._layouts[index]
        key: dict[str, str] = {}
        for item, place in zip(table.keys, layout.places, strict=True):
            value = join_words(words[place.word : place.word + words_of(item.width)]) >> place.shift
            key[item.name] = hex(value & ((1 << item.width) - 1))
        return {"event": "table", "name": table.name, "number": index, "key": key}

    def _complete(self, event: Event, hit: int, address: int) -> None:
        index = event.pop("number", None)
        if index is None:
            return  # There was no room for the table's event.
        event["hit"] = bool(hit)
        if hit:
            state = self._pipeline.state.tables[index]
            entry = state.at(address)
            event["entry"] = None if entry is None else _match(state.table.keys, entry)

    def _action(self, index: int, *words: int) -> Event:
        action, data, at = self._program.actions[index], dict[str, str](), 0
        for name, width in zip(action.param_names, action.params, strict=True):
            count = words_of(width)
            data[name] = hex(join_words(words[at : at + count]))
            at += count
        return {"event": "action", "name": action.name, "data": data}


def _match(keys: tuple[Key, ...], entry: Entry) -> dict[str, Any]:
    match = {key.name: _field(key, item) for key, item in zip(keys, entry.match, strict=True)}
    return {"match": match, "priority": entry.priority} if entry.priority else {"match": match}


def _field(key: Key, item: FieldKey) -> str:
    match key.kind:
        case MatchKind.LPM:
            return f"{item.value:#x}/{item.operand}"
        case MatchKind.TERNARY:
            return f"{item.value:#x} &&& {item.operand:#x}"
        case MatchKind.RANGE:
            return f"{item.value:#x}..{item.operand:#x}"
        case MatchKind.OPTIONAL:
            return f"{item.value:#x}" if item.operand else "any"
        case MatchKind.EXACT:
            return f"{item.value:#x}"
