# SPDX-License-Identifier: Apache-2.0
"""Shared memory as torch sees it."""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from gradlane.job import elements

# What torch calls the element types of the wire.
NAMES = {
    torch.float32: "float32",
    torch.float16: "float16",
    torch.bfloat16: "bfloat16",
    torch.float64: "float64",
    torch.uint8: "uint8",
    torch.bool: "uint8",
    torch.int8: "int8",
    torch.int32: "int32",
    torch.int64: "int64",
}


def as_tensor(array: npt.NDArray[Any], name: str) -> torch.Tensor:
    """An array of wire type `name` as a tensor on the same memory; numpy has the bits of bfloat16 as uint16."""
    if name == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def as_array(tensor: torch.Tensor) -> npt.NDArray[Any]:
    """A tensor of a wire type as an array on the same memory."""
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(np.uint16)
    return tensor.numpy()


class _Lent:
    """What numpy makes an array of that keeps a tensor. (Tensor.numpy() would forbid for ever that its storage is
    resized, as FSDP does.)"""

    def __init__(self, tensor: torch.Tensor, dtype: np.dtype[Any]) -> None:
        self._tensor = tensor
        interface = {"data": (tensor.data_ptr(), False), "shape": (tensor.nbytes // dtype.itemsize,)}
        self.__array_interface__ = {"version": 3, "typestr": dtype.str, **interface}


def lent(tensor: torch.Tensor, name: str) -> npt.NDArray[Any] | None:
    """The memory of a tensor of the host, flat, as wire type `name`; None if its values do not lie there one by one."""
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.device.type != "cpu" or not tensor.nbytes:
        return None
    if tensor.layout != torch.strided or not tensor.is_contiguous() or tensor.is_conj() or tensor.is_neg():
        return None
    return np.asarray(_Lent(tensor.detach(), elements.NUMPY[name]))


def parts(memory: torch.Tensor, tensors: Sequence[torch.Tensor]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Each tensor with its part of the flat memory, in the tensor's type and shape; bytes can be any type.

    The larger types come first, so that each element lies at a multiple of its size.
    """
    ordered = sorted(tensors, key=lambda tensor: -tensor.element_size())
    ends = list(itertools.accumulate(tensor.nbytes // memory.element_size() for tensor in ordered))
    starts = [0, *ends][:-1]
    return [
        (tensor.detach(), memory[start:end].view(tensor.dtype).view(tensor.shape))
        for tensor, start, end in zip(ordered, starts, ends, strict=True)
    ]
