# SPDX-License-Identifier: Apache-2.0
"""ACCO (arXiv 2406.02613) with any optimizer: gradients are accumulated while those of the other half travel."""

import copy
import inspect
from collections.abc import Sequence
from typing import Any

import torch

from gradlane.client.handle import Operation
from gradlane.errors import AgentError
from gradlane.sync.acco import first_half
from gradlane.sync.block import OWED
from gradlane.torch.bucket import Bucket
from gradlane.torch.portion import neighbours
from gradlane.torch.synchronised import STATE, SynchronisedOptimizer


class AccumulatedOptimizer(SynchronisedOptimizer):
    """An optimizer that updates with the workers' mean gradients of two steps, one step late. Made by `synchronise`.

    A round is two steps. After the first one the parameters are an estimate, by an update that is taken back before
    that with the gradients of both. `gradients`: of how many the next step's gradient is the mean, relative to the
    other workers' and steps' (1); it may be changed before each step.

    Memory: between the two steps a copy of the parameters and of the optimizer's state, and one gradient.
    """

    gradients: float = 1.0

    def __init__(self, model: torch.nn.Module, inner: torch.optim.Optimizer, *arguments: Any) -> None:
        closure = inspect.signature(inner.step).parameters.get("closure")
        if closure is not None and closure.default is inspect.Parameter.empty:
            raise ValueError(f"{type(inner).__name__} computes gradients itself, which acco can't accumulate")
        self._buckets: list[Bucket] = []
        self._steps = 0  # since there was nothing in flight
        self._due: list[Operation] | None = None
        self._before: tuple[list[torch.Tensor], dict[Any, Any]] | None = None  # what the estimate began with
        self._half: tuple[list[torch.Tensor], float] | None = None  # of the first half: means, and their weight
        super().__init__(model, inner, *arguments)
        self._counts = self._session.connection.empty(1, "float64")
        self._everyone = self._session.connection.group(label="gradlane.acco")

    @property
    def group(self) -> tuple[int, ...]:
        """All ranks, once there was a step."""
        return self._everyone.ranks if self._worker.step else ()

    def step(self, closure: Any = None) -> None:
        """Waits for the gradients of the step before, updates the parameters, and starts the exchange of this step's.

        Raises ValueError if the workers follow different schemes, RuntimeError for a gradient of a parameter that was
        frozen; gradlane.AgentError.
        """
        self._check_open()
        if closure is not None:
            raise ValueError("with acco step takes no closure: call backward() before it")
        self._check_frozen(self._exchanged)
        count = self.gradients if self._unscaled() else 0.0
        if not 0 <= count < float("inf"):
            raise ValueError(f"gradients is {count}: it must be finite, and not negative")
        self._update()
        exchanges = self._worker.next()
        self._send(count)
        self._settle(self._worker.step)
        self._exchange(exchanges)

    def synchronize(self) -> None:
        """After a whole round finishes it, so that model and optimizer have the update with its gradients."""
        if self._whole():
            self._update()
        super().synchronize()

    def average(self) -> None:
        """Updates with the gradients in flight, and gives all workers rank 0's parameters, from which losses of results
        may have taken others away, and the mean of their statistics. All workers call it. A new round begins."""
        self._check_open()
        self._finish()
        super().average()
        self._session.broadcast([p.detach() for bucket in self._buckets for p in bucket.parameters])

    def state_dict(self) -> dict[str, Any]:
        """See SynchronisedOptimizer; after a whole round, which it finishes. Raises RuntimeError at other times."""
        self._check_open()
        if not self._whole():
            raise RuntimeError("the model has an estimate: save it after an even number of steps, or call average()")
        self.synchronize()
        state = super().state_dict()
        state[STATE][OWED] = self._owed()
        return state

    def close(self) -> None:
        """See SynchronisedOptimizer; updates with the gradients in flight before."""
        if self._ends:
            self._finish()
        super().close()
        while self._buckets:
            self._session.release(self._buckets.pop())

    def _divide(self, parameters: Sequence[torch.nn.Parameter], most: int) -> None:
        self._buckets = [self._session.bucket(members) for members in neighbours(parameters, most)]

    def _whole(self) -> bool:
        return self._steps % 2 == 0

    def _send(self, count: float) -> None:
        """Starts the sums of all workers' gradients, each times its number, and of these numbers."""
        self._counts[:] = count
        with torch.no_grad():
            self._due = [
                self._session.connection.collective(
                    "all_reduce", self._counts, self._counts, "mean", group=self._everyone
                )
            ]
            for bucket in self._buckets:
                sent = [p.grad if count else None for p in bucket.parameters]
                if count not in (0, 1):
                    sent = [None if gradient is None else gradient * count for gradient in sent]
                self._due.append(self._session.timed(bucket.start(sent)))
        self._steps += 1

    def _update(self) -> None:
        """With the gradients in flight: an estimate, or with those of both halves what takes its place."""
        if self._due is None:
            return
        self._wait(self._due)
        count = float(self._counts[0])
        with torch.inference_mode(False), torch.no_grad():
            means = [mean for bucket in self._buckets for mean in bucket.means()]
            if first_half(self._steps - 1):
                self._half = [mean.clone() for mean in means], count
                state = {p: copy.deepcopy(values) for p, values in self._inner.state.items()}
                self._before = [p.detach().clone() for p in self._parameters()], state
                self._apply(means, count)
                return
            assert self._half is not None
            assert self._before is not None
            (first, before), self._half = self._half, None
            (values, state), self._before = self._before, None
            for parameter, value in zip(self._parameters(), values, strict=True):
                parameter.copy_(value)
            self._inner.state.clear()
            self._inner.state.update(state)
            self._apply([a.add_(b) for a, b in zip(first, means, strict=True)], before + count)

    def _wait(self, due: list[Operation]) -> None:
        """Until nothing is in flight."""
        try:
            for operation in due:
                operation.wait()  # which other exceptions may end, as of Ctrl-C: all stay in flight
        except AgentError:
            self._due = None
            raise
        self._due = None

    def _apply(self, sums: Sequence[torch.Tensor], count: float) -> None:
        """A step of the inner optimizer with the sums divided by `count`; none if no worker has finite gradients."""
        if not count:
            return
        own = [p.grad for p in self._parameters()]
        for parameter, total in zip(self._parameters(), sums, strict=True):
            parameter.grad = total / count
        try:
            self._inner.step()
        finally:
            for parameter, gradient in zip(self._parameters(), own, strict=True):
                parameter.grad = gradient

    def _finish(self) -> None:
        """Updates with what is in flight, and what that makes of the parameters counts; then nothing is."""
        self._update()
        self._begin()

    def _discard(self) -> None:
        if self._due is not None:
            self._wait(self._due)
        self._begin()
        super()._discard()

    def _begin(self) -> None:
        """A new round."""
        self._steps = 0
        self._half = self._before = None

    def _owed(self) -> dict[str, torch.Tensor]:
        """What the network owes to later gradients of this host, by the parameter's name; its process 0 has it."""
        if self._session.connection.process:
            return {}
        values = [value for bucket in self._buckets for value in bucket.residuals()]
        return {self._names[p]: value for p, value in zip(self._parameters(), values, strict=True) if value.any()}

    def _check_state(self, state: dict[str, Any]) -> None:
        super()._check_state(state)
        sizes = {self._names[p]: p.numel() for p in self._parameters()}
        for name, value in state[OWED].items():
            if sizes.get(name, 0) != value.numel():
                here = f"it has {sizes[name]} here" if name in sizes else "the model has no such parameter"
                raise ValueError(f"{OWED} of this state has {value.numel()} elements for {name}: {here}")

    def _restore(self, state: dict[str, Any]) -> None:
        super()._restore(state)
        if self._session.connection.process:
            return
        owed = state[OWED] if self._worker.is_own(state) else {}
        for bucket in self._buckets:
            none = [torch.zeros(p.numel(), dtype=p.dtype) for p in bucket.parameters]
            bucket.load_residuals(
                [owed.get(self._names[p], zero) for p, zero in zip(bucket.parameters, none, strict=True)]
            )

    def _parameters(self) -> list[torch.nn.Parameter]:
        return [p for bucket in self._buckets for p in bucket.parameters]
