# SPDX-License-Identifier: Apache-2.0
"""Reads calculations, checksums, counters, meters, registers and action profiles of the BMv2 JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gradlane_switch.bmv2_json.document import Node
from gradlane_switch.bmv2_json.expressions import Scope, find_field, hex_value, parse_value, require_exact
from gradlane_switch.ir.expressions import MAX_WIDTH, Const, Field, Valid
from gradlane_switch.ir.externs import (
    HASH_ALGORITHMS,
    ActionProfile,
    Calculation,
    CalculationInput,
    Checksum,
    CounterArray,
    DirectMeter,
    MeterArray,
    RegisterArray,
)
from gradlane_switch.ir.headers import Header


class ExternReader:
    """What the program has besides headers, parser, tables and actions. Raises ProgramError."""

    def __init__(self, root: Node, scope: Scope, headers: Sequence[Header]) -> None:
        self._scope = scope
        self._headers = headers
        counters = list(root.children("counter_arrays"))
        self.counters = tuple(
            CounterArray(item.text("name"), item.integer("size")) for item in counters if not item.flag("is_direct")
        )
        self.direct_counters = {item.text("binding") for item in counters if item.flag("is_direct")}
        """Names of the tables that have one."""
        self.calculations = [self._calculation(item, item.text("name")) for item in root.children("calculations")]
        meters = list(root.children("meter_arrays"))
        self.meters = tuple(_meter(item) for item in meters if not item.flag("is_direct"))
        self.direct_meters = tuple(self._direct_meter(item) for item in meters if item.flag("is_direct"))
        self.registers = tuple(_register(item) for item in root.children("register_arrays"))
        self.profiles = tuple(
            self._profile(item)
            for pipeline in root.children("pipelines")
            for item in pipeline.children("action_profiles")
        )
        self.checksums = tuple(self._checksum(item) for item in root.children("checksums"))

    def _calculation(self, node: Node, name: str) -> Calculation:
        algorithm = node.text("algo")
        if algorithm not in HASH_ALGORITHMS:
            raise node.refuse(f"hash algorithm {algorithm!r} is not supported: {', '.join(HASH_ALGORITHMS)} are")
        kinds = [item.text("type") for item in node.children("input")]
        inputs = tuple(found for item in node.children("input") for found in self._inputs(item))
        return Calculation(name, algorithm, inputs, payload="payload" in kinds)

    def _inputs(self, node: Node) -> Iterator[CalculationInput]:
        match node.text("type"):
            case "hexstr":
                width = node.integer("bitwidth")
                if not 0 < width <= MAX_WIDTH:
                    raise node.refuse(f"a constant of {width} bits is not supported (1 to {MAX_WIDTH} are)")
                yield CalculationInput(Const(hex_value(node.text("value"), node) % (1 << width)), width, None)
            case "field":
                yield self._field(node)
            case "header":
                yield from self._header(node)
            case "payload":
                pass
            case kind:
                raise node.refuse(f"{kind} as a calculation's input is not supported")

    def _field(self, node: Node) -> CalculationInput:
        header, name = node.sequence("value")
        if (header, name) in self._scope.variable:
            return CalculationInput(None, 0, self._scope.variable[header, name])
        found = find_field([header, name], node, self._scope)
        if isinstance(found, Valid):
            return CalculationInput(found, 1, found.header)
        return CalculationInput(found, found.width, None if self._headers[found.header].metadata else found.header)

    def _header(self, node: Node) -> Iterator[CalculationInput]:
        name = node.text("value")
        if name not in self._scope.headers:
            raise node.refuse(f"header {name} does not exist")
        number = self._scope.headers[name]
        header = self._headers[number]
        condition = None if header.metadata else number
        for position, item in enumerate(header.fields):
            if header.variable is not None and header.variable.position == position:
                yield CalculationInput(None, 0, number)
            yield CalculationInput(Field(number, position, item.width), item.width, condition)
        if header.variable is not None and header.variable.position == len(header.fields):
            yield CalculationInput(None, 0, number)

    def _checksum(self, node: Node) -> Checksum:
        if node.text("type") != "generic":
            raise node.refuse(f"checksums of type {node.text('type')!r} are not supported")
        target = find_field(node.sequence("target"), node, self._scope)
        if isinstance(target, Valid) or target.width > 64:
            raise node.refuse("a checksum's target is a field of at most 64 bits")
        names = [item.name for item in self.calculations]
        calculation = names.index(node.text("calculation"))
        condition = None
        if node.has("if_cond"):
            condition = require_exact(parse_value(node.child("if_cond"), self._scope), node, "a checksum's condition")
        verify = node.flag("verify") if node.has("verify") else True
        update = node.flag("update") if node.has("update") else True
        return Checksum(target, calculation, verify, update, condition)

    def _direct_meter(self, node: Node) -> DirectMeter:
        _check_rates(node)
        target = find_field(node.sequence("result_target"), node, self._scope)
        if not isinstance(target, Field) or target.width > 64:
            raise node.refuse("a direct meter's target is a field of at most 64 bits")
        return DirectMeter(node.text("name"), node.text("binding"), node.text("type") == "bytes", target)

    def _profile(self, node: Node) -> ActionProfile:
        selector = None
        if node.has("selector"):
            selector = len(self.calculations)
            self.calculations.append(self._calculation(node.child("selector"), f"{node.text('name')}.selector"))
        return ActionProfile(node.text("name"), node.integer("max_size"), selector)


def _check_rates(node: Node) -> None:
    if node.integer("rate_count") != 2:
        raise node.refuse(f"meters of {node.integer('rate_count')} rates are not supported: two-rate meters are")


def _meter(node: Node) -> MeterArray:
    _check_rates(node)
    return MeterArray(node.text("name"), node.integer("size"), node.text("type") == "bytes")


def _register(node: Node) -> RegisterArray:
    width = node.integer("bitwidth")
    if not 0 < width <= MAX_WIDTH:
        raise node.refuse(f"registers of {width} bits are not supported (1 to {MAX_WIDTH} are): {node.text('name')}")
    return RegisterArray(node.text("name"), node.integer("size"), width)
