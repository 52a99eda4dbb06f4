# SPDX-License-Identifier: Apache-2.0
"""`[policy]` of a job file: the tags that the job's slices get, and what becomes of them under congestion."""

from collections.abc import Sequence
from dataclasses import dataclass

from gradlane.toml_file import Table

MAX_LAYER = 65535
MAX_MAGNITUDE = 255
MAX_WEIGHT = 100
MAX_RANGES = 1024  # of layers or magnitudes, as many as a table of the switch holds
HIGHEST_GRADIENT_CLASS = 6  # 7 is the control class, so that no STOP waits behind the incast that it should end


@dataclass(frozen=True)
class QueueClass:
    """Slices of these layers (inclusive range) go to this queue class."""

    layers: tuple[int, int]
    queue_class: int


@dataclass(frozen=True)
class DropPrecedence:
    """Slices of these layers and magnitudes (inclusive ranges) have this drop precedence."""

    layers: tuple[int, int]
    magnitudes: tuple[int, int]
    drop_precedence: int


@dataclass(frozen=True)
class Policy:
    """What the network does with the job's slices; what is not listed is best effort (class 0) and protected.

    `priority` false is the ablation without priorities: every gradient packet has class 0.
    `yellow` and `red` are the lowest drop precedence that is dropped at the first and at the second threshold.
    `weight` is the job's share of a port that several jobs use, relative to theirs. `on_congestion` is what becomes of
    droppable slices: "drop" them, or "trim" them to their headers. `spray` sends the slices of a message over every
    path in turn; without it a flow keeps to one.
    """

    priority: bool
    queue_classes: tuple[QueueClass, ...]
    drop_precedences: tuple[DropPrecedence, ...]
    yellow: int
    red: int
    weight: int
    on_congestion: str
    spray: bool


def parse(table: Table) -> Policy:
    """Takes the table apart. Raises the table's error."""
    policy = Policy(
        priority=table.boolean("priority", True),
        queue_classes=_queue_classes(table.tables("queue_classes", MAX_RANGES)),
        drop_precedences=_drop_precedences(table.tables("drop_precedences", MAX_RANGES)),
        yellow=table.integer("yellow", 1, 7, 2),
        red=table.integer("red", 1, 7, 1),
        weight=table.integer("weight", 1, MAX_WEIGHT, 1),
        on_congestion=table.choice("on_congestion", ("drop", "trim"), "drop"),
        spray=table.boolean("spray", True),
    )
    if policy.yellow < policy.red:
        raise table.error(
            "yellow",
            f"is {policy.yellow}, below red = {policy.red}; the second threshold (red) must drop at least what the "
            "first (yellow) drops, so yellow >= red",
        )
    table.finish()
    return policy


def _queue_classes(tables: Sequence[Table]) -> tuple[QueueClass, ...]:
    rows: list[QueueClass] = []
    for table in tables:
        row = QueueClass(table.span("layers", 0, MAX_LAYER), table.integer("class", 0, HIGHEST_GRADIENT_CLASS))
        table.finish()
        check_disjoint(table, row.layers, [other.layers for other in rows])
        rows.append(row)
    return tuple(rows)


def _drop_precedences(tables: Sequence[Table]) -> tuple[DropPrecedence, ...]:
    rows: list[DropPrecedence] = []
    for table in tables:
        row = DropPrecedence(
            layers=table.span("layers", 0, MAX_LAYER, (0, MAX_LAYER)),
            magnitudes=table.span("magnitudes", 0, MAX_MAGNITUDE),
            drop_precedence=table.integer("drop_precedence", 1, 7),
        )
        table.finish()
        for other in rows:
            if overlap(row.layers, other.layers) and overlap(row.magnitudes, other.magnitudes):
                raise table.error(
                    "magnitudes",
                    f"{list(row.magnitudes)} of layers {list(row.layers)} overlaps {list(other.magnitudes)} of layers "
                    f"{list(other.layers)}; ranges must be disjoint",
                )
        rows.append(row)
    return tuple(rows)


def check_disjoint(table: Table, layers: tuple[int, int], others: Sequence[tuple[int, int]]) -> None:
    """Raises the table's error if its range of `layers` overlaps one of `others`."""
    for other in others:
        if overlap(layers, other):
            raise table.error("layers", f"{list(layers)} overlaps {list(other)}; ranges must be disjoint")


def overlap(a: tuple[int, int], b: tuple[int, int]) -> bool:
    """Whether two inclusive ranges have a number in common."""
    return a[0] <= b[1] and b[0] <= a[1]
