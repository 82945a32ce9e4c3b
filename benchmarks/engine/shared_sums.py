"""What polynomials cost if the copies of a value share them, and what that saves in programs.

    python -m benchmarks.engine.shared_sums
    python -m benchmarks.engine.shared_sums --model DIR [--target cuda] [--tokens 64] [--step]

The first command prints, for 1/sqrt on a range of ratio 500 and several degrees: relinearizations,
products with plaintexts and rotations, predicted seconds at level 14, and errors. Rounding is the
root mean square error in the worst part of the range, in roundings of a factor. The excess says by
how much errors that differ between the copies are multiplied beyond the slope of the sum, for a sum
of size 1. The second command lowers a model by the recipe `is` with nominal ranges, with the shared
sums and without.
"""

from __future__ import annotations

import argparse
from collections import Counter
from contextlib import ExitStack
from unittest.mock import patch

import numpy as np
from numpy.polynomial.chebyshev import chebval

from atlasc.analyses.shared_sums import excess_gain
from atlasc.compilation.noise_bound import evaluation_error
from atlasc.compilation.single_stages import bare_module
from atlasc.compilation.stage_options import InspectOptions
from atlasc.latency.model import LatencyTarget
from atlasc.passes.approximation.approximate import apply_recipe, nominal_calibration
from atlasc.passes.framework.pass_base import run_passes
from atlasc.passes.generation.decode_step import DecodeStep
from atlasc.passes.pipeline import lower_poly, to_poly
from atlasc.polynomials.fits.chebyshev_sum import ChebyshevSum
from atlasc.program.costs import Polynomial, program_costs, seconds_by_level
from atlasc.program.paterson_stockmeyer import plan_chebyshev
from atlasc.targets import find_target

DEGREES, COPIES, LEVEL = (31, 63, 127, 495), (1, 2, 4, 8, 16, 32, 64, 128), 14
ROUNDING = 1e-8
TARGETS = ("cpu", "cuda")


def sums() -> None:
    """One line for each degree and number of copies."""
    tables = {}
    for target in TARGETS:
        latency = LatencyTarget.of(find_target(target))
        tables[target] = latency.costs(latency.choose(1000, 1 << 15))
    print("degree copies levels relin. plain rotations", *TARGETS, "rounding excess")
    for degree in DEGREES:
        coefficients = np.array(ChebyshevSum.fitted("invsqrt", degree, (0.004, 2.0)).coefficients)
        coefficients /= np.abs(chebval(np.linspace(-1, 1, 4001), coefficients)).max()
        given = tuple(coefficients.tolist())
        for copies in (one for one in COPIES if 2 * one <= 1 << degree.bit_length()):
            plan = plan_chebyshev(coefficients, copies)
            profile = Polynomial.of(coefficients).profile(copies)
            seconds = [
                f"{seconds_by_level(profile, plan.levels, tables[target], LEVEL)[LEVEL]:.4f}"
                for target in TARGETS
            ]
            error = evaluation_error(given, ROUNDING, 1.0, copies) / ROUNDING
            excess = excess_gain(given, copies) if copies > 1 else 0.0
            counts = plan.levels, plan.relinearisations, plan.scalar_products
            rotations = copies.bit_length() - 1
            print(degree, copies, *counts, rotations, *seconds, f"{error:.1f} {excess:.2f}")


def program(model: str, target: str, tokens: int | None, step: bool) -> None:
    """The same program twice: every copy evaluates all of a sum, or copies share it."""
    bare = bare_module(model, InspectOptions(sequence_length=tokens))
    _, poly = to_poly(apply_recipe(bare, "is", nominal_calibration(bare)))
    poly = run_passes(poly, [DecodeStep()]) if step else poly
    latency = LatencyTarget.of(find_target(target))
    for shared in (False, True):
        with ExitStack() as stack:
            if not shared:
                stack.enter_context(patch.object(Polynomial, "shared", return_value=None))
            _, lowered, parameters = lower_poly(poly, latency.choose, None, latency.costs)
        costs, table = program_costs(lowered), latency.costs(parameters)
        inside = costs.by(lambda op: op.name)["ckks.chebyshev"].seconds(table)
        sums_ = [op for op in lowered.ops if op.name == "ckks.chebyshev"]
        used = Counter(op.attributes.get("copies", 1) for op in sums_)
        print(
            f"{'shared' if shared else 'alone'}: {costs.total.seconds(table):.3f} s, polynomials "
            f"{inside:.3f} s, {costs.total.bootstraps} bootstraps, "
            f"{costs.total.ciphertext_products} products, {costs.total.key_switches} key switches, "
            f"{len(costs.rotation_keys())} rotation keys; sums by copies: {dict(used)}"
        )


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", help="model or bare config")
    parser.add_argument("--target", default="cuda")
    parser.add_argument("--tokens", type=int, help="length of the window")
    parser.add_argument("--step", action="store_true", help="the step of a decoder")
    given = parser.parse_args()
    if given.model is None:
        sums()
    else:
        program(given.model, given.target, given.tokens, given.step)


if __name__ == "__main__":
    main()
