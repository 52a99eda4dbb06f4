# SPDX-License-Identifier: Apache-2.0
"""Reads the headers of the BMv2 JSON: instances, stacks and unions of them, and the standard metadata."""

from __future__ import annotations

from typing import Any

from gradlane_switch.bmv2_json.document import Node
from gradlane_switch.bmv2_json.expressions import Scope
from gradlane_switch.errors import ProgramError
from gradlane_switch.ir.expressions import MAX_WIDTH, Field
from gradlane_switch.ir.headers import FieldDef, Header, Stack, VarbitField

_MOST_ELEMENTS = 255
_MOST_OCTETS = 2044  # of the longest variable-length field; all headers together have no more


class HeaderReader:
    """The headers of a program, and the scope that their names make. Raises ProgramError."""

    def __init__(self, root: Node) -> None:
        types = {item.text("name"): item for item in root.children("header_types")}
        nodes = list(root.children("headers"))
        self.headers = tuple(_header(item, types[item.text("header_type")]) for item in nodes)
        self._by_id = {item.integer("id"): number for number, item in enumerate(nodes)}
        union_types = {
            item.text("name"): tuple(str(name) for name, _ in item.sequence("headers"))
            for item in root.children("header_union_types")
        }
        union_nodes = list(root.children("header_unions"))
        self.unions = tuple(self._members(item, "header_ids") for item in union_nodes)
        by_union_id = {item.integer("id"): members for item, members in zip(union_nodes, self.unions, strict=True)}
        header_stacks, union_stacks = list(root.children("header_stacks")), list(root.children("header_union_stacks"))
        self.stacks = (
            *(
                Stack(item.text("name"), tuple((header,) for header in self._members(item, "header_ids")), None)
                for item in header_stacks
            ),
            *(
                Stack(
                    item.text("name"),
                    tuple(by_union_id[number] for number in item.sequence("header_union_ids")),
                    union_types[item.text("union_type")],
                )
                for item in union_stacks
            ),
        )
        for item, stack in zip([*header_stacks, *union_stacks], self.stacks, strict=True):
            if not 0 < len(stack.elements) <= _MOST_ELEMENTS:
                size = len(stack.elements)
                raise item.refuse(f"header stack {stack.name} has {size} elements: 1 to {_MOST_ELEMENTS} are supported")
            kinds = {tuple(self._kind(header) for header in element) for element in stack.elements}
            if len(kinds) != 1 or (stack.names is not None and len(stack.names) != len(stack.elements[0])):
                raise item.refuse(f"the elements of header stack {stack.name} are not of one type")
        fields = {
            (header.name, item.name): Field(number, position, item.width, item.signed)
            for number, header in enumerate(self.headers)
            for position, item in enumerate(header.fields)
        }
        self.standard = _standard_metadata(root, fields)
        self._fields = fields
        self._union_names = {item.text("name"): members for item, members in zip(union_nodes, self.unions, strict=True)}

    def scope(self) -> Scope:
        """What names mean in expressions."""
        return Scope(
            self._fields,
            {header.name: number for number, header in enumerate(self.headers)},
            layouts=tuple(
                tuple(Field(number, position, item.width, item.signed) for position, item in enumerate(header.fields))
                for number, header in enumerate(self.headers)
            ),
            variable={
                (header.name, header.variable.name): number
                for number, header in enumerate(self.headers)
                if header.variable
            },
            unions=self._union_names,
            stacks={stack.name: number for number, stack in enumerate(self.stacks)},
            stack_list=self.stacks,
        )

    def _kind(self, header: int) -> tuple[object, ...]:
        """What two headers have in common if they are of the same type."""
        found = self.headers[header]
        return found.metadata, tuple((item.width, item.signed) for item in found.fields), found.variable

    def _members(self, node: Node, key: str) -> tuple[int, ...]:
        members = tuple(self._by_id[number] for number in node.sequence(key))
        if any(self.headers[header].metadata for header in members):
            raise node.refuse(f"metadata in {node.text('name')} is not supported: headers are")
        return members


def _header(node: Node, kind: Node) -> Header:
    name, metadata = node.text("name"), node.flag("metadata")
    fields: list[FieldDef] = []
    variable: VarbitField | None = None
    offset = 0
    for field_name, width, *rest in kind.sequence("fields"):
        if width == "*":
            variable = _variable(kind, f"{name}.{field_name}", field_name, len(fields), variable)
            continue
        _check_width(kind, f"{name}.{field_name}", width)
        fields.append(FieldDef(field_name, width, offset, bool(rest and rest[0])))
        offset += width
    if not metadata and offset % 8:
        raise kind.refuse(f"header {name} has {offset} bits: a whole number of bytes is needed")
    return Header(name, metadata, tuple(fields), variable)


def _check_width(kind: Node, name: str, width: Any) -> None:
    if not isinstance(width, int) or not 0 < width <= MAX_WIDTH:
        raise kind.refuse(f"fields of {width} bits are not supported (1 to {MAX_WIDTH} are): {name}")


def _variable(kind: Node, path: str, name: str, position: int, other: VarbitField | None) -> VarbitField:
    fixed = sum(width for _, width, *_ in kind.sequence("fields") if width != "*")
    octets = kind.integer("max_length") - fixed // 8
    if other is not None:
        raise kind.refuse(f"a header with two variable-length fields is not supported: {path}")
    if not 0 < octets <= _MOST_OCTETS:
        raise kind.refuse(f"a variable-length field of up to {8 * octets} bits is not supported: {path}")
    return VarbitField(name, position, octets)


def _standard_metadata(root: Node, fields: dict[tuple[str, str], Field]) -> dict[str, Field]:
    standard = {name: found for (header, name), found in fields.items() if header == "standard_metadata"}
    for alias, (header, name) in root.sequence("field_aliases"):
        standard[str(alias).rpartition(".")[2]] = fields[header, name]
    for needed in ("ingress_port", "egress_spec", "egress_port"):
        if needed not in standard:
            raise ProgramError(f"the program has no standard_metadata.{needed}: is it a v1model program?")
    for name, field in standard.items():
        if field.width > 64:
            raise ProgramError(f"standard_metadata.{name} has {field.width} bits: is it a v1model program?")
    return standard
