"""Which values of a poly module are bootstrapped, and how large they may be.

Slots that a bootstrap gets must lie in its range, errors included, and nothing in a ciphertext says
whether they do. The poly module that is kept beside a program tells it in the clear: the slots of a
bootstrapped value hold elements of one poly value (``holds``), or constants that the placement has
looked at.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Set
from typing import Any

import numpy as np

from atlasc.ir.errors import AtlasError
from atlasc.ir.interpreter import Interpreter
from atlasc.ir.module import Module, Op
from atlasc.ir.opdef import Site
from atlasc.ir.rewriting import with_attributes
from atlasc.simulation.poly_values import evaluated, fused, interpret_poly

RANGE = 1.0
"""A bootstrap is right for slots in [−1, 1]."""
SEEN = 0.8
"""Share of the range that what calibration saw of a bootstrapped value may fill, where a program
can be made so: an unseen input may reach a quarter more."""
ROOM = 3.0
"""What a bound leaves for the errors of encryption: times the greatest one among all elements of a
value on some calibration inputs, which is ten standard deviations and more."""
INPUTS, DRAWS = 2, 8
"""On which errors are looked at, and how often they are drawn."""


def with_bounds(
    poly: Module,
    program: Module,
    inputs: Mapping[str, np.ndarray],
    error: float = 0.0,
    cubic: float = 0.0,
) -> Module:
    """A copy of a poly module whose ops carry ``bound`` where their result is bootstrapped.

    Args:
        poly: as it was packed.
        program: placed ckks module of it, with magnitudes.
        inputs: some calibration inputs of the poly module; `INPUTS` are enough.
        error, cubic: of a bootstrap, see `PlaceBootstraps`.
    """
    refreshed = {_held(op.operands[0].op) for op in program.ops if op.name == "ckks.bootstrap"}
    errors = greatest_errors(poly, refreshed, inputs, error, cubic) if refreshed else {}

    def attributes(op: Op) -> Mapping[str, Any]:
        if op.result is None or op.result.name not in refreshed:
            return op.attributes
        # What is no number comes from values that explode under errors alone.
        room = min(np.nan_to_num(ROOM * errors[op.result.name], nan=RANGE), RANGE / 2)
        # Rounded: the last digits depend on the order of sums, and a bundle should not.
        return {**op.attributes, "bound": math.floor((RANGE - room) * 1e4) / 1e4}

    return with_attributes(poly, attributes)


def _held(op: Op) -> str:
    if "holds" not in op.attributes:
        raise AtlasError(
            f"{op.name} %{op.value.name} is bootstrapped, and does not tell which value it holds",
            where=op.location,
            why="a pass made it without what calibration saw of that value",
            remedy="let the pass that makes it give it the attributes observed(op) of the op that "
            "it stands for",
        )
    return str(op.attributes["holds"])


def bootstrapped(
    values: np.ndarray, error: float, cubic: float, random: np.random.Generator
) -> np.ndarray:
    """Values [N, ...] of N inputs as a bootstrap gives them back.

    Args:
        error, cubic: of a bootstrap, see `PlaceBootstraps`.
    """
    mean = values.mean(axis=tuple(range(1, values.ndim)), keepdims=True)
    drawn = random.standard_normal(values.shape, values.dtype)
    added: np.ndarray = error * drawn - cubic * mean**3
    return values + added.astype(values.dtype)


def greatest_errors(
    poly: Module,
    refreshed: Set[str],
    inputs: Mapping[str, np.ndarray],
    error: float,
    cubic: float,
) -> dict[str, float]:
    """The greatest error of each bootstrapped value, by name, that the bootstraps before it make.

    Other errors of encryption vanish beside them.
    """
    exact: dict[str, np.ndarray] = {}
    errors = dict.fromkeys(refreshed, 0.0)
    random = np.random.default_rng(0)

    def keep(op: Op, result: np.ndarray) -> None:
        if op.value.name in refreshed:
            exact[op.value.name] = result

    def noisy(op: Op, site: Site, arrays: list[np.ndarray]) -> np.ndarray | None:
        if op.value.name not in refreshed or op.definition.evaluate is None:
            return fused(op, site, arrays)
        result = evaluated(op, site, arrays)
        found = float(np.abs(result - exact[op.value.name]).max())
        errors[op.value.name] = float(np.maximum(errors[op.value.name], found))  # NaN stays
        return bootstrapped(result, error, cubic, random)

    with np.errstate(all="ignore"):
        interpret_poly(poly, inputs, np.float32, observe=keep)
        run = Interpreter(poly, np.float32, noisy).run
        for _ in range(DRAWS):
            run(inputs)
    return errors
