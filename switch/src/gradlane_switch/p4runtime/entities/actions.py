# SPDX-License-Identifier: Apache-2.0
"""Actions of P4Runtime, checked against the schema, and back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from finsy.proto import p4r, rpc_code

from gradlane_switch.errors import EntityError
from gradlane_switch.ir.tables import ActionCall, FieldKey
from gradlane_switch.p4info.bytestrings import invalid
from gradlane_switch.p4info.schema import ActionSchema, TableSchema
from gradlane_switch.p4info.translation import decode_value, encode_value


def decode_action(schema: TableSchema, table_action: Any, *, default: bool) -> ActionCall:
    """The action of an entry, or of the default entry. Raises EntityError naming the action or parameter."""
    if table_action.WhichOneof("type") != "action":
        raise invalid(f"{schema.name} is a direct table: its entries need an action")
    message = table_action.action
    action = find_action(schema, message.action_id)
    if not (action.in_default if default else action.in_entries):
        where = "the default entry" if default else "entries"
        raise EntityError(rpc_code.PERMISSION_DENIED, f"{action.name} is not allowed in {where} of {schema.name}")
    arguments = _decode_params(action, message.params)
    broken = action.restrictions.violation([FieldKey(value) for value in arguments])
    if broken:
        raise invalid(f"{schema.name}: {action.name}: {broken}")
    return ActionCall(action.index, arguments)


def find_action(schema: TableSchema, number: int) -> ActionSchema:
    """The action with an id. Raises EntityError if the table has no such action."""
    action = schema.action(number)
    if action is None:
        names = ", ".join(f"{item.name} ({item.id:#x})" for item in schema.actions)
        raise invalid(f"{schema.name} has no action {number:#x}: it has {names or 'none'}")
    return action


def _decode_params(action: ActionSchema, params: Iterable[Any]) -> tuple[int, ...]:
    given: dict[int, bytes] = {}
    known = action.what
    for item in params:
        number = item.param_id
        if number not in known or number in given:
            raise invalid(f"{action.name} has no parameter {number}, or it is given twice")
        given[number] = item.value
    if len(given) < len(known):
        missing = next(what for number, what in known.items() if number not in given)
        raise invalid(f"{missing} is missing")
    translations = action.translations
    return tuple(
        [
            decode_value(given[number], width, what, translations.get(number))
            for (number, what), width in zip(known.items(), action.widths, strict=True)
        ]
    )


def encode_action(schema: TableSchema, call: ActionCall) -> Any:
    """The action of an entry, values in canonical form."""
    action = schema.action_by_index(call.action)
    if action is None:
        raise EntityError(rpc_code.INTERNAL, f"{schema.name} runs an action that P4Info does not name")
    message = p4r.TableAction()
    message.action.action_id = action.id
    for (number, _), value in zip(action.params, call.arguments, strict=True):
        message.action.params.add(param_id=number, value=encode_value(value, action.translations.get(number)))
    return message
