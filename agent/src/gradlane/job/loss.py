# SPDX-License-Identifier: Apache-2.0
"""`[loss]` of a job file: which fraction of a message may be missing, by layer and by phase of the training."""

from collections.abc import Sequence
from dataclasses import dataclass

from gradlane.job.policy import MAX_LAYER, MAX_RANGES, check_disjoint
from gradlane.toml_file import Table

MAX_WINDOW = 1_000_000
MAX_LATE_STEPS = 64  # that are left out
MAX_LATE_SECONDS = 5.0  # well below the least patience of a job


@dataclass(frozen=True)
class LossClass:
    """Tolerated loss of the slices of these layers (inclusive range), as fractions of a message in [0, 1)."""

    layers: tuple[int, int]
    push: float
    pull: float


@dataclass(frozen=True)
class Adaptive:
    """Less loss in critical phases of the training (Accordion, MLSys 2021), by the change of the gradient's norm.

    While the norm changes by more than `threshold` (relative) from one `window` (steps) to the next, the tolerated loss
    is multiplied with `critical`.
    """

    critical: float
    threshold: float
    window: int


@dataclass(frozen=True)
class Late:
    """Who is late is left out of a step: the mean is that of the others, and its contribution is owed to the next one.

    `after`: seconds from when the contributions of half of the workers have begun to come; of any `window` consecutive
    steps of a tensor, a worker is left out of at most `steps`.
    """

    after: float
    steps: int
    window: int


@dataclass(frozen=True)
class Loss:
    """Tolerated loss of a message, as a fraction of its slices, in [0, 1): what holds for layers in none of `classes`.

    `classes` are disjoint and in the order of their layers. These values are ceilings: `adaptive`, if there, lowers
    them at times. A mean is that of what arrived; `error_feedback`: what a lost part differs from it is added to the
    next step's gradient. `late`, if there: means need not wait for workers that are late, whatever else may be lost.
    """

    push: float
    pull: float
    error_feedback: bool
    classes: tuple[LossClass, ...]
    adaptive: Adaptive | None
    late: Late | None = None


def parse(table: Table) -> Loss:
    """Takes the table apart. Raises the table's error."""
    push, pull = table.fraction("push", 0.0), table.fraction("pull", 0.0)
    loss = Loss(
        push=push,
        pull=pull,
        error_feedback=table.boolean("error_feedback", True),
        classes=_classes(table.tables("classes", MAX_RANGES), push, pull),
        adaptive=_adaptive(table.table("adaptive")) if table.has("adaptive") else None,
        late=_late(table.table("late")) if table.has("late") else None,
    )
    table.finish()
    if loss.late is not None and not loss.error_feedback:
        raise table.error("late", "needs error_feedback: the gradient of a worker that is left out would be dropped")
    if loss.late is not None and any(pull > 0 for pull in (loss.pull, *(row.pull for row in loss.classes))):
        raise table.error("late", "needs pull = 0, in all classes: without a result nobody knows what is owed")
    return loss


def _classes(tables: Sequence[Table], push: float, pull: float) -> tuple[LossClass, ...]:
    rows: list[LossClass] = []
    for table in tables:
        row = LossClass(table.span("layers", 0, MAX_LAYER), table.fraction("push", push), table.fraction("pull", pull))
        table.finish()
        check_disjoint(table, row.layers, [other.layers for other in rows])
        rows.append(row)
    return tuple(sorted(rows, key=lambda row: row.layers))


def _adaptive(table: Table) -> Adaptive:
    adaptive = Adaptive(
        critical=table.fraction("critical", 0.1),
        threshold=table.number("threshold", 0.0, 1000.0, 0.5),
        window=table.integer("window", 1, MAX_WINDOW, 10),
    )
    table.finish()
    return adaptive


def _late(table: Table) -> Late:
    window = table.integer("window", 2, MAX_WINDOW, 100)
    late = Late(
        after=table.number("after", 0.0005, MAX_LATE_SECONDS),
        steps=table.integer("steps", 1, min(window - 1, MAX_LATE_STEPS)),
        window=window,
    )
    table.finish()
    return late
