# SPDX-License-Identifier: Apache-2.0
# pyright: reportPrivateUsage=false, reportIncompatibleMethodOverride=false
"""Tells when a model's parameters are used, so that what is still to be done to them can be done just before."""

from collections.abc import Callable
from typing import Any

import torch

Use = Callable[[torch.nn.Parameter], None]


class _Parameters(dict[str, torch.nn.Parameter | None]):
    """What a module has its parameters in, and reads at each attribute access: whoever reads one makes a use of it.

    DeepSpeed's ZeRO-3 finds in the same way those that are used outside of their own module's forward.
    """

    def __init__(self, inner: dict[str, torch.nn.Parameter | None], use: Use) -> None:
        super().__init__(inner)
        self._use = use

    def __getitem__(self, name: str) -> torch.nn.Parameter | None:
        parameter = super().__getitem__(name)
        if parameter is not None:
            self._use(parameter)
        return parameter

    def all(self) -> dict[str, torch.nn.Parameter | None]:
        """Uses them all."""
        for name in self:
            self[name]
        return dict(super().items())

    def items(self) -> Any:
        return self.all().items()

    def values(self) -> Any:
        return self.all().values()

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (self.all(),)  # a copy of the model is an ordinary one


class _BeforeForward:
    """A forward pre-hook that a copy of the model does not have."""

    def __init__(self, parameters: _Parameters) -> None:
        self._parameters = parameters

    def __call__(self, module: torch.nn.Module, inputs: Any) -> None:
        self._parameters.all()

    def __reduce__(self) -> tuple[Any, ...]:
        return _NoHook, ()


class _NoHook:
    def __call__(self, module: torch.nn.Module, inputs: Any) -> None:
        return


def watch(model: torch.nn.Module, use: Use) -> Callable[[], None]:
    """Calls `use` with each parameter of the model before its module's forward, and before anything else reads it.

    Who has taken the parameters out of the model before is not seen. Returns what ends it.
    """
    ends: list[Callable[[], None]] = []

    def end_of(module: torch.nn.Module, inner: dict[str, torch.nn.Parameter | None]) -> Callable[[], None]:
        def end() -> None:
            inner.clear()
            inner.update(module._parameters)
            module._parameters = inner

        return end

    for module in model.modules():
        if module._parameters:
            parameters = _Parameters(module._parameters, use)
            ends.append(end_of(module, module._parameters))
            module._parameters = parameters
            # Modules that keep their parameters a second time (RNNs) read nothing, so their forward counts as a use.
            ends.append(module.register_forward_pre_hook(_BeforeForward(parameters)).remove)

    def end() -> None:
        for one in ends:
            one()

    return end
