"""What an encrypted greedy argmax over a vocabulary would cost: ``python -m benchmarks.argmax``.

A tournament: each round compares the two halves of what is left, and keeps the larger numbers. A
comparison is a polynomial near the sign, composed of minimax polynomials (Lee, Lee, No, Kim 2021).
The seconds are those of the cost table for bootstraps, products and rotations; the transform from
the one-hot result to the next embedding is left out.
"""

from __future__ import annotations

import argparse
from itertools import product
from pathlib import Path

import numpy as np
from scipy.optimize import linprog

from atlasc.latency.model import LatencyTarget
from atlasc.targets import find_target
from atlasc.targets.costs import costs_of

DEPTHS = {7: 3, 15: 4, 31: 5}
"""Degree of an odd polynomial -> levels."""
PRODUCTS = {7: 4, 15: 7, 31: 11}
"""Degree -> products of ciphertexts, with powers of two and baby steps."""
SLOTS, ERROR, POINTS = 32768, 2.0**-7, 400


def error_of(degree: int, low: float) -> float:
    """Least error of an odd polynomial against the sign on [-1, -low] and [low, 1]."""
    x = np.concatenate([np.geomspace(low, 1, POINTS), np.linspace(low, 1, POINTS)])
    basis, ones = np.polynomial.chebyshev.chebvander(x, degree)[:, 1::2], np.ones((len(x), 1))
    rows = np.block([[basis, -ones], [-basis, -ones]])
    sides = np.concatenate([ones, -ones])[:, 0]
    aim = np.eye(basis.shape[1] + 1)[-1]
    bounds = [(None, None)] * basis.shape[1] + [(0, None)]
    found = linprog(aim, A_ub=rows, b_ub=sides, bounds=bounds, method="highs")
    return float(found.fun) if found.status == 0 else 1.0


def sign(bits: int) -> tuple[int, tuple[int, ...]]:
    """Levels and degrees of the cheapest composition for numbers of at least 2^-bits."""
    best: tuple[int, tuple[int, ...]] = (99, ())
    for length in range(1, 5):
        for degrees in product(DEPTHS, repeat=length):
            levels = sum(DEPTHS[degree] for degree in degrees)
            if levels >= best[0]:
                continue
            low, error = 2.0**-bits, 1.0
            for degree in degrees:
                error = error_of(degree, low)
                low = (1 - error) / (1 + error)
                if low <= 0:
                    break
            if error < ERROR:
                best = levels, degrees
    return best


def seconds(vocabulary: int, copies: int, bits: int) -> tuple[float, int]:
    """Predicted seconds, and bootstraps, of the tournament and of its one-hot result.

    Args:
        vocabulary: number of logits.
        copies: slots that hold each logit: the tokens of a step, or 1.
        bits: numbers that differ by 2^-bits of the range are told apart.
    """
    target = LatencyTarget.of(find_target("cpu"))
    parameters = target.choose(300, SLOTS)
    costs, top = costs_of(parameters), parameters.bootstrap_level
    _, degrees = sign(bits)
    middle = (top or 0) // 2
    work = (sum(PRODUCTS[degree] for degree in degrees) + 1) * costs["mul", middle]
    total, bootstraps, left = 0.0, 0, 1 << (vocabulary - 1).bit_length()
    rounds = [left >> one for one in range(1, left.bit_length())]
    for width in [*rounds, left]:  # the last one compares all logits with the greatest
        parts = -(-width * copies // SLOTS)
        narrow = width * copies * 16 <= SLOTS
        one = costs["bootstrap_narrow" if narrow else "bootstrap_one", top]
        refresh = one if parts == 1 else costs["bootstrap", top] * parts / 2
        total += refresh + parts * (work + costs["rotate", top])
        bootstraps += parts
    return total, bootstraps


def gaps(model: str, data: Path) -> np.ndarray:
    """Differences of the two greatest logits, as shares of the largest range of logits."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    module = AutoModelForCausalLM.from_pretrained(model)
    tokenizer = AutoTokenizer.from_pretrained(model)
    found, widest = [], 0.0
    for text in data.read_text().splitlines():
        ids = tokenizer(text, return_tensors="pt").input_ids[:, :64]
        with torch.no_grad():
            logits = module.eval()(ids).logits[0]
        top = logits.topk(2).values
        found.append((top[:, 0] - top[:, 1]).numpy())
        widest = max(widest, float((logits.amax(-1) - logits.amin(-1)).max()))
    return np.concatenate(found) / widest


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vocabulary", type=int, nargs="+", default=[4096, 49152])
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--bits", type=int, default=12)
    parser.add_argument("--model", default="")
    parser.add_argument("--data", type=Path)
    given = parser.parse_args()
    if given.model:
        shares = gaps(given.model, given.data)
        for bits in (8, 10, 12, 14, 16):
            near = float((shares < 2.0**-bits).mean())
            print(f"{near:.2%} of {len(shares)} tokens: two logits within 2^-{bits} of the range")
    levels, degrees = sign(given.bits)
    print(f"a comparison to 2^-{given.bits}: degrees {degrees}, {levels} levels")
    for vocabulary in given.vocabulary:
        for copies in (1, given.tokens):
            total, bootstraps = seconds(vocabulary, copies, given.bits)
            print(
                f"vocabulary {vocabulary}, each logit in {copies} slots: {total:.0f} s, "
                f"{bootstraps} bootstraps of a ciphertext"
            )


if __name__ == "__main__":
    main()
