# SPDX-License-Identifier: Apache-2.0
"""Reads what the BMv2 JSON says of copies of a packet and of digests: lists of fields."""

from __future__ import annotations

from gradlane_switch.bmv2_json.document import Node
from gradlane_switch.bmv2_json.expressions import Scope, parse_field, parse_value
from gradlane_switch.ir.expressions import Const, Field
from gradlane_switch.ir.program import Digest, FieldList


class FieldLists:
    """The field lists and the learn lists of a program, and what their ids stand for. Raises ProgramError."""

    def __init__(self, root: Node, scope: Scope) -> None:
        lists, digests = list(root.children("field_lists")), list(root.children("learn_lists"))
        self.field_lists = tuple(FieldList(_fields(item, scope)) for item in lists)
        self.digests = tuple(Digest(item.text("name"), _fields(item, scope)) for item in digests)
        self._list_ids = [item.integer("id") for item in lists]
        self._digest_ids = [item.integer("id") for item in digests]
        self._scope = scope

    def fields(self, node: Node) -> int | None:
        """The index of the field list that a primitive's argument names; None for 0, which keeps nothing."""
        number = self._number(node)
        return None if number == 0 else self._index(node, "field list", self._list_ids, number)

    def kept(self, node: Node) -> int:
        """As `fields`, where 0 has no meaning."""
        found = self.fields(node)
        if found is None:
            raise node.refuse("field list 0 does not exist")
        return found

    def digest(self, node: Node) -> int:
        """The index of the learn list that a primitive's argument names."""
        return self._index(node, "learn list", self._digest_ids, self._number(node))

    def _number(self, node: Node) -> int:
        value = parse_value(node, self._scope)
        if not isinstance(value, Const):
            raise node.refuse("a computed field list is not supported")
        return value.value

    @staticmethod
    def _index(node: Node, kind: str, ids: list[int], number: int) -> int:
        if number not in ids:
            raise node.refuse(f"{kind} {number} does not exist")
        return ids.index(number)


def _fields(node: Node, scope: Scope) -> tuple[Field, ...]:
    result: list[Field] = []
    for item in node.children("elements"):
        if item.text("type") != "field":
            raise item.refuse(f"a {item.text('type')} in the list {node.text('name')} is not supported")
        found = parse_field(item, scope)
        if not isinstance(found, Field):
            raise item.refuse(f"a header's validity in the list {node.text('name')} is not supported")
        result.append(found)
    return tuple(result)
