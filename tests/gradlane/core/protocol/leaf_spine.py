# SPDX-License-Identifier: Apache-2.0
"""fabric_model's hosts at the leaves of a leaf-spine: their slices are sprayed, or keep to one spine by a hash."""

import functools
import random
from collections.abc import Callable

from tests.gradlane.core.protocol.fabric_model import Model
from tests.gradlane.core.protocol.queued_port import Port

LEAVES, HOSTS, SPINES = 4, 2, 2  # hosts: at a leaf

Hash = Callable[[int, int], int]  # of a flow, by its two hosts


def leaf_spine(rate: int, buffer: int, flow_hash: Hash, *, sprayed: bool) -> Model:
    """All links have that rate (bit/s), all ports that buffer (bytes) and marks at a quarter of it."""
    mark = buffer // 4
    model = Model(LEAVES * HOSTS, rate, buffer, mark)
    up, down = ([[Port(rate / 8e6, buffer, mark) for _ in range(SPINES)] for _ in range(LEAVES)] for _ in range(2))
    for a in range(LEAVES * HOSTS):
        for b in range(LEAVES * HOSTS):
            if a // HOSTS != b // HOSTS:
                paths = zip(up[a // HOSTS], down[b // HOSTS], strict=True)
                model.split(list(paths), [a], [b], functools.partial(_path, flow_hash(a, b), sprayed))
    return model


def _path(number: int, sprayed: bool, way: int, count: int) -> int:
    """As p4src/v1model/routing.p4 chooses: what has no way is sprayed in turn."""
    return number + (way or count if sprayed else 0)


def even_hash(seed: int) -> Hash:
    """Of each pair of leaves half of the flows keep to either spine: as lucky as a hash can be."""
    chance = random.Random(seed)
    of_leaves = [[chance.randrange(2) for _ in range(LEAVES)] for _ in range(LEAVES)]
    return lambda a, b: a + b + of_leaves[a // HOSTS][b // HOSTS]


def random_hash(seed: int) -> Hash:
    """Whatever comes."""
    chance = random.Random(seed)
    numbers = [[chance.randrange(1 << 16) for _ in range(LEAVES * HOSTS)] for _ in range(LEAVES * HOSTS)]
    return lambda a, b: numbers[a][b]
