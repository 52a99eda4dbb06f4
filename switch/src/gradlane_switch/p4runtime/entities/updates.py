# SPDX-License-Identifier: Apache-2.0
"""What writing and reading has in common for every kind of entity: its id, and whether an update can apply to it."""

from __future__ import annotations

from typing import Protocol, TypeVar

from finsy.proto import p4r, rpc_code

from gradlane_switch.errors import EntityError
from gradlane_switch.p4info.bytestrings import invalid
from gradlane_switch.p4info.schema import Known

INSERT, MODIFY, DELETE = p4r.Update.INSERT, p4r.Update.MODIFY, p4r.Update.DELETE


class _Named(Protocol):
    @property
    def id(self) -> int: ...
    @property
    def name(self) -> str: ...


_Item = TypeVar("_Item", bound=_Named)


def find(known: Known[_Item], kind: str, number: int) -> _Item:
    """What has an id. Raises EntityError (NOT_FOUND), which names what there is."""
    item = known.get(number)
    if number in known.absent:
        text = f"{kind} {known.absent[number]} is in P4Info, but the program lacks it: no packet could reach it"
        raise EntityError(rpc_code.NOT_FOUND, text)
    if item is None:
        names = ", ".join(f"{other.name} ({other.id:#x})" for other in known.values())
        text = f"there is no {kind} with the id {number:#x}: there are {names or 'none'}"
        raise EntityError(rpc_code.NOT_FOUND, text)
    return item


def select(known: Known[_Item], kind: str, number: int) -> list[_Item]:
    """What a read asks for by an id; 0 is all of the kind. Raises EntityError."""
    return [find(known, kind, number)] if number else list(known.values())


def check_existence(kind: int, what: str, *, exists: bool) -> None:
    """Raises EntityError if an INSERT is of what exists, or another update of what does not."""
    if kind == INSERT and exists:
        raise EntityError(rpc_code.ALREADY_EXISTS, f"{what} exists already")
    if kind != INSERT and not exists:
        raise EntityError(rpc_code.NOT_FOUND, f"there is no {what}")


def modify_only(kind: int, what: str) -> None:
    """Raises EntityError if an update is not a MODIFY."""
    if kind != MODIFY:
        raise invalid(f"a {what} can only be modified")
