"""How much error encryption adds to the answers of a program, bounded when it is compiled.

Each source of error enters where the noise model (:mod:`atlasc.targets.parameters`) places it. It
reaches the outputs multiplied by the ``noise_gain`` of its value, which is computed from
derivatives on calibration inputs (:mod:`atlasc.analyses.observed`). Sources are independent, so
their squares add up.

- The figures of the model are measured (errors of bootstraps) or derived for a dense ternary
  secret.
- Errors have imaginary parts as large as the real ones. An op that packs two values into the real
  and imaginary parts of one ciphertext reads the imaginary parts too: diagonals that share a
  plaintext, scores, a bootstrap of two values. So all errors count twice, except those of a
  bootstrap, which are real.
- A product rescales its operands first, each with an error of its own. Further errors of an op, by
  key switches, encodings and later rescalings, are counted on its function
  (:mod:`atlasc.compilation.op_noise`).
- The error of a Chebyshev sum is measured: its evaluation plan runs with the model's errors on
  slots that fill the interval of the arguments seen in calibration, at least [-1, 1]. The worst
  part of the interval counts, because a sum of a high degree amplifies rounding most at its ends,
  and grows beyond them.
- Copies of a value that share such a sum have different errors, which pass through it in another
  way than equal ones (:mod:`atlasc.analyses.shared_sums`).
- A narrow bootstrap takes the mean of slots that repeat. Errors before it differ from copy to copy
  of a batch of one, so they are averaged: their variance is divided by the number of copies. The
  cubic error of a bootstrap does not: it follows from the value, which is the same in all copies.
- Gains are the worst on calibration inputs. An input unlike these may do worse: the bound holds for
  inputs like them, and ``MARGIN`` covers the difference.
"""

from __future__ import annotations

import math
from functools import lru_cache, partial

import numpy as np

from atlasc.analyses.observed import bootstrap_change
from atlasc.analyses.shared_sums import excess_gain
from atlasc.compilation.op_noise import op_noise
from atlasc.ir.module import Module, Op, Value
from atlasc.ir.rewriting import Rewriter
from atlasc.program.engine import Plaintext
from atlasc.program.execute import Functions
from atlasc.program.function import EngineParameters
from atlasc.program.paterson_stockmeyer import (
    Coefficient,
    evaluate_plan,
    plan_chebyshev,
    sum_of_parts,
)
from atlasc.targets.noise import NoiseModel
from atlasc.targets.sim import SimEngine

MARGIN = 3.0
"""Factor of the bound over the sum of the sources."""
_SLOTS, _POINTS, _PARTS = 4096, 512, 8
"""Slots in which a sum is measured, the least number of arguments, and parts of their interval."""
_WITHOUT = ("ckks.input", "ckks.bootstrap", "ckks.chebyshev")
"""Ops whose errors are not counted on their functions."""
_LEVELS = 40
_FEATURES = 8
"""Number of measured features of a Chebyshev sum with coefficients for each feature."""


def with_noise(program: Module, noise: NoiseModel, shape: EngineParameters) -> Module:
    """A copy of a lowered program whose outputs have the attribute ``noise``.

    ``noise`` bounds the root mean square error that encryption adds to the elements of an answer,
    in the answer's own units. Without calibration there is no bound.

    Args:
        program: ckks module with levels.
        noise: the noise model of the parameters.
        shape: parameters of the engines that run the program.
    """
    change = program_change(program, noise, shape)
    rewriter = Rewriter(program)
    for op in program.ops:
        attributes = op.attributes.copy()
        if op.name == "ckks.output" and "noise_gain" in attributes and change > 0:
            bound = MARGIN * change * attributes["noise_gain"]
            # Rounded, because the last digits depend on the order of sums and a bundle should not.
            attributes["noise"] = float(f"{bound:.2g}")
        rewriter.copy(op, None, attributes)
    return rewriter.module


def program_change(program: Module, noise: NoiseModel, shape: EngineParameters) -> float:
    """Change of the outputs by all errors: root mean square, as a share of the outputs' size."""
    return math.sqrt(sum(changes(program, noise, shape).values()))


def changes(program: Module, noise: NoiseModel, shape: EngineParameters) -> dict[Op, float]:
    """For each op, the variance that its errors add to the outputs, in units of the outputs' size;
    empty without calibration.
    """
    if not any("noise_gain" in op.attributes for op in program.ops):
        return {}
    gains: dict[Value, float] = {}
    functions = dict(Functions(program, shape).calls())
    found: dict[Op, float] = {}
    averaged = _averaged(program)
    for op in program.ops:
        if op.result is None or not op.result.encrypted:
            continue
        encrypted = [v for v in op.operands if v.encrypted]
        inherited = max((gains[value] for value in encrypted), default=0.0)
        gain = gains[op.result] = op.attributes.get("noise_gain", inherited)
        total = real = alike = 0.0
        if op.name == "ckks.input":
            total += (noise.fresh * gain) ** 2
        elif op.name == "ckks.bootstrap":
            source = op.operands[0].op
            real += bootstrap_change(source, noise.bootstrap, 0.0) ** 2
            alike += bootstrap_change(source, 0.0, noise.bootstrap_cubic) ** 2
        elif op.name == "ckks.chebyshev":
            total += (_of_chebyshev(program, op, noise) * gain) ** 2
            if op.attributes.get("copies"):
                own = _made_here(op, found, gains)
                total += own * (_excess(program, op) * gain) ** 2
        if op.name not in _WITHOUT:
            added = op_noise(program.symbols, op, functions[op], noise)
            # A sum rescales none of its operands; a product rescales all.
            owed = noise.rescale**2 if op.levels(program.symbols) else 0.0
            total += (owed + added.before) * sum(gains[value] ** 2 for value in encrypted)
            total += added.after * gain**2
        narrow = op.name == "ckks.bootstrap" and "period" in op.attributes
        # A narrow bootstrap errs alike in all copies, and a cubic error follows the value.
        found[op] = (2 * total + real) / (1 if narrow else averaged.get(op.result, 1)) + alike
    for op in program.outputs:  # before decryption there is one more rescale
        found[op] = 2 * (noise.rescale * gains[op.operands[0]]) ** 2
    return found


def _averaged(program: Module) -> dict[Value, int]:
    """For each value, the number of copies of it whose mean every output depends on: those of a
    batch of one, if a narrow bootstrap is on every way to an output. 1 where there is another way.

    Other copies do not count, because an op may take one of them and spread it.
    """
    found: dict[Value, int] = {}
    for op in reversed(program.ops):
        after = 1 if op.result is None else found.get(op.result, 1)
        for value in op.operands:
            if not value.encrypted:
                continue
            here = after
            if op.name == "ckks.bootstrap" and "period" in op.attributes:
                here = value.ciphertext.layout.batch_copies
            here = min(here, value.ciphertext.layout.batch_copies)
            found[value] = min(found.get(value, here), here)
    return found


def _of_chebyshev(program: Module, op: Op, noise: NoiseModel) -> float:
    coefficients = np.atleast_2d(op.site(program.symbols).constant("coefficients"))
    some = coefficients[:: max(1, len(coefficients) // _FEATURES)]
    copies = op.attributes.get("copies", 1)
    return max(
        evaluation_error(tuple(row.tolist()), noise.rescale, _reach(op), copies) for row in some
    )


def _excess(program: Module, op: Op) -> float:
    coefficients = op.site(program.symbols).constant("coefficients")
    return excess_gain(tuple(coefficients.tolist()), op.attributes["copies"], _reach(op))


def _reach(op: Op) -> float:
    return max(1.0, float(op.operands[0].op.attributes.get("magnitude", 1.0)))


def _made_here(op: Op, found: dict[Op, float], gains: dict[Value, float]) -> float:
    """Variance of the errors of an operand that may differ between its copies: those of the last op
    that adds any.
    """
    source = op.operands[0].op
    while not found.get(source) and source.operands:
        source = source.operands[0].op
    gain = gains.get(source.value, 0.0)
    return found.get(source, 0.0) / gain**2 if gain else 0.0


@lru_cache(maxsize=4096)
def evaluation_error(
    coefficients: tuple[float, ...], rescale: float, reach: float, copies: int = 1
) -> float:
    """Root mean square error of a sum's own products, in the worst part of [-reach, reach].

    Args:
        coefficients: of the sum.
        rescale: see `NoiseModel`.
        reach: the greatest magnitude of an argument.
        copies: number of copies of the argument that share the sum.
    """
    plan = plan_chebyshev(coefficients, copies)
    points = max(_SLOTS // copies, _POINTS)
    # Points are denser at both ends, where a sum of a high degree changes fastest.
    arguments = reach * np.sin(np.linspace(-np.pi / 2, np.pi / 2, points))
    results = []
    # Larger than float64's own rounding, so that it can be measured, but still small.
    scale = 2.0**-20 / rescale if rescale else 1.0
    model = NoiseModel(rescale=rescale * scale)
    for noise in (model, None):
        engine = SimEngine(points * copies, _LEVELS, noise=noise)
        argument = engine.encrypt(np.tile(arguments, copies), _LEVELS)
        parts = evaluate_plan(engine, argument, plan, partial(_repeated, points))
        total = sum_of_parts(engine, parts, copies, points)
        results.append(engine.decrypt(total)[:points])
    squares = np.square(results[0] - results[1]).reshape(_PARTS, -1).mean(axis=1)
    return float(np.sqrt(squares.max())) / scale


def _repeated(times: int, coefficient: Coefficient) -> Plaintext:
    """A number, or the slots of one number for each copy."""
    return coefficient if isinstance(coefficient, float) else np.repeat(coefficient, times)
