# SPDX-License-Identifier: Apache-2.0
"""Training data that is on the machine already: nothing is downloaded, every run sees the same examples."""

import gzip
import importlib.util
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

SPLIT_SEED = 0  # the split into training and test examples is part of the task, not of a run
CONTEXT = 32  # bytes that the language model sees


@dataclass(frozen=True)
class Dataset:
    """Examples and their targets, (n, ...) arrays that go together by the first axis."""

    train_inputs: NDArray[np.generic]
    train_targets: NDArray[np.int64]
    test_inputs: NDArray[np.generic]
    test_targets: NDArray[np.int64]


class Sampler:
    """Which training examples a worker takes in a step: a pure function of seed, rank and step.

    All workers walk through one shuffled order of the examples, a new one each epoch, `batch` at a time.
    """

    def __init__(self, examples: int, batch: int, rank: int, world: int, seed: int) -> None:
        self._examples = examples
        self._batch = batch
        self._rank = rank
        self._world = world
        self._seed = seed
        self._orders: dict[int, NDArray[np.int64]] = {}

    def indices(self, step: int) -> NDArray[np.int64]:
        """The (batch,) indices of the examples of that step."""
        first = (step * self._world + self._rank) * self._batch
        positions = np.arange(first, first + self._batch)
        epochs, offsets = np.divmod(positions, self._examples)
        return np.array([self._order(int(e))[o] for e, o in zip(epochs, offsets, strict=True)])

    def _order(self, epoch: int) -> NDArray[np.int64]:
        order = self._orders.get(epoch)
        if order is None:
            self._orders.pop(epoch - 2, None)
            order = np.random.default_rng([self._seed, epoch]).permutation(self._examples)
            self._orders[epoch] = order
        return order


def digits() -> Dataset:
    """scikit-learn's 1797 handwritten digits: (n, 1, 8, 8) float32 in [0, 1] and the digit; 360 are the test set.

    The file is read from the installed package without importing it, which would cost each worker seconds.
    Raises FileNotFoundError if scikit-learn is not installed.
    """
    package = importlib.util.find_spec("sklearn")
    if package is None or package.origin is None:
        raise FileNotFoundError("the digits data set ships with scikit-learn, which is not installed: pip install it")
    path = Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz"
    with gzip.open(path) as file:
        table = np.loadtxt(file, delimiter=",", dtype=np.float32)
    order = np.random.default_rng(SPLIT_SEED).permutation(len(table))
    inputs = (table[order, :64] / 16).reshape(-1, 1, 8, 8)
    targets = table[order, 64].astype(np.int64)
    return Dataset(inputs[360:], targets[360:], inputs[:360], targets[:360])


def language_reference() -> Dataset:
    """Python's own language reference (the text of `help()`), cut into windows of CONTEXT bytes.

    Inputs are (n, CONTEXT) int64 bytes, targets the bytes that follow each of them. The last tenth of the text is held
    out, and 128 windows spread over it are the test set.
    """
    from pydoc_data import topics  # large, and only this model needs it

    texts: dict[str, str] = topics.topics
    text = np.frombuffer("\n".join(texts[name] for name in sorted(texts)).encode(), np.uint8)
    count = (len(text) - 1) // CONTEXT
    inputs = text[: count * CONTEXT].reshape(count, CONTEXT).astype(np.int64)
    targets = text[1 : count * CONTEXT + 1].reshape(count, CONTEXT).astype(np.int64)
    cut = count * 9 // 10
    held_out = np.linspace(cut, count - 1, 128).astype(np.int64)
    return Dataset(inputs[:cut], targets[:cut], inputs[held_out], targets[held_out])
