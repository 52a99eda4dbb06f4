# SPDX-License-Identifier: Apache-2.0
"""Who averages with whom: schedules of disjoint groups, step by step, so that soon all have mixed with all; and graphs
for schemes without groups."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

Places = tuple[int, ...]  # of workers, ascending
Partition = tuple[Places, ...]  # disjoint groups that cover all workers


@dataclass(frozen=True)
class Schedule:
    """Partitions of the workers 0 to size - 1, of which each step has the next; after the last comes the first."""

    size: int
    partitions: tuple[Partition, ...]

    def group(self, step: int, worker: int) -> Places:
        """With whom a worker averages in a step; alone with itself where it has no partner."""
        return self._groups[step % len(self.partitions)][worker]

    def groups(self, worker: int) -> list[Places]:
        """Every group that a worker is ever in, without that of itself alone."""
        found = {groups[worker] for groups in self._groups}
        return sorted(group for group in found if len(group) > 1)

    @cached_property
    def period(self) -> int:
        """The steps, from any one on, in which what one worker has reaches every other: the product of their mixing
        matrices is doubly stochastic, and none of its entries is 0. Raises ValueError if there is no such number."""
        reaches = [mixing_matrix(partition, self.size) > 0 for partition in self.partitions]
        return max(self._mixed(reaches, start) for start in range(len(reaches)))

    def _mixed(self, reaches: Sequence[npt.NDArray[np.bool_]], start: int) -> int:
        reached = np.eye(self.size, dtype=bool)
        for steps in range(1, self.size * len(reaches) + 1):
            reached = reaches[(start + steps - 1) % len(reaches)] @ reached
            if reached.all():
                return steps
        raise ValueError("some workers never hear of one another")

    @cached_property
    def _groups(self) -> list[dict[int, Places]]:
        return [{worker: group for group in partition for worker in group} for partition in self.partitions]


def mixing_matrix(partition: Partition, size: int) -> npt.NDArray[np.float64]:
    """Row i: the weights of all workers' values in what worker i has after the groups have averaged."""
    matrix = np.zeros((size, size))
    for group in partition:
        matrix[np.ix_(group, group)] = 1 / len(group)
    return matrix


def grid(size: int) -> Schedule:
    """The rows of a grid, then its columns: with a full grid two steps are an exact all-reduce.

    Each worker sends 2(g - 1)/g of its parameters in a group of g, about the root of `size`. The grid is full where
    `size` has factors of which one is at most twice the other; else the last row is not, and a third step is needed.
    """
    width = next((size // g for g in range(math.isqrt(size), 0, -1) if size % g == 0 and size <= 2 * g * g), None)
    if width is None:
        width = math.isqrt(size - 1) + 1
    rows = [range(start, min(start + width, size)) for start in range(0, size, width)]
    columns = [range(start, size, width) for start in range(width)]
    return _schedule(size, [rows, columns] if len(rows) > 1 else [rows])


def pairs(size: int) -> Schedule:
    """Each worker has floor(log2 size) partners in turn, and all have mixed in about log2 size steps.

    Each worker sends its parameters once in a step, the least there can be. The pairs are a hypercube's edges where
    `size` is a power of two: then a period is an exact all-reduce. Else they are a Knödel graph's, which hears all in
    as few steps. Of an odd number of workers one makes a pair a group of three, in each step another pair.
    """
    half = size // 2
    if not half:
        return _schedule(size, [[range(size)]])
    steps = range(size.bit_length() - 1)
    if size & (size - 1) == 0:
        return _schedule(size, [[(k, k ^ 1 << step) for k in range(size) if not k & 1 << step] for step in steps])
    # Worker k and half + k are the two sides of the graph; its edges of one dimension are a perfect matching.
    matchings = [[[k, half + (k + 2**step - 1) % half] for k in range(half)] for step in steps]
    if size % 2:
        for step, matching in enumerate(matchings):
            matching[step % half].append(size - 1)
    return _schedule(size, matchings)


def bipartite(size: int) -> list[Places]:
    """By place, the neighbours in a connected graph between the even places and the odd ones; about log2(size) each.

    With one worker there are none.
    """
    odd = size // 2
    neighbours: list[set[int]] = [set() for _ in range(size)]
    for k in range((size + 1) // 2):
        for distance in range(odd.bit_length()):
            other = 2 * ((k + 2**distance - 1) % odd) + 1
            neighbours[2 * k].add(other)
            neighbours[other].add(2 * k)
    return [tuple(sorted(places)) for places in neighbours]


def exponential(size: int) -> list[Places]:
    """By place, to whom a worker sends in a directed graph: the places 1, 2, 4 ... further on.

    Each hears of each within log2(size) hops on several ways, so nobody in between can hold up the news. As many come
    in as go out, so equal weights are doubly stochastic.
    """
    return [tuple((place + (1 << k)) % size for k in range((size - 1).bit_length())) for place in range(size)]


def _schedule(size: int, partitions: Iterable[Iterable[Iterable[int]]]) -> Schedule:
    made = (tuple(tuple(sorted(group)) for group in partition) for partition in partitions)
    return Schedule(size, tuple(made))


SCHEDULES: dict[str, Callable[[int], Schedule]] = {"grid": grid, "pairs": pairs}
