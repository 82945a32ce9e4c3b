"""Types of IR values: tensors in the clear (by side) and packed ciphertexts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from atlasc.ir.bounds import MAX_LEVEL, is_shape
from atlasc.ir.layout import Layout

Side = Literal["client", "server", "public"]
DType = Literal["f64", "i64"]
SIDES: tuple[str, ...] = get_args(Side)
DTYPES: tuple[str, ...] = get_args(DType)


@dataclass(frozen=True)
class TensorType:
    """A tensor and the side that sees it.

    Attributes:
        shape: row-major extents, batch axis first.
        side: ``client`` is computed in the clear by the client, ``server`` is encrypted data on
            the server, ``public`` is a plaintext that the server may see (an attention mask).
        dtype: ``f64`` or ``i64`` (token ids).
    """

    shape: tuple[int, ...]
    side: Side = "server"
    dtype: DType = "f64"

    def __str__(self) -> str:
        extents = "x".join(str(n) for n in self.shape)
        return f"tensor<{extents}{'x' if self.shape else ''}{self.dtype}, {self.side}>"


@dataclass(frozen=True)
class CiphertextType:
    """A tensor packed into ciphertexts.

    Attributes:
        layout: maps elements to slots; it also fixes the number of ciphertexts.
        level: rescales left before the modulus is used up; None before levels are placed.
        scale: exponent of the scaling factor, in units of the nominal scale (1 after a rescale).
    """

    layout: Layout
    level: int | None = None
    scale: int = 1

    @property
    def ciphertexts(self) -> int:
        """Number of ciphertexts that hold the tensor."""
        return self.layout.ciphertexts

    def __str__(self) -> str:
        level = "?" if self.level is None else str(self.level)
        return f"ciphertext<{self.layout}, level {level}, scale {self.scale}>"


Type = TensorType | CiphertextType


def is_bounded(type_: Type) -> bool:
    """Whether a value may have the type; its layout was checked when it was made."""
    if isinstance(type_, TensorType):
        return is_shape(type_.shape)
    return type_.level is None or 0 <= type_.level <= MAX_LEVEL
