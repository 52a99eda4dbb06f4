# SPDX-License-Identifier: Apache-2.0
"""Entities for people."""

from finsy import (
    P4DigestEntry,
    P4IndirectAction,
    P4MeterConfig,
    P4MeterEntry,
    P4MulticastGroupEntry,
    P4TableAction,
    P4TableEntry,
)

from gradlane_controller.policy import Entity


def describe(entity: Entity) -> tuple[str, str, str]:
    """Its table, its key and what it says."""
    match entity:
        case P4TableEntry(match=match, action=action):
            key = " ".join(f"{name}={_plain(value)}" for name, value in (match or {}).items())
            shown = _describe_action(action)
            if entity.meter_config is not None:
                shown = f"{shown}, {_describe_meter(entity.meter_config)}"
            return entity.table_id, key, shown
        case P4MulticastGroupEntry():
            return "multicast_groups", f"group={entity.multicast_group_id}", f"ports {entity.replicas_str()}"
        case P4MeterEntry(config=config):
            return entity.meter_id, f"index={entity.index}", _describe_meter(config) if config else "default"
        case P4DigestEntry():
            shown = f"lists of {entity.max_list_size}, at most {entity.max_timeout_ns / 1e6:g} ms old"
            return entity.digest_id, "", shown


def _describe_action(action: object) -> str:
    match action:
        case P4TableAction(name=name, args=args):
            return f"{name}({', '.join(f'{key}={_plain(value)}' for key, value in args.items())})"
        case P4IndirectAction(action_set=members):
            return " | ".join(f"{_weight(weight)} x {_describe_action(member)}" for weight, member in members or ())
        case _:
            return "-"


def _weight(weight: int | tuple[int, int]) -> int:
    return weight if isinstance(weight, int) else weight[0]


def _describe_meter(config: P4MeterConfig) -> str:
    return f"CIR=PIR={config.cir}/s, CBS={config.cburst}, PBS={config.pburst}"


def _plain(value: object) -> str:
    return f"{value[0]}-{value[1]}" if isinstance(value, tuple) else str(value)
