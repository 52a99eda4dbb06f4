# SPDX-License-Identifier: Apache-2.0
"""Graphs of what follows what: parser states, and the nodes of a control flow."""

from __future__ import annotations

from collections.abc import Sequence


def has_loop(graph: Sequence[Sequence[int | None]]) -> bool:
    """Whether a graph has a cycle. It is given as the successors of each node; None is the end."""
    waiting = [0] * len(graph)
    for targets in graph:
        for target in targets:
            if target is not None:
                waiting[target] += 1
    ready = [node for node, count in enumerate(waiting) if count == 0]
    for node in ready:
        for target in graph[node]:
            if target is not None:
                waiting[target] -= 1
                if waiting[target] == 0:
                    ready.append(target)
    return len(ready) < len(graph)
