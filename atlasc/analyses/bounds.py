"""Which values of a poly module are bootstrapped, and how large they may be.

The slots that a bootstrap gets must lie in its range, errors included. Nothing in a ciphertext
shows whether they do. The poly module that is kept beside a program shows it in the clear: the
slots of a bootstrapped value hold elements of one poly value (``holds``), or constants that the
placement has checked.
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
"""Share of the range that the values seen in calibration may fill, if the program can be scaled so:
an unseen input may then be a quarter larger."""
ROOM = 3.0
"""Room that a bound leaves for errors of encryption, as a multiple of the greatest error among all
elements of a value on some calibration inputs; this is ten standard deviations or more."""
INPUTS, DRAWS = 2, 8
"""Number of inputs on which errors are measured, and number of draws."""


def with_bounds(
    poly: Module,
    program: Module,
    inputs: Mapping[str, np.ndarray],
    error: float = 0.0,
    cubic: float = 0.0,
) -> Module:
    """A copy of a poly module in which each op has ``bound`` if its result is bootstrapped.

    Args:
        poly: poly module in the form that was packed.
        program: placed ckks module of ``poly``, with magnitudes.
        inputs: some calibration inputs of the poly module; `INPUTS` are enough.
        error, cubic: errors of a bootstrap, see `PlaceBootstraps`.
    """
    refreshed = {_held(op.operands[0].op) for op in program.ops if op.name == "ckks.bootstrap"}
    errors = greatest_errors(poly, refreshed, inputs, error, cubic) if refreshed else {}

    def attributes(op: Op) -> Mapping[str, Any]:
        if op.result is None or op.result.name not in refreshed:
            return op.attributes
        # NaN comes from values that explode only with errors.
        room = min(np.nan_to_num(ROOM * errors[op.result.name], nan=RANGE), RANGE / 2)
        # Rounded, because the last digits depend on the order of sums and a bundle should not.
        return {**op.attributes, "bound": math.floor((RANGE - room) * 1e4) / 1e4}

    return with_attributes(poly, attributes)


def _held(op: Op) -> str:
    if "holds" not in op.attributes:
        raise AtlasError(
            f"{op.name} %{op.value.name} is bootstrapped, but has no attribute that names the "
            "value it holds",
            where=op.location,
            why="a pass made this op without the statistics of that value",
            remedy="let the pass give it the attributes observed(op), with the op that it replaces "
            "as op",
        )
    return str(op.attributes["holds"])


def bootstrapped(
    values: np.ndarray, error: float, cubic: float, random: np.random.Generator
) -> np.ndarray:
    """Values [N, ...] of N inputs after a bootstrap.

    Args:
        values: the values before the bootstrap.
        error, cubic: errors of a bootstrap, see `PlaceBootstraps`.
        random: source of the errors.
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
    """Name of each bootstrapped value -> the greatest error that earlier bootstraps cause in it.

    Other errors of encryption are negligible beside these.
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
