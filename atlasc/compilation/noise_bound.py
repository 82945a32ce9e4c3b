"""How much error encryption adds to the answers of a program, bounded when it is compiled.

Each source of error enters where the noise model (:mod:`atlasc.targets.parameters`) has it, and
reaches the outputs by the ``noise_gain`` of its value, which comes from derivatives on calibration
inputs (:mod:`atlasc.passes.analyses.observed`). Sources are independent: their squares add up.

- The model's figures are measured (a bootstrap's errors, on desilofhe) or derived for a dense
  ternary secret (rescaling, encryption).
- A product rescales its operands first, each with an error of its own. Where an op consumes several
  levels the later ones count at its result.
- What a Chebyshev sum adds is measured: its evaluation plan runs on slots that fill [-1, 1], with
  the model's errors.
- Gains are those of calibration inputs, the worst of them. An input unlike any of them may do
  worse: the bound is one for inputs like those, and ``MARGIN`` is kept for the difference.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from atlasc.ir.module import Module, Op, Value
from atlasc.ir.opdef import Symbol
from atlasc.passes.analyses.observed import bootstrap_change
from atlasc.passes.execution.paterson_stockmeyer import evaluate_plan, plan_chebyshev
from atlasc.passes.framework.rewriting import Rewriter
from atlasc.targets.noise import NoiseModel
from atlasc.targets.sim import SimEngine

MARGIN = 3.0
"""By which the bound exceeds what the sources add up to."""
_SWITCHES = 4096
"""Key switches of one op, at most: their errors vanish beside those of rescaling."""
_SLOTS = 2048
_LEVELS = 40
_FEATURES = 8
"""Of a Chebyshev sum with coefficients for each feature, how many are tried."""


def with_noise(program: Module, noise: NoiseModel) -> Module:
    """A copy of a lowered program whose outputs carry ``noise``: a bound of the root mean square
    error that encryption adds to the elements of an answer, in units of its own. Without
    calibration there is none.
    """
    change = program_change(program, noise)
    rewriter = Rewriter(program)
    for op in program.ops:
        attributes = dict(op.attributes)
        if op.name == "ckks.output" and "noise_gain" in attributes and change > 0:
            bound = MARGIN * change * attributes["noise_gain"]
            # Rounded: the last digits depend on the order of sums, and a bundle should not.
            attributes["noise"] = float(f"{bound:.2g}")
        rewriter.copy(op, None, attributes)
    return rewriter.module


def program_change(program: Module, noise: NoiseModel) -> float:
    """Change of the outputs by all errors: root mean square, in units of their size."""
    gains: dict[Value, float] = {}
    total = 0.0
    for op in program.ops:
        if op.result is None or not op.result.encrypted:
            continue
        encrypted = [v for v in op.operands if v.encrypted]
        inherited = max((gains[value] for value in encrypted), default=0.0)
        gain = gains[op.result] = op.attributes.get("noise_gain", inherited)
        total += _SWITCHES * (noise.key_switch * gain) ** 2
        if op.name == "ckks.input":
            total += (noise.fresh * gain) ** 2
        elif op.name == "ckks.bootstrap":
            source, slots = op.operands[0].op, op.value.ciphertext.layout.slots
            error = noise.of_bootstrap(op.attributes.get("period", slots) / slots)
            total += bootstrap_change(source, None, error, noise.bootstrap_cubic) ** 2
        elif op.name == "ckks.chebyshev":
            total += (_of_chebyshev(program, op, noise) * gain) ** 2
        elif levels := op.levels(program.symbols):
            total += noise.rescale**2 * sum(gains[value] ** 2 for value in encrypted)
            total += (noise.rescale * gain) ** 2 * (levels - 1 + _row_norm(program, op) ** 2)
    # What is decrypted has been rescaled once more.
    total += noise.rescale**2 * sum(gains[op.operands[0]] ** 2 for op in program.outputs)
    return math.sqrt(total)


def _row_norm(program: Module, op: Op) -> float:
    """Of a linear layer: what independent errors in its rotated operands add to one result."""
    weight = op.attributes.get("weight")
    if not isinstance(weight, Symbol):
        return 0.0
    array = np.asarray(program.symbols[weight.name], dtype=np.float64)
    return float(np.sqrt(np.square(array).sum(axis=1).max()))


def _of_chebyshev(program: Module, op: Op, noise: NoiseModel) -> float:
    coefficients = np.atleast_2d(op.site(program.symbols).constant("coefficients"))
    some = coefficients[:: max(1, len(coefficients) // _FEATURES)]
    return max(_measured(tuple(row.tolist()), noise.rescale, noise.key_switch) for row in some)


@lru_cache(maxsize=4096)
def _measured(coefficients: tuple[float, ...], rescale: float, key_switch: float) -> float:
    """Root mean square error of a sum's own products, for arguments that fill [-1, 1]."""
    plan = plan_chebyshev(coefficients)
    arguments = np.linspace(-1.0, 1.0, _SLOTS)
    results = []
    # An error of float64's own precision must not drown: a larger one, that is still small.
    scale = 2.0**-20 / rescale if rescale else 1.0
    model = NoiseModel(rescale=rescale * scale, key_switch=key_switch * scale)
    for noise in (model, None):
        engine = SimEngine(_SLOTS, _LEVELS, noise=noise)
        ciphertext = evaluate_plan(engine, engine.encrypt(arguments, _LEVELS), plan)
        results.append(ciphertext.values.real)
    return float(np.sqrt(np.square(results[0] - results[1]).mean())) / scale
