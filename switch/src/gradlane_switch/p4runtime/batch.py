# SPDX-License-Identifier: Apache-2.0
"""The updates of a Write and the requests of a Read: each on its own, or all or none; in short steps."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import Any

from finsy.proto import p4r, rpc_code

from gradlane_switch.errors import EntityError
from gradlane_switch.p4info.bytestrings import invalid
from gradlane_switch.p4runtime.atomic import require_atomic
from gradlane_switch.p4runtime.entities import dispatch
from gradlane_switch.state.pipeline import Pipeline

_SPACE = "gradlane-switch"
_ENTITIES_PER_MESSAGE = 64
_MODES = p4r.WriteRequest

Steps = Generator[Any, None, list[Any]]
"""Work that is done in short steps, each giving None or a message. Its result: the p4.v1.Error of each part of a
request, or none at all if all went well."""


def require_mode(atomicity: int) -> None:
    """Raises EntityError if there is no such mode of atomicity."""
    if atomicity not in _MODES.Atomicity.values():
        names = ", ".join(f"{number} is {name}" for name, number in _MODES.Atomicity.items())
        raise invalid(f"atomicity {atomicity} is unknown: {names}")


def write(pipeline: Pipeline, updates: Sequence[Any], atomicity: int = _MODES.CONTINUE_ON_ERROR) -> Steps:
    """Applies p4.v1.Update messages in order.

    With ROLLBACK_ON_ERROR the first that fails undoes those before it, and the others get ABORTED: nobody else may
    write between its steps. With DATAPLANE_ATOMIC packets also see either all of them or none. Raises EntityError
    (UNIMPLEMENTED) if that can't be.
    """
    if atomicity == _MODES.ROLLBACK_ON_ERROR:
        return (yield from _write_all_or_none(pipeline, updates, []))
    if atomicity == _MODES.DATAPLANE_ATOMIC:
        return _write_between_packets(pipeline, updates)
    failed: dict[int, Any] = {}
    for number, update in enumerate(updates):
        error = yield from _attempt(dispatch.steps(pipeline, update.type, update.entity))
        if error is not None:
            failed[number] = error
        yield
    return _listed(failed, len(updates))


def read(pipeline: Pipeline, requests: Sequence[Any]) -> Steps:
    """Gives what is found as p4.v1.ReadResponse messages."""
    message = p4r.ReadResponse()
    failed: dict[int, Any] = {}

    def collect(request: Any) -> Iterator[Any]:
        nonlocal message
        for entity in dispatch.read_steps(pipeline, request):
            if entity is not None:
                message.entities.append(entity)
            if len(message.entities) == _ENTITIES_PER_MESSAGE:
                yield message
                message = p4r.ReadResponse()
            else:
                yield

    for number, request in enumerate(requests):
        error = yield from _attempt(collect(request))
        if error is not None:
            failed[number] = error
        yield
    if message.entities:
        yield message
    return _listed(failed, len(requests))


def _listed(failed: dict[int, Any], count: int) -> list[Any]:
    fine = p4r.Error()
    return [failed.get(number, fine) for number in range(count)] if failed else []


def _write_all_or_none(pipeline: Pipeline, updates: Sequence[Any], undo: list[tuple[int, Any]]) -> Steps:
    """As `write`; `undo` gets what undoes the updates, if all were applied."""
    for number, update in enumerate(updates):
        before = dispatch.inverse(pipeline, update)
        error = yield from _attempt(dispatch.steps(pipeline, update.type, update.entity))
        if error is None:
            undo.extend(before)
            yield
            continue
        yield from _undo(pipeline, undo)
        text = f"not applied, because update {number} of the batch failed"
        aborted = p4r.Error(canonical_code=rpc_code.ABORTED, message=text, space=_SPACE)
        return [error if other == number else aborted for other in range(len(updates))]
    return []


def _undo(pipeline: Pipeline, undo: list[tuple[int, Any]]) -> Iterator[None]:
    while undo:
        yield from dispatch.steps(pipeline, *undo.pop())
        yield


def _write_between_packets(pipeline: Pipeline, updates: Sequence[Any]) -> list[Any]:
    """All in one step: it is short, and no packet and no reader is to see a part of it."""
    require_atomic(pipeline, updates)
    undo: list[tuple[int, Any]] = []
    try:
        with pipeline.state.changes.together():
            return finish(_write_all_or_none(pipeline, updates, undo))
    except MemoryError as error:
        for _ in _undo(pipeline, undo):
            pass
        failed = p4r.Error(canonical_code=rpc_code.RESOURCE_EXHAUSTED, message=str(error), space=_SPACE)
        return [failed] * len(updates)


def finish(steps: Steps) -> list[Any]:
    """The result of what is run to its end."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


def _attempt(steps: Iterator[Any]) -> Generator[Any, None, Any]:
    """Runs a part of a request. Its result: the p4.v1.Error; None if it went well."""
    try:
        yield from steps
    except EntityError as error:
        return p4r.Error(canonical_code=error.code, message=str(error), space=_SPACE)
    except MemoryError as error:
        return p4r.Error(canonical_code=rpc_code.RESOURCE_EXHAUSTED, message=str(error), space=_SPACE)
    return None
