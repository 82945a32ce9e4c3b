"""Keys and values of a public prefix, computed once in the clear, as rows of the step's state."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from atlasc.ir.interpreter import interpret
from atlasc.ir.module import Module, Op, Value
from atlasc.ir.opdef import Site
from atlasc.ir.rewriting import with_attributes
from atlasc.passes.generation.decode_step import kept_values
from atlasc.simulation.watch import function_values


@dataclass(frozen=True)
class Prefix:
    """A public prefix as inputs of the window.

    Attributes:
        arrays: inputs of the model by name, [1, window].
        tokens: number of its tokens.
    """

    arrays: dict[str, np.ndarray]
    tokens: int


def with_public_rows(step: Module, client: Module, window: Module, prefix: Prefix) -> Module:
    """The step, whose state begins with the keys and values of a public prefix.

    They are computed with the functions that the polynomials approximate, so they are exact, also
    where a token of the prefix leaves the ranges of the polynomials.

    Args:
        step: poly module that ``decode-step`` made of the window.
        client: nn module from raw inputs to the encrypted inputs of the window.
        window: folded poly module.
        prefix: the prefix.
    """
    names = {value: name for name, value in kept_values(window, prefix.tokens).items()}
    rows: dict[str, np.ndarray] = {}

    def exact(op: Op, site: Site, arrays: list[np.ndarray]) -> np.ndarray | None:
        return function_values(op, site, arrays[0]) if op.name == "poly.chebyshev" else None

    def observe(op: Op, result: np.ndarray) -> None:
        value: Value = op.value
        if value in names:
            rows[names[value]] = result[:, :, : prefix.tokens].copy()

    inputs = {**prefix.arrays, **interpret(client, prefix.arrays)}
    with np.errstate(all="ignore"):  # padding after the prefix, which nothing reads, may overflow
        interpret(window, inputs, override=exact, observe=observe)
    symbols = {name: step.constant(f"{name}.prefix", array) for name, array in rows.items()}

    def attributes(op: Op) -> dict[str, object]:
        begins = op.attributes.get("state") and op.name == "poly.input"
        return {**op.attributes, **({"prefix": symbols[op.attributes["name"]]} if begins else {})}

    return with_attributes(step, attributes)
