# SPDX-License-Identifier: Apache-2.0
"""Programs, P4Infos and entries from files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from finsy.proto import p4i, p4r
from google.protobuf import text_format

from gradlane_switch.errors import EntityError, ProgramError
from gradlane_switch.p4runtime.entities import dispatch
from gradlane_switch.state.pipeline import Pipeline


def read_p4info(path: str | Path) -> Any:
    """The P4Info (p4.config.v1.P4Info) in a text-format file. Raises ProgramError naming the file."""
    return _parse(path, p4i.P4Info(), "P4Info")


def read_program(path: str | Path) -> bytes:
    """The bytes of a BMv2 JSON file. Raises ProgramError naming the file."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ProgramError(f"{path}: {error.strerror}") from None


def write_entries(pipeline: Pipeline, path: str | Path) -> None:
    """Applies the updates of a p4.v1.WriteRequest in a text-format file. Raises ProgramError naming file and update."""
    request = _parse(path, p4r.WriteRequest(), "p4.v1.WriteRequest")
    for number, update in enumerate(request.updates):
        try:
            dispatch.write(pipeline, update)
        except EntityError as error:
            raise ProgramError(f"{path}: updates[{number}]: {error}") from None


def _parse(path: str | Path, message: Any, kind: str) -> Any:
    try:
        return text_format.Parse(Path(path).read_text(), message)
    except (OSError, text_format.ParseError, UnicodeDecodeError) as error:
        raise ProgramError(f"{path}: not a readable {kind} in text format: {error}") from None
