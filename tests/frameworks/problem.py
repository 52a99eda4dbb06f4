# SPDX-License-Identifier: Apache-2.0
"""What every framework trains: the same model on the same data, from the same start. numpy only."""

import hashlib
import itertools
import json
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

RANKS = 2
STEPS = 20
BATCH = 32  # of each rank
RATE = 0.5
# Of the layers, from the input on. Those of more than a hundred datagrams may lose some.
WIDTHS = tuple(map(int, os.environ.get("WIDTHS", "20 64 48 5").split()))


def examples(rank: int) -> tuple[Any, Any]:
    """A rank's inputs and labels, by step: what a plane says of which side they are on, five times."""
    random = np.random.default_rng(rank)
    planes = np.random.default_rng(77).standard_normal((WIDTHS[0], WIDTHS[-1]))
    inputs = random.standard_normal((STEPS, BATCH, WIDTHS[0]))
    return inputs.astype(np.float32), (inputs @ planes).argmax(-1).astype(np.int32)


def start() -> list[Any]:
    """Weights and biases, from the input on."""
    random = np.random.default_rng(5)
    values: list[Any] = []
    for inputs, outputs in itertools.pairwise(WIDTHS):
        values += [random.standard_normal((inputs, outputs)) / np.sqrt(inputs), np.zeros(outputs)]
    return [value.astype(np.float32) for value in values]


def tell(losses: Sequence[float], parameters: Sequence[Any], **more: Any) -> None:
    """Prints what a test looks at, as the last line: the curve, and what tells replicas apart."""
    digest = hashlib.sha256(b"".join(np.ascontiguousarray(value).tobytes() for value in parameters)).hexdigest()
    print(json.dumps({"losses": list(map(float, losses)), "parameters": digest} | more), flush=True)
