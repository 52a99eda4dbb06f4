# SPDX-License-Identifier: Apache-2.0
"""The updates of a Write and the requests of a Read: each on its own, or all or none."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from finsy.proto import p4r, rpc_code

from gradlane_switch.errors import EntityError
from gradlane_switch.p4info.bytestrings import invalid
from gradlane_switch.p4runtime.atomic import require_atomic
from gradlane_switch.p4runtime.entities import dispatch
from gradlane_switch.state.pipeline import Pipeline

_SPACE = "gradlane-switch"
_ENTITIES_PER_MESSAGE = 256
_MODES = p4r.WriteRequest


def require_mode(atomicity: int) -> None:
    """Raises EntityError if there is no such mode of atomicity."""
    if atomicity not in _MODES.Atomicity.values():
        names = ", ".join(f"{number} is {name}" for name, number in _MODES.Atomicity.items())
        raise invalid(f"atomicity {atomicity} is unknown: {names}")


def write(pipeline: Pipeline, updates: Iterable[Any], atomicity: int = _MODES.CONTINUE_ON_ERROR) -> list[Any]:
    """Applies p4.v1.Update messages in order. The p4.v1.Error of each, or no list at all if every one went well.

    With ROLLBACK_ON_ERROR the first that fails undoes those before it, and the others get ABORTED. With
    DATAPLANE_ATOMIC packets also see either all of them or none. Raises EntityError (UNIMPLEMENTED) if that can't be.
    """
    if atomicity == _MODES.ROLLBACK_ON_ERROR:
        return _write_all_or_none(pipeline, list(updates), [])
    if atomicity == _MODES.DATAPLANE_ATOMIC:
        return _write_between_packets(pipeline, list(updates))
    failed: dict[int, Any] = {}
    count = 0
    for count, update in enumerate(updates, 1):
        error = _attempt(dispatch.write, pipeline, update)
        if error is not None:
            failed[count - 1] = error
    return [failed.get(number) or p4r.Error() for number in range(count)] if failed else []


def read(pipeline: Pipeline, requests: Iterable[Any]) -> tuple[list[Any], list[Any]]:
    """What is found as p4.v1.ReadResponse messages, and, if a request failed, the p4.v1.Error of each."""
    found: list[Any] = []
    errors: list[Any] = []

    def collect(request: Any) -> None:
        for entity in dispatch.read(pipeline, request):
            if not found or len(found[-1].entities) == _ENTITIES_PER_MESSAGE:
                found.append(p4r.ReadResponse())
            found[-1].entities.append(entity)

    for request in requests:
        errors.append(_attempt(collect, request) or p4r.Error())
    return found, errors if any(error.canonical_code for error in errors) else []


def _write_all_or_none(pipeline: Pipeline, updates: list[Any], undo: list[tuple[int, Any]]) -> list[Any]:
    """As `write`; `undo` gets what undoes the updates, if all were applied."""
    for number, update in enumerate(updates):
        before = dispatch.inverse(pipeline, update)
        error = _attempt(dispatch.write, pipeline, update)
        if error is None:
            undo.extend(before)
            continue
        _undo(pipeline, undo)
        text = f"not applied, because update {number} of the batch failed"
        aborted = p4r.Error(canonical_code=rpc_code.ABORTED, message=text, space=_SPACE)
        return [error if other == number else aborted for other in range(len(updates))]
    return []


def _undo(pipeline: Pipeline, undo: list[tuple[int, Any]]) -> None:
    while undo:
        dispatch.apply(pipeline, *undo.pop())


def _write_between_packets(pipeline: Pipeline, updates: list[Any]) -> list[Any]:
    require_atomic(pipeline, updates)
    undo: list[tuple[int, Any]] = []
    try:
        with pipeline.state.changes.together():
            return _write_all_or_none(pipeline, updates, undo)
    except MemoryError as error:
        _undo(pipeline, undo)
        failed = p4r.Error(canonical_code=rpc_code.RESOURCE_EXHAUSTED, message=str(error), space=_SPACE)
        return [failed] * len(updates)


def _attempt(action: Callable[..., None], *args: Any) -> Any:
    """p4.v1.Error of one part of a request; None if it went well."""
    try:
        action(*args)
    except EntityError as error:
        return p4r.Error(canonical_code=error.code, message=str(error), space=_SPACE)
    except MemoryError as error:
        return p4r.Error(canonical_code=rpc_code.RESOURCE_EXHAUSTED, message=str(error), space=_SPACE)
    return None
