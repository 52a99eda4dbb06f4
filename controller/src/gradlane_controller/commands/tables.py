# SPDX-License-Identifier: Apache-2.0
"""Tables for people."""

from collections.abc import Iterable, Mapping
from typing import Any

from gradlane_controller.data_plane import SumEvent


def format_counters(counters: Mapping[str, Any]) -> str:
    """A table for people, of what `Counters.to_json` gives."""
    decisions = [
        (row["switch"], row["job"] or "-", row["reason"], row["queue_class"], row["drop_precedence"], row["packets"],
         row["bytes"])
        for row in counters["decisions"]
    ]  # fmt: skip
    drops = [
        (row["switch"], row["layer"], f"{row['magnitude']}-{row['magnitude'] + 15}", row["packets"], row["bytes"])
        for row in counters["drop_map"]
    ]
    senders = [
        (row["switch"], row["job"] or row["job_id"], row["host"] or "?", row["port"], row["source"], row["packets"],
         row["bytes"])
        for row in counters["senders"]
    ]  # fmt: skip
    sums = [
        (row["switch"], row["job"] or "-", *(row["events"][event.name.lower()] for event in SumEvent))
        for row in counters["sums"]
    ]
    decided = ("switch", "job", "reason", "queue class", "drop precedence", "packets", "bytes")
    parts = [
        format_table("decisions", decided, decisions),
        format_table("taken by the gradient policy", ("switch", "layer", "magnitude", "packets", "bytes"), drops),
        format_table("senders", ("switch", "job", "host", "port", "source", "packets", "bytes"), senders),
    ]
    if sums:
        events = (event.name.lower().replace("_", " ") for event in SumEvent)
        parts.append(format_table("summed, in packets", ("switch", "job", *events), sums))
    if counters["away"]:
        parts.append(f"without those of {', '.join(counters['away'])}, which can't be reached")
    return "\n\n".join(parts)


def format_table(title: str, head: tuple[str, ...], rows: Iterable[tuple[object, ...]]) -> str:
    """A titled table with columns as wide as they need to be; numbers to the right."""
    rows = list(rows)
    if not rows:
        return f"{title}: none"
    columns = list(zip(head, *rows, strict=True))
    widths = [max(len(str(cell)) for cell in column) for column in columns]

    def line(cells: tuple[object, ...]) -> str:
        texts = (
            str(cell).rjust(width) if isinstance(cell, int) else str(cell).ljust(width)
            for cell, width in zip(cells, widths, strict=True)
        )
        return "  " + "  ".join(texts).rstrip()

    return "\n".join((f"{title}:", line(head), *(line(row) for row in rows)))
