# SPDX-License-Identifier: Apache-2.0
"""Small BMv2 JSON programs, written by hand, for one feature each.

Every program parses one header `h`, runs a chain of tables on it, and deparses it.
"""

import copy
import json
from typing import Any

from finsy.proto import p4i, p4r

from gradlane_switch import Switch
from gradlane_switch.state.pipeline import Pipeline
from gradlane_switch.state.program_state import Lock

Json = dict[str, Any]

STANDARD = [
    ("ingress_port", 9),
    ("egress_spec", 9),
    ("egress_port", 9),
    ("instance_type", 32),
    ("packet_length", 32),
    ("enq_timestamp", 32),
    ("enq_qdepth", 19),
    ("deq_timedelta", 32),
    ("deq_qdepth", 19),
    ("ingress_global_timestamp", 48),
    ("egress_global_timestamp", 48),
    ("mcast_grp", 16),
    ("egress_rid", 16),
    ("checksum_error", 1),
    ("parser_error", 32),
    ("priority", 3),
]


def field(header: str, name: str) -> Json:
    return {"type": "field", "value": [header, name]}


def const(value: int) -> Json:
    return {"type": "hexstr", "value": hex(value)}


def param(index: int) -> Json:
    return {"type": "runtime_data", "value": index}


def expression(op: str, left: Json | None, right: Json | None, cond: Json | None = None) -> Json:
    inner: Json = {"op": op, "left": left, "right": right}
    if cond is not None:
        inner["cond"] = cond
    return {"type": "expression", "value": {"type": "expression", "value": inner}}


def assign(target: Json, value: Json) -> Json:
    return {"op": "assign", "parameters": [target, value], "source_info": {"filename": "small.p4", "line": 7}}


def action(number: int, name: str, widths: list[int], *primitives: Json) -> Json:
    runtime_data = [{"name": f"p{index}", "bitwidth": width} for index, width in enumerate(widths)]
    return {"name": name, "id": number, "runtime_data": runtime_data, "primitives": list(primitives)}


def table(
    number: int,
    name: str,
    keys: list[tuple[str, Json]],
    actions: list[Json],
    default: Json,
    arguments: tuple[int, ...] = (),
    following: str | None = None,
) -> Json:
    kinds = {kind for kind, _ in keys}
    kind = next((kind for kind in ("range", "ternary", "lpm") if kind in kinds), "exact")
    return {
        "name": name,
        "id": number,
        "source_info": {"filename": "small.p4", "line": 11},
        "key": [
            {"match_type": kind, "name": f"k{index}", "target": key["value"], "mask": None}
            for index, (kind, key) in enumerate(keys)
        ],
        "match_type": kind,
        "type": "simple",
        "max_size": 64,
        "with_counters": False,
        "support_timeout": False,
        "direct_meters": None,
        "action_ids": [item["id"] for item in actions],
        "actions": [item["name"] for item in actions],
        "next_tables": {item["name"]: following for item in actions},
        "default_entry": {
            "action_id": default["id"],
            "action_const": False,
            "action_data": [hex(value) for value in arguments],
            "action_entry_const": False,
        },
    }


def program(fields: list[tuple[str, int]], actions: list[Json], tables: list[Json], **parts: Any) -> Json:
    """A program whose ingress is a chain of tables. `parts` replaces whole sections of the document."""
    document: Json = {
        "__meta__": {"version": [2, 23]},
        "header_types": [
            {"name": "scalars_0", "id": 0, "fields": [["m0", 64, False], ["color", 2, False]]},
            {"name": "standard_metadata", "id": 1, "fields": [[name, width, False] for name, width in STANDARD]},
            {"name": "h_t", "id": 2, "fields": [[name, width, False] for name, width in fields]},
        ],
        "headers": [
            {"name": "scalars", "id": 0, "header_type": "scalars_0", "metadata": True},
            {"name": "standard_metadata", "id": 1, "header_type": "standard_metadata", "metadata": True},
            {"name": "h", "id": 2, "header_type": "h_t", "metadata": False},
        ],
        "header_stacks": [],
        "header_unions": [],
        "header_union_stacks": [],
        "errors": [["NoError", 0], ["PacketTooShort", 1], ["NoMatch", 2]],
        "parsers": [
            {
                "name": "parser",
                "id": 0,
                "init_state": "start",
                "parse_states": [
                    {
                        "name": "start",
                        "id": 0,
                        "parser_ops": [{"op": "extract", "parameters": [{"type": "regular", "value": "h"}]}],
                        "transition_key": [],
                        "transitions": [{"type": "default", "value": None, "mask": None, "next_state": None}],
                    }
                ],
            }
        ],
        "parse_vsets": [],
        "deparsers": [{"name": "deparser", "id": 0, "order": ["h"], "primitives": []}],
        "meter_arrays": [],
        "counter_arrays": [],
        "register_arrays": [],
        "calculations": [],
        "learn_lists": [],
        "actions": actions,
        "pipelines": [
            {
                "name": "ingress",
                "id": 0,
                "init_table": tables[0]["name"] if tables else None,
                "tables": tables,
                "action_profiles": [],
                "conditionals": [],
            },
            {
                "name": "egress",
                "id": 1,
                "init_table": None,
                "tables": [],
                "action_profiles": [],
                "conditionals": [],
            },
        ],
        "checksums": [],
        "extern_instances": [],
        "field_aliases": [],
    }
    document.update(parts)
    return copy.deepcopy(document)


SEND = assign(field("standard_metadata", "egress_spec"), const(1))


def p4info(document: Json) -> Any:
    """A P4Info for the tables of ingress that have keys, with ids that count up in order."""
    info = p4i.P4Info()
    ids: dict[str, int] = {}
    for number, item in enumerate(document["actions"], 1):
        ids[item["name"]] = 0x01000000 + number
        found = info.actions.add()
        found.preamble.id, found.preamble.name = ids[item["name"]], item["name"]
        for index, data in enumerate(item["runtime_data"], 1):
            found.params.add(id=index, name=data["name"], bitwidth=data["bitwidth"])
    widths = {
        (header["name"], name): width
        for header in document["headers"]
        for kind in document["header_types"]
        if kind["name"] == header["header_type"]
        for name, width, _ in kind["fields"]
    }
    for number, item in enumerate(document["pipelines"][0]["tables"], 1):
        if not item["key"]:
            continue
        found = info.tables.add(size=item["max_size"])
        found.preamble.id, found.preamble.name = 0x02000000 + number, item["name"]
        for index, key in enumerate(item["key"], 1):
            kind = p4i.MatchField.MatchType.Value(key["match_type"].upper())
            found.match_fields.add(id=index, name=key["name"], bitwidth=widths[tuple(key["target"])], match_type=kind)
        for name in item["actions"]:
            found.action_refs.add(id=ids[name])
    for number, item in enumerate(document["meter_arrays"], 1):
        found = info.meters.add(size=item["size"])
        found.preamble.id, found.preamble.name = 0x15000000 + number, item["name"]
    for number, item in enumerate(document["register_arrays"], 1):
        found = info.registers.add(size=item["size"])
        found.preamble.id, found.preamble.name = 0x16000000 + number, item["name"]
        found.type_spec.bitstring.bit.bitwidth = item["bitwidth"]
    for number, item in enumerate(document["counter_arrays"], 1):
        found = info.counters.add(size=item["size"])
        found.preamble.id, found.preamble.name = 0x12000000 + number, item["name"]
        found.spec.unit = p4i.CounterSpec.BOTH
    return info


def load(document: Json) -> Switch:
    return Switch(Pipeline(json.dumps(document).encode(), p4info(document), Lock()))


def encode(value: int) -> bytes:
    return value.to_bytes(max(1, (value.bit_length() + 7) // 8), "big")


def entry(number: int, match: list[Any], action_number: int, arguments: tuple[int, ...] = (), priority: int = 0) -> Any:
    """A table entry by the numbers that `p4info` gives: tables, fields, actions and parameters count from 1."""
    message = p4r.TableEntry(table_id=0x02000000 + number, match=match, priority=priority)
    message.action.action.action_id = 0x01000000 + action_number
    for index, value in enumerate(arguments, 1):
        message.action.action.params.add(param_id=index, value=encode(value))
    return p4r.Entity(table_entry=message)
