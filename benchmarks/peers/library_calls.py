"""An engine used as a library is by whoever calls it op by op.

Our engines leave products at the squared scale and remember the rescaled, transformed form of a
ciphertext that was a factor once, and a sum of products is relinearised once. One call of the
library for every op does none of this: each product rescales and transforms its factors anew, and
is relinearised.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

from atlasc.program.counting_engine import Counted
from atlasc.program.engine import Engine, Vector
from atlasc_comparisons.desilo.engine import DesiloCiphertext


class LibraryCalls:
    """The same engine, that remembers nothing of a factor."""

    def __init__(self, engine: Engine[Any]) -> None:
        self._engine = engine

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def mul(self, left: Any, right: Any) -> Any:
        """One product."""
        return self._engine.mul(_forgotten(left), _forgotten(right))

    def square(self, ciphertext: Any) -> Any:
        """One square."""
        return self._engine.square(_forgotten(ciphertext))

    def dot(self, lefts: Sequence[Any], rights: Sequence[Any]) -> Any:
        """A sum of products, each relinearised."""
        products = (self.mul(left, right) for left, right in zip(lefts, rights, strict=True))
        return reduce(self._engine.add, products)

    def mul_plain(self, ciphertext: Any, value: Vector | float) -> Any:
        """One product with a plaintext."""
        return self._engine.mul_plain(_forgotten(ciphertext), value)


def _forgotten(ciphertext: Any) -> Any:
    """The same ciphertext as if it had not been a factor yet."""
    if isinstance(ciphertext, DesiloCiphertext):
        return DesiloCiphertext(ciphertext.raw)
    if isinstance(ciphertext, Counted):
        return Counted(ciphertext.level)
    return ciphertext
