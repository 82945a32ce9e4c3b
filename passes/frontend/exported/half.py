"""Weights of 16 bits that become float32 when they are used."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from atlasc.ir.arrays.lazy import LazyArray, is_large

if TYPE_CHECKING:
    import torch


@cache
def half_tensor() -> Any:
    """The class ``HalfTensor(stored, check)``, which is made when torch is needed."""
    import torch
    from torch.utils._pytree import tree_map

    class HalfTensor(torch.Tensor):
        """A tensor of float32 that is stored in 16 bits. Every op converts it, which is exact, and
        gives plain tensors; but a view of it is another of these.

        Attributes:
            stored: the numbers in 16 bits.
            check: raises AtlasError if they are no longer those of the model.
        """

        stored: torch.Tensor
        check: Callable[[], None]
        __torch_function__ = torch._C._disabled_torch_function_impl

        @staticmethod
        def __new__(cls, stored: torch.Tensor, check: Callable[[], None]) -> HalfTensor:
            """A tensor of these numbers; no memory is taken."""
            made: HalfTensor = torch.Tensor._make_wrapper_subclass(
                cls, stored.shape, strides=stored.stride(), dtype=torch.float32
            )
            made.stored, made.check = stored, check
            return made

        def plain(self) -> torch.Tensor:
            """The numbers in float32."""
            self.check()  # to read what was cut off a mapped file would end the process
            found = self.stored.float()
            self.check()
            return found

        def __deepcopy__(self, memo: dict[int, Any]) -> HalfTensor:
            """Itself, as no op changes it: a copy of a module shares it."""
            return memo.setdefault(id(self), self)

        def __repr__(self) -> str:
            return f"HalfTensor({tuple(self.shape)}, {self.stored.dtype})"

        @classmethod
        def __torch_dispatch__(cls, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            first = args[0] if args else None
            if isinstance(first, cls) and op._schema.is_mutable:
                raise TypeError(f"{op} would change a weight that is stored in 16 bits")
            if isinstance(first, cls) and (op.is_view or op is torch.ops.aten.detach.default):
                found, check = op(first.stored, *args[1:], **kwargs), first.check
                return tree_map(lambda t: HalfTensor(t, check) if is_tensor(t) else t, found)

            def plain(value: Any) -> Any:
                return value.plain() if isinstance(value, cls) else value

            return op(*tree_map(plain, args), **tree_map(plain, kwargs))

    def is_tensor(value: Any) -> bool:
        return isinstance(value, torch.Tensor)

    return HalfTensor


def array_of_half(tensor: Any) -> np.ndarray:
    """The numbers of a `HalfTensor` as an array of float32; a large one is made at each use."""
    import torch

    def made() -> np.ndarray:
        return cast(np.ndarray, tensor.plain().numpy())

    def rows_of(rows: np.ndarray) -> np.ndarray:
        some = half_tensor()(tensor.stored[torch.from_numpy(rows)], tensor.check)
        return cast(np.ndarray, some.plain().numpy())

    if not is_large(tensor.shape, np.float32):
        return made()
    place = tensor.stored.data_ptr(), tensor.stored.stride(), tensor.stored.dtype
    return cast(np.ndarray, LazyArray(tuple(tensor.shape), np.float32, made, rows_of, place))
