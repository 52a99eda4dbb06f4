# SPDX-License-Identifier: Apache-2.0
"""The models that a process trains, and the means of their gradients."""

import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gradlane.client.connection import Connection
from gradlane.data_parallel.bucket import Bucket, neighbours

Array = npt.NDArray[Any]


class Form(NamedTuple):
    """What a gradient is before it has values. `dtype`: numpy's."""

    shape: tuple[int, ...]
    dtype: Any


class Model:
    """The gradients of a model's variables, in buckets of neighbours, from the model's input on."""

    def __init__(self, connection: Connection, number: int, forms: Sequence[Form | None], bucket_bytes: int) -> None:
        """`forms`: of each variable's gradient; None and empty ones do not travel. Raises ValueError, AgentError."""
        sizes = [0 if form is None else int(np.prod(form.shape, dtype=np.int64)) for form in forms]
        sent = [(place, form) for place, form in enumerate(forms) if form is not None and sizes[place]]
        kinds = [np.dtype(form.dtype) for _, form in sent]
        bytes_of = [sizes[place] * kind.itemsize for (place, _), kind in zip(sent, kinds, strict=True)]
        self.buckets: list[Bucket] = []
        for part in neighbours(kinds, bytes_of, bucket_bytes):
            members = [sent[index] for index in part]
            places, shapes = [place for place, _ in members], [form.shape for _, form in members]
            self.buckets.append(Bucket(connection, number, places, shapes, kinds[part.start]))
        self.places = [place for bucket in self.buckets for place in bucket.places]

    def means(
        self,
        gradients: Sequence[Any],
        start: Callable[[Bucket, list[Any]], Any],
        finish: Callable[[list[Any]], Sequence[Any]],
    ) -> list[Any]:
        """The means over all processes; what does not travel stays as it is. Raises what the callbacks raise.

        `start(bucket, gradients)` calls the bucket's `start`, now or when a graph is run and its gradients are made,
        and returns what stands for its end. The last ones come first, as the backward pass has them first.
        `finish(ends)` calls `finish` or `fill` here, after all of these, and returns the means of `places`. So all
        buckets have left before the first is waited for: no two ranks wait for one another.
        """
        ends = [start(bucket, [gradients[k] for k in bucket.places]) for bucket in reversed(self.buckets)]
        means = list(gradients)
        if ends:
            for place, mean in zip(self.places, finish(ends), strict=True):
                means[place] = mean
        return means

    def means_of_arrays(self, gradients: Sequence[Array | None]) -> list[Array | None]:
        """The same at once. Raises AgentError."""
        return self.means(gradients, Bucket.start, lambda _: self.finish())

    def finish(self) -> list[Array]:
        """The means of `places`: new arrays. Raises AgentError."""
        return [mean for bucket in self.buckets for mean in bucket.finish()]


def _live(owners: Sequence[weakref.ref[Any]]) -> bool:
    return all(owner() is not None for owner in owners)


class Models:
    """Those that were met so far. All processes meet the same ones in the same order: that names their tensors."""

    def __init__(self, connection: Connection, bucket_bytes: int) -> None:
        self._connection = connection
        self._bucket_bytes = bucket_bytes
        self._known: dict[tuple[Any, ...], tuple[list[weakref.ref[Any]], Model]] = {}
        self._met = 0
        self._residuals: dict[str, Array] = {}  # of buckets that are not there yet

    def of(self, owners: Sequence[Any], forms: Sequence[Form | None]) -> Model:
        """That of these owners: its variables, or the optimizer that updates them. Raises ValueError, AgentError."""
        key = (*map(id, owners), *(form is not None for form in forms))
        if key in self._known and _live(self._known[key][0]):
            return self._known[key][1]
        self._forget()
        model = Model(self._connection, self._met, forms, self._bucket_bytes)
        self._met += 1
        self._known[key] = [weakref.ref(owner) for owner in owners], model
        for bucket in model.buckets:
            if (residual := self._residuals.pop(bucket.name, None)) is not None:
                bucket.load_residual(residual)
        return model

    def _forget(self) -> None:
        """Gives back the memory of models that are gone."""
        for key in [key for key, (owners, _) in self._known.items() if not _live(owners)]:
            for bucket in self._known.pop(key)[1].buckets:
                bucket.close()

    def _buckets(self) -> list[Bucket]:
        return [bucket for _, model in self._known.values() for bucket in model.buckets]

    def residuals(self) -> dict[str, Array]:
        """What the network has dropped of this host's gradients and the next step will carry, where there is any."""
        values = {bucket.name: bucket.residual() for bucket in self._buckets()}
        return self._residuals | {name: value for name, value in values.items() if value.any()}

    def load_residuals(self, residuals: dict[str, Array]) -> None:
        """Puts back what `residuals` gave: now, or once the model is met. Raises ValueError, AgentError."""
        self._residuals = dict(residuals)
        for bucket in self._buckets():
            bucket.load_residual(self._residuals.pop(bucket.name, np.zeros_like(bucket.residual())))
