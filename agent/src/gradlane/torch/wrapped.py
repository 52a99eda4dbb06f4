# SPDX-License-Identifier: Apache-2.0
"""An optimizer around another one, whose parameters may lag behind: what others read of it is the inner one's."""

import sys
from abc import ABC, abstractmethod
from collections.abc import Container
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from gradlane.torch import uses


class WrappedOptimizer(torch.optim.Optimizer, ABC):
    """Learning rate schedulers, checkpoints and gradient scalers take it for the inner optimizer."""

    def __init__(self, model: torch.nn.Module, inner: torch.optim.Optimizer) -> None:
        """Raises ValueError if the optimizer has parameters that are not the model's, or is wrapped already; if the
        model is another optimizer's already, or is wrapped in what exchanges gradients or shards parameters itself."""
        # Everything that an optimizer has is the inner one's; torch's own __init__ would make a second set of it.
        for name, value in vars(inner).items():
            if name.startswith("_optimizer_"):
                setattr(self, name, value)  # registries of hooks
        if isinstance(inner, WrappedOptimizer):
            raise ValueError(f"the optimizer is a {type(inner).__name__} already: close() it, or wrap its inner one")
        self._inner = inner
        self._names = {parameter: name for name, parameter in model.named_parameters()}
        self._group_of = {p: k for k, group in enumerate(inner.param_groups) for p in group["params"]}
        strangers = [p for p in self._group_of if p not in self._names]
        if strangers:
            raise ValueError(
                f"the optimizer has {len(strangers)} parameters that are not the model's: nothing would show when they "
                "are used; put their module into the model"
            )
        if isinstance(model, DistributedDataParallel):
            raise ValueError(
                "the model is wrapped in DistributedDataParallel, which averages gradients: pass its module"
            )
        if _sharded(model):
            raise ValueError("the model's parameters are sharded (FSDP, DTensor): each worker must have a whole model")
        if uses.is_watched(model):
            raise ValueError(
                "the model goes with another optimizer of overlap() or synchronise() already: close() that, or give "
                "one optimizer all parameters"
            )

    def _trained(self) -> list[torch.nn.Parameter]:
        """The parameters that the inner optimizer updates, in the order of the model."""
        return [p for p in self._names if p in self._group_of and p.requires_grad]

    def _check_frozen(self, known: Container[torch.nn.Parameter]) -> None:
        """Raises RuntimeError if another parameter than those has got a gradient, which would stay at this worker."""
        for parameter in self._group_of:
            if parameter.grad is not None and parameter.numel() and parameter not in known:
                raise RuntimeError(
                    f"parameter {self._names[parameter]} was frozen when the optimizer was wrapped, and has a gradient "
                    "now: call close(), and wrap it again"
                )

    @abstractmethod
    def _settle(self) -> None:
        """Does all updates that are due."""

    @property
    def param_groups(self) -> list[dict[str, Any]]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The inner optimizer's."""
        return self._inner.param_groups

    @property
    def state(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The inner optimizer's, after the updates that are due."""
        self._settle()
        return self._inner.state

    @property
    def defaults(self) -> dict[str, Any]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The inner optimizer's."""
        return self._inner.defaults

    def state_dict(self) -> dict[str, Any]:
        """The inner optimizer's, after the updates that are due."""
        return self._inner.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Into the inner optimizer, after the updates that are due."""
        self._settle()
        self._inner.load_state_dict(state_dict)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Raises ValueError: what travels together is chosen once."""
        raise ValueError("call close(), add the group to the inner optimizer, and wrap it again")


def _sharded(model: torch.nn.Module) -> bool:
    # Who has never imported FSDP has no such model.
    fsdp = sys.modules.get("torch.distributed.fsdp")
    if fsdp is not None and any(isinstance(module, fsdp.FullyShardedDataParallel) for module in model.modules()):
        return True
    return any(hasattr(parameter, "device_mesh") for parameter in model.parameters())
