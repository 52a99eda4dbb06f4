# SPDX-License-Identifier: Apache-2.0
"""What BMv2 made of a program's frames, kept in a file: records/<program>.bin.

A file is a line of JSON (what the record was made from, the state at the end, and how the rest is divided), and blocks.
A block has the frames that left for a number of windows, compressed against the frames that entered, which whoever
reads it makes again.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.differential.corpus import HERE, Program
from tests.differential.targets import Outcome, Window

RECORDS = HERE / "records"
_DICTIONARY = 1 << 15  # what deflate can refer to
_FRAME = struct.Struct(">HH")  # port, length
_COUNT = struct.Struct(">H")


class RecordError(Exception):
    """A record is missing, or of something else than what the corpus now holds."""


def path_of(program: Program) -> Path:
    """Where a program's record is."""
    return RECORDS / f"{program.name}.bin"


def save(program: Program, outcome: Outcome) -> None:
    """Writes a program's record."""
    packed = [(len(group), _pack(_inputs(program, first, len(group)), group)) for first, group in _groups(outcome)]
    header = {
        "made_from": program.digest(),
        "state": outcome.state,
        "points": outcome.points,
        "digests": outcome.digests,
        "blocks": [[count, len(data)] for count, data in packed],
    }
    line = zlib.compress(json.dumps(header, separators=(",", ":")).encode(), 9)
    RECORDS.mkdir(exist_ok=True)
    path_of(program).write_bytes(struct.pack(">I", len(line)) + line + b"".join(data for _, data in packed))


def load(program: Program) -> Outcome:
    """A program's record. Raises RecordError when it is missing or stale."""
    path = path_of(program)
    if not path.exists():
        raise RecordError(f"{path.name} is missing: run python -m tests.differential.record where BMv2 is on PATH")
    data = path.read_bytes()
    (length,) = struct.unpack_from(">I", data)
    header: dict[str, Any] = json.loads(zlib.decompress(data[4 : 4 + length]))
    if header["made_from"] != program.digest():
        raise RecordError(
            f"{path.name} was recorded from another program, other entries or other frames than the corpus now has: "
            "run python -m tests.differential.record where BMv2 is on PATH"
        )
    windows: list[Window] = []
    offset = 4 + length
    for count, size in header["blocks"]:
        block = data[offset : offset + size]
        windows += _unpack(_inputs(program, len(windows), count), block, count)
        offset += size
    return Outcome(windows, header["state"], header["digests"], header.get("points", []))


def _groups(outcome: Outcome) -> Iterator[tuple[int, list[Window]]]:
    """Runs of windows, as (number of the first, windows), of about the size of a dictionary."""
    first, size = 0, 0
    for number, window in enumerate(outcome.windows):
        size += sum(len(frame) for _, frame in window)
        if size >= _DICTIONARY * 3 // 4:
            yield first, outcome.windows[first : number + 1]
            first, size = number + 1, 0
    if first < len(outcome.windows):
        yield first, outcome.windows[first:]


def _inputs(program: Program, first: int, count: int) -> bytes:
    entered = b"".join(frame for window in program.windows[first : first + count] for _, frame in window)
    return entered[-_DICTIONARY:]


def _pack(dictionary: bytes, windows: list[Window]) -> bytes:
    parts: list[bytes] = []
    for window in windows:
        parts.append(_COUNT.pack(len(window)))
        parts += [_FRAME.pack(port, len(frame)) + frame for port, frame in window]
    compressor = zlib.compressobj(9, zlib.DEFLATED, -15, 9, zlib.Z_DEFAULT_STRATEGY, dictionary)
    return compressor.compress(b"".join(parts)) + compressor.flush()


def _unpack(dictionary: bytes, block: bytes, count: int) -> list[Window]:
    data = zlib.decompressobj(-15, zdict=dictionary).decompress(block)
    windows: list[Window] = []
    offset = 0
    for _ in range(count):
        (frames,) = _COUNT.unpack_from(data, offset)
        offset += _COUNT.size
        window: Window = []
        for _ in range(frames):
            port, length = _FRAME.unpack_from(data, offset)
            offset += _FRAME.size
            window.append((port, data[offset : offset + length]))
            offset += length
        windows.append(window)
    return windows
