# SPDX-License-Identifier: Apache-2.0
"""Training by a scheme of gradlane.sync: local steps, and averages of parameters without a global step.

`optimizer.step()` is a local one, and starts the exchange that the scheme wants after it. Each layer waits for its own
part when the next forward pass comes to it.
"""

import contextlib
from collections.abc import Callable, Generator, Sequence
from typing import Any

import torch

from gradlane.client.connection import Group
from gradlane.sync.block import Block
from gradlane.sync.scheme import Exchange, Scheme
from gradlane.sync.worker import Worker
from gradlane.torch import uses
from gradlane.torch.parcel import Parcel, travels_as
from gradlane.torch.portion import alike, neighbours
from gradlane.torch.session import Session
from gradlane.torch.shared import as_array
from gradlane.torch.wrapped import WrappedOptimizer

STATE = "synchronisation"  # in the optimizer's state_dict


class SynchronisedOptimizer(WrappedOptimizer):
    """A local optimizer whose parameters are exchanged by a scheme. Made by `synchronise`."""

    _step_supports_amp_scaling = True  # so that GradScaler calls step() even where it is not to be taken

    def __init__(
        self,
        model: torch.nn.Module,
        inner: torch.optim.Optimizer,
        session: Session,
        scheme: Scheme,
        bucket_bytes: int,
        average_buffers: bool,
    ) -> None:
        super().__init__(model, inner)
        parameters = [p for p in self._trained() if p.numel()]
        _check(parameters)
        session.watch(model)
        session.broadcast([*model.parameters(), *model.buffers()])
        self._exchanged = frozenset(parameters)
        self._staging = session.staging(parameters[0].device)
        self._model = model
        # Others are no statistics: the mean of a mask's infinities is none.
        self._finite = [name for name, it in model.named_buffers() if it.is_floating_point() and it.isfinite().all()]
        self._session = session
        self._worker = Worker(session.connection, scheme, session.name("sync", parameters))
        self._parcels: dict[Block, Parcel] = {}
        self._parcel_of: dict[torch.Tensor, Parcel] = {}
        most = min(bucket_bytes, sum(p.nbytes for p in parameters) // scheme.pieces)
        self._divide(parameters, most)
        self._buffers: Parcel | None = None
        count = sum(buffer.numel() for buffer in self._statistics())
        if average_buffers and count:
            block = self._worker.block(count, "float32", plain=True)
            self._buffers = Parcel(block, self._statistics, self._staging, moving=scheme.behind > 0)
            self._parcels[block] = self._buffers
        with torch.no_grad():
            for parcel in self._parcels.values():
                parcel.begin()
        self._ends: list[Callable[[], None]] = [
            parameter.register_post_accumulate_grad_hook(self._accumulated).remove for parameter in parameters
        ]
        self._ends.append(inner.register_state_dict_pre_hook(lambda _: self._settle()).remove)
        self._ends.append(uses.before_saving(model, self.synchronize))
        self._ends.append(uses.watch(model, self._use, self._use_buffer))
        self._ends.append(session.before_close(self.close))

    @property
    def scheme(self) -> Scheme:
        """What it follows."""
        return self._worker.scheme

    @property
    def group(self) -> tuple[int, ...]:
        """The ranks that average with one another after the latest step, this one among them; empty: it was a local
        step alone."""
        return self._worker.group

    def step(self, closure: Any = None) -> Any:
        """A local step, and the start of the exchange after it, for which it does not wait. Returns what the inner
        optimizer does.

        Raises ValueError if the workers follow different schemes, RuntimeError for a gradient of a parameter that was
        frozen; gradlane.AgentError.
        """
        self._check_open()
        self._check_frozen(self._exchanged)
        self._settle(self._worker.step)  # layers that this step did not use
        result = self._local_step(closure)
        self._exchange(self._worker.next())
        return result

    def zero_grad(self, set_to_none: bool = True) -> None:
        """As in torch."""
        if self._staging is not None:
            self._staging.precede()
        self._inner.zero_grad(set_to_none)

    @contextlib.contextmanager
    def no_sync(self) -> Generator[None]:
        """For loops that have it: gradients are added up anyhow, because they stay at each worker."""
        yield

    def synchronize(self) -> None:
        """Waits for the exchange in flight, so that the parameters may be read other than through the model."""
        self._settle()

    def average(self) -> None:
        """Gives all workers the exact mean of their parameters and statistics (with Ringmaster the server's): for one
        checkpoint or evaluation, and at the end. All workers call it. Raises gradlane.AgentError."""
        self._check_open()
        self._pause(self._settle)
        with torch.no_grad():
            self._worker.together(self._average)
            for parcel in self._parcels.values():
                parcel.deliver()

    def _average(self, group: Group) -> None:
        for parcel in self._parcels.values():
            parcel.average(group)

    def state_dict(self) -> dict[str, Any]:
        """The inner optimizer's, with what the scheme keeps: of each worker its own."""
        self._check_open()
        return {**self._inner.state_dict(), STATE: _converted(self._worker.state_dict(), torch.from_numpy)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Puts back what `state_dict` gave, here or of the inner optimizer alone: the scheme then goes on where it is.

        Load the model before. What is in flight is given up. Raises ValueError, and changes nothing, if it is of
        another model or scheme; AgentError.
        """
        self._check_open()
        state = None if STATE not in state_dict else _converted(state_dict[STATE], _to_numpy)
        if state is not None:
            self._check_state(state)
        self._inner.load_state_dict({name: value for name, value in state_dict.items() if name != STATE})
        self._pause(self._discard)
        if state is not None:
            self._restore(state)

    def _check_state(self, state: dict[str, Any]) -> None:
        """Raises ValueError if `_restore` can't put that back."""
        self._worker.check(state)

    def _restore(self, state: dict[str, Any]) -> None:
        """Puts back what the scheme kept; nothing is in flight."""
        for parcel in self._parcels.values():
            parcel.fill()
        self._worker.load_state_dict(state)

    def close(self) -> None:
        """Gives model and optimizer back as they were, each worker with its own parameters. The session's end does so,
        too."""
        if not self._ends:
            return
        try:
            self._pause(self._settle)
        finally:
            while self._ends:
                self._ends.pop()()
            self._parcels, self._parcel_of, self._buffers = {}, {}, None
        self._worker.close()

    def _check_open(self) -> None:
        if not self._ends:
            raise RuntimeError(
                "this optimizer was closed: save and average before that, go on with the inner one, or call "
                "synchronise() again"
            )

    def _exchange(self, exchanges: Sequence[Exchange]) -> None:
        with torch.no_grad():
            for block, start in exchanges:  # the front layers first, which the next forward pass needs first
                self._deliver(self._parcels[block])
                self._session.timed(self._parcels[block].start(start, self._worker.step + self.scheme.behind))

    def _pause(self, end: Callable[[], None]) -> None:
        """Does what others expect of this worker before it waits for all, or ends. `end`: of what is in flight."""
        end()
        while exchanges := self._worker.pause():
            self._exchange(exchanges)
            end()

    def _local_step(self, closure: Any) -> Any:
        if self._staging is not None:
            self._staging.precede()
        return self._inner.step(closure) if self._unscaled() else None

    def _unscaled(self) -> bool:
        """Does with the gradients what GradScaler wants; whether they are finite. A worker whose gradients are not
        takes no local step, but its part in the exchange, or its group would wait for it."""
        # What GradScaler sets for a step.
        found: torch.Tensor | None = getattr(self, "found_inf", None)
        scale: torch.Tensor | None = getattr(self, "grad_scale", None)
        if found is not None and found.item():
            return False
        if scale is not None:
            for parameter in self._group_of:
                if parameter.grad is not None:
                    parameter.grad.mul_(scale.double().reciprocal().to(parameter.grad.device, parameter.grad.dtype))
        return True

    def _divide(self, parameters: Sequence[torch.nn.Parameter], most: int) -> None:
        """Into what travels together, of at most so many bytes; all of a type where the scheme wants it."""
        for members in alike(parameters, travels_as) if self.scheme.whole else neighbours(parameters, most):
            parcel = self._parcel(members)
            self._parcels[parcel.block] = parcel
            self._parcel_of.update(dict.fromkeys(members, parcel))

    def _parcel(self, members: Sequence[torch.nn.Parameter]) -> Parcel:
        spans: list[tuple[int, int]] = []
        start = 0
        for parameter, layer in zip(members, self._session.layers(members), strict=True):
            spans.append((start, layer))
            start += parameter.numel()
        block = self._worker.block(start, travels_as(members[0].dtype), spans)
        return Parcel(block, lambda: members, self._staging, moving=self.scheme.behind > 0)

    def _statistics(self) -> list[torch.Tensor]:
        """The buffers that are averaged; each time, because a model may have put others in their place."""
        buffers = dict(self._model.named_buffers())
        return [buffers[name] for name in self._finite if name in buffers]

    def _accumulated(self, parameter: torch.Tensor) -> None:
        """The backward pass has made a gradient."""
        parcel = self._parcel_of.get(parameter)
        if parcel is not None and parcel.due is not None and parcel.step <= self._worker.step:
            name = self._names[parameter]  # pyright: ignore[reportArgumentType]: it is one of the parameters
            raise RuntimeError(
                f"parameter {name} was used before its exchange was over: call optimizer.synchronize() before "
                "parameters are used other than through the model"
            )

    def _use(self, parameter: torch.Tensor) -> None:
        self._deliver(self._parcel_of.get(parameter), self._worker.step)

    def _use_buffer(self, _: torch.Tensor) -> None:
        self._deliver(self._buffers, self._worker.step)

    def _settle(self, step: int | None = None) -> None:
        for parcel in self._parcels.values():
            self._deliver(parcel, step)

    def _discard(self) -> None:
        """Waits for what is in flight, and leaves model and optimizer as they are."""
        for parcel in self._parcels.values():
            parcel.discard()

    def _deliver(self, parcel: Parcel | None, step: int | None = None) -> None:
        """Gives the tensors what is due before that step, or anything that is."""
        if parcel is not None and parcel.due is not None and (step is None or parcel.step <= step):
            # A forward pass without gradients must not make tensors that a later one can't change.
            with torch.inference_mode(False), torch.no_grad():
                parcel.settle()


def _check(parameters: Sequence[torch.nn.Parameter]) -> None:
    """Raises ValueError for what no scheme can exchange."""
    if not parameters:
        raise ValueError("the optimizer has no parameters that need gradients")
    devices = sorted({str(parameter.device) for parameter in parameters})
    if len(devices) > 1:
        raise ValueError(f"the model's parameters are on {', '.join(devices)}: a scheme needs them on one device")


def _converted(state: dict[str, Any], convert: Callable[[Any], Any]) -> dict[str, Any]:
    """The state of a Worker, with each array converted."""
    arrays = {
        dtype: {name: convert(array) for name, array in arrays.items()} for dtype, arrays in state["arrays"].items()
    }
    return {**state, "arrays": arrays}


def _to_numpy(tensor: torch.Tensor) -> Any:
    """Wherever a checkpoint was loaded to."""
    return as_array(tensor.cpu())
