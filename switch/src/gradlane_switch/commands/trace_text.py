# SPDX-License-Identifier: Apache-2.0
"""A traced packet for people to read."""

from __future__ import annotations

from typing import Any

from gradlane_switch.dataplane.tracing import Event

_LONGEST_VALUE = 32  # digits


def text(packet: dict[str, Any]) -> str:
    """A traced packet for people, a line for each event."""
    seconds = packet["time"] / 1e9
    lines = [f"packet of {packet['length']} bytes at port {packet['port']}, {seconds:.6f} s"]
    return "\n".join([*lines, *(f"  {_line(event)}" for event in packet["events"])])


def _line(event: Event) -> str:
    match event["event"]:
        case "state":
            return f"parser state {event['name']}"
        case "parsed":
            return f"parser ended after {event['bytes']} bytes: {event['error']}"
        case "condition":
            return f"condition at {event['source'] or '?'}: {'true' if event['holds'] else 'false'}"
        case "table":
            return f"table {event['name']}{_pairs(event['key'])}: {_outcome(event)}"
        case "action":
            return f"  action {event['name']}{_pairs(event['data'])}"
        case "counter":
            return f"  counter {event['name']}[{event['index']:#x}]"
        case "meter":
            return f"  meter {event['name']}[{event['index']}]: {event['colour']}"
        case "register":
            done = "read" if "read" in event else "written"
            return f"  register {event['name']}[{event['index']}] {done}: {_cut(event[done])}"
        case "egress":
            return f"egress for port {event['port']}"
        case "clone":
            return f"clone to session {event['session']}: {event['copies']} copies"
        case "multicast":
            return f"multicast to group {event['group']}: {event['copies']} copies"
        case "digest":
            return f"digest {event['name']}"
        case "dropped":
            where = f" (port {event['port']}, queue {event['queue']})" if "port" in event else ""
            return f"dropped: {event['reason']}{where}"
        case "queued":
            return (
                f"queued at port {event['port']}, queue {event['queue']}: {event['length']} bytes; "
                f"the queue has {event['queue_bytes']}, the port {event['port_bytes']}"
            )
        case "dequeued":
            return f"leaves queue {event['queue']} of port {event['port']} after {event['waited'] / 1e3:g} us"
        case "sent":
            shown = f": {event['bytes']}" if "bytes" in event else ""
            return f"sent to port {event['port']}, queue {event['queue']}: {event['length']} bytes{shown}"
        case "packet-in":
            return f"to the controller: {event['length']} bytes"
        case other:
            return str(other)


def _cut(value: str) -> str:
    """Of long ones, which are data, the end."""
    return value if len(value) <= _LONGEST_VALUE else f"...{value[-_LONGEST_VALUE:]}"


def _pairs(values: dict[str, str]) -> str:
    return f" ({', '.join(f'{name} = {value}' for name, value in values.items())})" if values else ""


def _outcome(event: Event) -> str:
    if not event["hit"]:
        return "miss"
    entry = event["entry"]
    if entry is None:
        return "hit, an entry that is gone"
    priority = f", priority {entry['priority']}" if "priority" in entry else ""
    return f"hit{_pairs(entry['match'])}{priority}"
