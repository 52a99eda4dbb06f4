# SPDX-License-Identifier: Apache-2.0
"""Who waited for whom: the exchanges of a run as its workers saw them."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Part:
    """What a worker itself knows of an exchange that it took part in: the ranks of its group, when it was ready for it,
    and when it had the result. Seconds after the start of the training."""

    group: tuple[int, ...]
    ready: float
    done: float


@dataclass(frozen=True)
class Exchange:
    """A worker's part in an exchange. Seconds after the start of the training.

    worker: its rank. began: when it had the result of its exchange before, so from then until `ready` it computed.
    complete: when the `last` worker of the group was ready; until then it waited for that one. done: when it had the
    result.
    """

    worker: int
    began: float
    ready: float
    complete: float
    done: float
    last: int


def exchanges(workers: Sequence[Sequence[Part]]) -> tuple[Exchange, ...]:
    """Puts together what the workers know, each of its own parts in order; worker by worker.

    The members of a group come to its exchanges in the same order. What a member has not noted yet, or was not part of
    a step, is left out.
    """
    ready: dict[tuple[tuple[int, ...], int], dict[int, float]] = {}
    numbers: list[list[int]] = []
    for rank, parts in enumerate(workers):
        seen: dict[tuple[int, ...], int] = {}
        numbers.append([])
        for part in parts:
            number = seen.get(part.group, 0)
            seen[part.group] = number + 1
            numbers[rank].append(number)
            ready.setdefault((part.group, number), {})[rank] = part.ready
    found: list[Exchange] = []
    for rank, parts in enumerate(workers):
        began = 0.0
        for part, number in zip(parts, numbers[rank], strict=True):
            others = ready[part.group, number]
            last = max(others, key=lambda member: others[member])
            complete = min(max(part.ready, others[last]), part.done)
            found.append(Exchange(rank, began, part.ready, complete, part.done, last))
            began = part.done
    return tuple(found)


def waited(found: Sequence[Exchange], workers: int) -> list[list[float]]:
    """Seconds that each worker (row) has waited for each other one (column) to be ready."""
    table = [[0.0] * workers for _ in range(workers)]
    for it in found:
        table[it.worker][it.last] += it.complete - it.ready
    return table


@dataclass(frozen=True)
class Awaited:
    """The worker that the others waited for most, and the share of their time that they waited for it."""

    worker: int
    share: float


def most_awaited(found: Sequence[Exchange], workers: int, seconds: float) -> Awaited | None:
    """In a run of so many `seconds`; None if nobody waited."""
    columns = [sum(column) for column in zip(*waited(found, workers), strict=True)]
    worst = max(range(workers), key=lambda rank: columns[rank])
    if not columns[worst] or not seconds:
        return None
    return Awaited(worst, columns[worst] / (seconds * (workers - 1)))
