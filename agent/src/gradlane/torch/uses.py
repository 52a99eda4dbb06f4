# SPDX-License-Identifier: Apache-2.0
# pyright: reportPrivateUsage=false, reportIncompatibleMethodOverride=false
"""Notices when a model's parameters are used, so that pending updates can be done just before."""

from collections.abc import Callable
from typing import Any

import torch

Use = Callable[[Any], None]


class _Watched(dict[str, Any]):
    """What a module has its parameters or buffers in, and reads at each access: a read counts as a use.

    DeepSpeed's ZeRO-3 finds likewise parameters that are used outside of their own module's forward.
    """

    def __init__(self, inner: dict[str, Any], use: Use) -> None:
        super().__init__(inner)
        self._use = use

    def __getitem__(self, name: str) -> Any:
        tensor = super().__getitem__(name)
        if tensor is not None:
            self._use(tensor)
        return tensor

    def all(self) -> dict[str, Any]:
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


class _Before:
    """A pre-hook that a copy of the model does not have."""

    def __init__(self, act: Callable[[], Any]) -> None:
        self._act = act

    def __call__(self, module: torch.nn.Module, *arguments: Any) -> None:
        self._act()

    def __reduce__(self) -> tuple[Any, ...]:
        return _NoHook, ()


class _NoHook:
    def __call__(self, module: torch.nn.Module, *arguments: Any) -> None:
        return


def is_watched(model: torch.nn.Module) -> bool:
    """Whether somebody watches it already, or a part of it."""
    kept = (kind for module in model.modules() for kind in (module._parameters, module._buffers))
    return any(isinstance(kind, _Watched) for kind in kept)


def watch(model: torch.nn.Module, use: Use, use_buffer: Use) -> Callable[[], None]:
    """Calls `use` with each parameter of the model before its module's forward, and before anything else reads it;
    `use_buffer` with each buffer before it is read.

    Code that took them out of the model before is not noticed. Returns what ends it.
    """
    ends: list[Callable[[], None]] = []

    def watched(module: torch.nn.Module, kind: str, use: Use) -> _Watched:
        inner = getattr(module, kind)
        found = _Watched(inner, use)

        def end() -> None:
            inner.clear()
            inner.update(dict.items(getattr(module, kind)))
            setattr(module, kind, inner)

        ends.append(end)
        setattr(module, kind, found)
        return found

    for module in model.modules():
        if module._buffers:
            watched(module, "_buffers", use_buffer)
        if module._parameters:
            parameters = watched(module, "_parameters", use)
            # Modules that keep their parameters a second time (RNNs) read nothing, so their forward counts as a use.
            ends.append(module.register_forward_pre_hook(_Before(parameters.all)).remove)

    def end() -> None:
        for one in ends:
            one()

    return end


def before_saving(model: torch.nn.Module, act: Callable[[], None]) -> Callable[[], None]:
    """Calls `act` before the model's `state_dict` reads anything. Returns what ends it."""
    return model.register_state_dict_pre_hook(_Before(act)).remove
