# SPDX-License-Identifier: Apache-2.0
"""Training without the barrier at the end of the backward pass (ByteScheduler, SOSP 2019; BytePS' cross barrier).

optimizer = gradlane.torch.overlap(model, torch.optim.SGD(model.parameters(), lr=0.1), session)

Gradients leave as the backward pass makes them. `optimizer.step()` returns at once: each layer waits for its own
gradient when the next forward pass comes to it, and is updated just then.
"""

import contextlib
from collections.abc import Callable, Generator, Sequence

import torch

from gradlane.client.handle import Operation
from gradlane.torch import uses
from gradlane.torch.buffers import Buffers
from gradlane.torch.portion import Portion, neighbours
from gradlane.torch.session import Session
from gradlane.torch.wrapped import WrappedOptimizer

BUCKET_BYTES = 1 << 20


class _Used:
    """Which parameters have a gradient at any worker: exact, whatever loss the job tolerates."""

    def __init__(self, session: Session, parameters: Sequence[torch.nn.Parameter]) -> None:
        self._index = {parameter: k for k, parameter in enumerate(parameters)}
        self._tensor = session.exact("flags", parameters, len(parameters), "max")
        self._operation: Operation | None = None

    def start(self) -> None:
        """Sends the others which have one here."""
        self._tensor.contribution[:] = [parameter.grad is not None for parameter in self._index]
        self._operation = self._tensor.submit()

    def close(self) -> None:
        """Gives its memory back."""
        self._tensor.close()

    def __contains__(self, parameter: torch.nn.Parameter) -> bool:
        assert self._operation is not None
        self._operation.wait()
        return bool(self._tensor.result[self._index[parameter]])


class OverlappedOptimizer(WrappedOptimizer):
    """An optimizer whose updates happen layer by layer in the next forward pass. Made by `overlap`."""

    def __init__(
        self,
        model: torch.nn.Module,
        inner: torch.optim.Optimizer,
        session: Session,
        bucket_bytes: int,
        unused_parameters: bool,
        broadcast_buffers: bool,
    ) -> None:
        super().__init__(model, inner)
        self._session = session
        self._paused = False
        self._averaged = False  # synchronize() has been called between backward and step()
        parameters = self._trained()
        session.watch(model)
        session.broadcast([*parameters, *model.buffers()])
        self._portions = [Portion(session.bucket(members)) for members in neighbours(parameters, bucket_bytes)]
        self._portion_of = {p: portion for portion in self._portions for p in portion.parameters}
        self._used = _Used(session, parameters) if unused_parameters else None
        self._buffers = Buffers(model, session, parameters) if broadcast_buffers and parameters else None
        self._ends: list[Callable[[], None]] = [
            parameter.register_post_accumulate_grad_hook(self._accumulated).remove for parameter in parameters
        ]
        self._ends.append(inner.register_state_dict_pre_hook(lambda _: self._settle()).remove)
        self._ends.append(uses.watch(model, self._use, self._use_buffer))
        self._ends.append(session.before_close(self.synchronize))

    # The training loop.

    def step(self, closure: None = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Makes the update due with the options (learning rate ...) of now; it does not wait.

        Raises RuntimeError if gradients are missing, were changed since they were sent, or are of a parameter that was
        frozen.
        """
        if not self._portions:
            raise RuntimeError("this optimizer was closed: go on with the inner one, or call overlap() again")
        if closure is not None:
            raise ValueError("an overlapped optimizer's step takes no closure: call backward() before it")
        if not self._averaged:
            self._complete()
        if self._buffers is not None:
            self._buffers.send()
        if self._averaged:
            self._averaged = False
            for portion in self._portions:
                portion.reset()
            self._inner.step()
            return
        options = [
            {name: value.clone() if isinstance(value, torch.Tensor) else value for name, value in group.items()}
            for group in ({**group, "params": ()} for group in self.param_groups)
        ]
        for portion in self._portions:
            portion.options = options

    def zero_grad(self, set_to_none: bool = True) -> None:
        """As in torch. Gradients that were sent for a step that was not taken are forgotten."""
        for portion in self._portions:
            if portion.options is None:
                if portion.operation is not None:
                    portion.operation.wait()
                portion.reset()
        self._averaged = False
        self._inner.zero_grad(set_to_none)

    @contextlib.contextmanager
    def no_sync(self) -> Generator[None]:
        """Within it, backward() only adds up gradients: for all but the last backward pass of a step."""
        self._paused, before = True, self._paused
        try:
            yield
        finally:
            self._paused = before

    def synchronize(self) -> None:
        """The barrier, where a program needs it.

        Between backward() and step() every gradient becomes the mean over the workers, and may be read and changed
        (clipping, a gradient scaler); step() then updates at once. Else the updates that are due are done, so that the
        parameters may be read anyhow. Raises gradlane.AgentError if the job has failed.
        """
        if self._buffers is not None:
            self._buffers.settle()
        if self._averaged or not any(portion.ready and portion.options is None for portion in self._portions):
            self._settle()
            return
        self._complete()
        with torch.no_grad():
            for portion in self._portions:
                for parameter, mean in self._means(portion):
                    parameter.grad = mean.clone() if parameter.grad is None else parameter.grad.copy_(mean)
        self._averaged = True

    def close(self) -> None:
        """Gives model and optimizer back as they were, up to date."""
        self.synchronize()
        while self._ends:
            self._ends.pop()()
        while self._portions:
            self._session.release(self._portions.pop().bucket)
        if self._used is not None:
            self._used.close()
            self._used = None
        if self._buffers is not None:
            self._buffers.close()
            self._buffers = None

    # Sending.

    def _accumulated(self, parameter: torch.Tensor) -> None:
        """The backward pass has finished a parameter's gradient."""
        assert isinstance(parameter, torch.nn.Parameter)
        portion = self._portion_of[parameter]
        if portion.options is not None:
            raise RuntimeError(
                f"parameter {self._names[parameter]} was used before its update was done: call "
                "optimizer.synchronize() before parameters are used other than through the model"
            )
        if self._paused:
            return
        if parameter in portion.ready:
            raise RuntimeError(
                f"parameter {self._names[parameter]} got a second gradient before optimizer.step(): do all backward "
                "passes of a step but the last within optimizer.no_sync()"
            )
        portion.add(parameter)
        if len(portion.ready) == len(portion.parameters):
            self._session.timed(portion.send())

    def _complete(self) -> None:
        """Sends what the backward pass has not: gradients of earlier passes, and nothing in place of missing ones."""
        self._settle()  # layers that this step did not use
        self._check_frozen(self._portion_of)
        changed = [p for portion in self._portions for p in portion.ready if not portion.holds(p)]
        if changed:
            raise RuntimeError(
                f"the gradient of {self._names[changed[0]]} was changed between backward() and step(), but it had been "
                "sent before: call optimizer.synchronize() between backward() and the change (clipping, GradScaler)"
            )
        missing = [p for p in self._portion_of if p.grad is None]
        if missing and self._used is None:
            raise RuntimeError(
                f"{len(missing)} parameters have no gradient, the first is {self._names[missing[0]]}: freeze them "
                "before overlap(), or pass unused_parameters=True"
            )
        if self._used is not None:
            self._used.start()
        for portion in self._portions:
            if portion.operation is None:
                for parameter in portion.parameters:
                    if parameter.grad is not None:
                        portion.add(parameter)
                self._session.timed(portion.send())

    # Updating.

    def _means(self, portion: Portion) -> list[tuple[torch.nn.Parameter, torch.Tensor]]:
        """Waits for a portion's operation; its parameters with their mean gradients, without those that none uses."""
        assert portion.operation is not None
        portion.operation.wait()
        pairs = zip(portion.parameters, portion.bucket.means(), strict=True)
        return [(p, mean) for p, mean in pairs if self._used is None or p in self._used]

    def _use(self, parameter: torch.nn.Parameter) -> None:
        portion = self._portion_of.get(parameter)
        if portion is not None and portion.options is not None:
            self._update(portion)

    def _use_buffer(self, buffer: torch.Tensor) -> None:
        if self._buffers is not None:
            self._buffers.use(buffer)

    def _settle(self) -> None:
        for portion in self._portions:
            if portion.options is not None:
                self._update(portion)

    def _update(self, portion: Portion) -> None:
        """Waits for the portion's gradients and lets the inner optimizer do its step with these parameters alone."""
        # A forward pass without gradients must not make tensors that a later one can't change.
        with torch.inference_mode(False), torch.no_grad():
            pairs = self._means(portion)
            options = portion.options
            assert options is not None
            groups = [{**group, "params": list[torch.nn.Parameter]()} for group in options]
            elsewhere: list[tuple[torch.nn.Parameter, torch.Tensor | None]] = []
            for parameter, mean in pairs:
                groups[self._group_of[parameter]]["params"].append(parameter)
                if portion.holds(parameter):
                    assert parameter.grad is not None
                    parameter.grad.copy_(mean)
                else:  # zero_grad() has been called since
                    elsewhere.append((parameter, parameter.grad))
                    parameter.grad = mean
            portion.reset()
            whole, self._inner.param_groups = self._inner.param_groups, [group for group in groups if group["params"]]
            try:
                if self._inner.param_groups:
                    self._inner.step()
            finally:
                self._inner.param_groups = whole
                for parameter, gradient in elsewhere:
                    parameter.grad = gradient


def overlap(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    session: Session,
    *,
    bucket_bytes: int = BUCKET_BYTES,
    unused_parameters: bool = False,
    broadcast_buffers: bool = True,
) -> OverlappedOptimizer:
    """Takes the place of DistributedDataParallel and of the optimizer; model and training loop stay as they are.

    All workers begin with rank 0's parameters and buffers. Any optimizer will do that treats its parameters one by one
    (SGD, Adam, AdamW, RMSprop ...; not LBFGS). `bucket_bytes`: neighbouring parameters travel together up to this size;
    a layer waits for its whole bucket. `unused_parameters`: whether a step may leave parameters without a gradient.
    `broadcast_buffers`: after each step all workers go on with rank 0's buffers, which travel meanwhile.
    Raises ValueError for parameters that are not the model's, and for models that are sharded, wrapped in
    DistributedDataParallel or another optimizer's already; gradlane.AgentError.
    """
    return OverlappedOptimizer(model, optimizer, session, bucket_bytes, unused_parameters, broadcast_buffers)
