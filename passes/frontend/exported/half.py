"""Weights of 16 bits that become float32 when they are used."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch.utils._pytree import tree_map

from atlasc.ir.arrays.lazy import LazyArray, is_large

if TYPE_CHECKING:
    from torch._ops import OpOverload


class HalfTensor(torch.Tensor):
    """A tensor of float32 that is stored in 16 bits. Every op converts it, which is exact, and
    gives plain tensors; but a view of it is another of these.

    Attributes:
        stored: the numbers in 16 bits.
        check: raises AtlasError if they are no longer those of the model.
    """

    stored: torch.Tensor
    check: Callable[[], None]
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @staticmethod
    def __new__(cls, stored: torch.Tensor, check: Callable[[], None]) -> HalfTensor:
        """A tensor of these numbers; no memory is taken."""
        made: HalfTensor = torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
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

    def numpy_array(self) -> np.ndarray:
        """The numbers as an array of float32; a large one is made at each use."""
        if not is_large(self.shape, np.float32):
            return self.plain().numpy()
        place = self.stored.data_ptr(), self.stored.stride(), self.stored.dtype
        found = LazyArray(tuple(self.shape), np.float32, self._made, self._rows, place)
        return cast(np.ndarray, found)

    def _made(self) -> np.ndarray:
        return self.plain().numpy()

    def _rows(self, rows: np.ndarray) -> np.ndarray:
        return HalfTensor(self.stored[torch.from_numpy(rows)], self.check)._made()

    def __repr__(self) -> str:  # type: ignore[override]
        return f"HalfTensor({tuple(self.shape)}, {self.stored.dtype})"

    @classmethod
    def __torch_dispatch__(
        cls, op: OpOverload, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        first = args[0] if args else None
        if isinstance(first, cls) and (op.is_view or op is torch.ops.aten.detach.default):
            found, check = op(first.stored, *args[1:], **kwargs), first.check
            return tree_map(lambda t: cls(t, check) if isinstance(t, torch.Tensor) else t, found)

        def plain(value: Any) -> Any:
            return value.plain() if isinstance(value, cls) else value

        return op(*tree_map(plain, args), **tree_map(plain, kwargs))
