"""A bootstrap on paper: real ciphertexts whose modulus is raised, then the core on their slots.

Exact polynomials over the integers up to the raised modulus; from there on the slots, in double
precision, with or without the errors that CKKS adds.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

import numpy as np
import pytest
from bootstrap_core import Core
from ckks_ring import Complexes, Reals, polynomial_of, raised, slots_of

from atlasc.passes.execution.paterson_stockmeyer import evaluate_plan, plan_chebyshev

WEIGHT = 32


def messages(slots: int, rng: np.random.Generator) -> dict[str, Complexes]:
    """Slots of amplitude 1; a constant is the worst that a sine can meet."""
    return {
        "ones": np.ones(slots, complex),
        "uniform": rng.uniform(-1, 1, slots).astype(complex),
        "phases": np.exp(2j * np.pi * rng.uniform(size=slots)),
        "one coefficient": slots_of(np.eye(1, 2 * slots, slots + 1)[0]),
    }


@dataclass
class Slots:
    """Slots and a level."""

    values: Complexes
    level: int


@dataclass
class NoisyEngine:
    """Cleartext slots that get the error of CKKS with every rescaling: both components rounded,
    and the secret dense (h = 2N/3). Levels are those of the parameters.

    A sum of products with diagonals is rescaled once, as a fast library does, or as many times as
    ``rescalings`` says. Key switches before a rescaling add nothing that counts. Nothing errs where
    it is zero.
    """

    degree: int
    log_scales: list[float]
    rng: np.random.Generator
    rescalings: int

    def error(self, level: int, factor: float = 1.0) -> Complexes:
        """The rounding of a ciphertext at the scale of a level."""
        deviation = np.sqrt(self.degree * (1 + 2 * self.degree / 3) / 12)
        deviation *= factor / 2.0 ** self.log_scales[level] * (self.rescalings > 0) / np.sqrt(2)
        return deviation * (self.rng.normal(size=(2, self.degree // 2)).T @ (1, 1j))

    def level(self, x: Slots) -> int:
        return x.level

    def mul(self, x: Slots, y: Slots) -> Slots:
        return self.dot([x], [y])

    def square(self, x: Slots) -> Slots:
        return self.mul(x, x)

    def dot(self, xs: list[Slots], ys: list[Slots]) -> Slots:
        level = min(c.level for c in (*xs, *ys)) - 1
        total = sum(x.values * y.values for x, y in zip(xs, ys))
        return Slots(total + self.error(level), level)

    def mul_plain(self, x: Slots, value: float) -> Slots:
        return Slots(x.values * value + self.error(x.level - 1), x.level - 1)

    def dot_plain(self, xs: list[Slots], values: list[float]) -> Slots:
        return reduce(self.add, map(self.mul_plain, xs, values))

    def add(self, x: Slots, y: Slots) -> Slots:
        return Slots(x.values + y.values, min(x.level, y.level))

    def sub(self, x: Slots, y: Slots) -> Slots:
        return Slots(x.values - y.values, min(x.level, y.level))

    def add_plain(self, x: Slots, value: float) -> Slots:
        return Slots(x.values + value, x.level)

    def drop_to(self, x: Slots, level: int) -> Slots:
        return Slots(x.values, level)


def reduced(engine: NoisyEngine, facts: dict[str, list[float]], x: Slots) -> Slots:
    """EvalMod, its steps as the core describes them; these parameters have no arcsine."""
    assert facts["arcsine"][0] == 1
    assert not facts["double_angles"]
    return evaluate_plan(engine, x, plan_chebyshev(np.array(facts["chebyshev"])))


def transformed(
    core: Core, engine: NoisyEngine, x: Slots, name: str, stages: int, factor: float
) -> Slots:
    """CtS or StC. Rotations of the input err at its scale, before the products; a row of a stage of
    g butterflies has a norm of 2^(g/2) in StC and 2^(-g/2) in CtS, times the factor.
    """
    slots = x.values.size
    if engine.rescalings == 0:
        return Slots(core.transform(x.values, name, slots, stages, factor), x.level - stages)
    for stage in range(stages):
        butterflies = (slots.bit_length() - 1) / stages
        norm = factor ** (1 / stages) * 2 ** (butterflies / 2 * (1 if name == "stc" else -1))
        values = core.transform(x.values, name, slots, stages, factor, stage)
        error = engine.error(x.level, norm)
        error += engine.error(x.level - 1, np.sqrt(engine.rescalings))
        x = Slots(values + error, x.level - 1)
    return x


def bootstrapped(
    core: Core,
    facts: dict[str, list[float]],
    message: Complexes,
    rng: np.random.Generator,
    rescalings: int = 0,
) -> Slots:
    """What comes back of slots in a ciphertext with nothing left but q0."""
    degree = 2 * message.size
    ratio = facts["ratio"][0]
    log_base = int(facts["prime_bits"][0])
    scale = 2.0**log_base / ratio
    encoded = np.rint(polynomial_of(message) * scale).astype(np.int64)
    coefficients: Reals = raised(encoded, 2**log_base, WEIGHT, rng) / 2.0**log_base
    assert np.abs(coefficients).max() > 1.5  # the integers are there
    engine = NoisyEngine(degree, facts["log_scales"], rng, rescalings)

    x = Slots(slots_of(coefficients), len(facts["log_scales"]) - 1)
    stages, factors = [int(count) for count in facts["stages"]], facts["factors"]
    x = transformed(core, engine, x, "cts", stages[0], factors[0])
    values, conjugate = x.values, x.values.conj() + engine.error(x.level)
    real = reduced(engine, facts, Slots(values + conjugate, x.level))
    imaginary = reduced(engine, facts, Slots(1j * (conjugate - values), x.level))
    x = Slots(real.values + 1j * imaginary.values, real.level)
    return transformed(core, engine, x, "stc", stages[1], factors[1])


def bits(error: Complexes) -> float:
    """Of precision, in the worst real or imaginary part of all slots."""
    return float(-np.log2(max(np.abs(error.real).max(), np.abs(error.imag).max())))


@pytest.mark.parametrize("log_degree", [6, 8, 10])
def test_every_message_comes_back(core: Core, log_degree: int) -> None:
    facts = core.facts("budget")
    rng = np.random.default_rng(log_degree)
    for label, message in messages(2 ** (log_degree - 1), rng).items():
        result = bootstrapped(core, facts, message, rng)
        assert result.level == facts["levels_left"][0] >= 14
        # The bound holds for N = 2^16; 2^-40 is the rounding of the encoding.
        error = np.abs(result.values - message).max()
        assert error <= facts["error_bound"][0] + 2.0**-40, label
        assert error <= 2.0**-16


def test_precision_at_full_size_with_the_errors_of_ckks(core: Core) -> None:
    facts = core.facts("budget")
    rng = np.random.default_rng(5)
    for label in ("ones", "uniform"):
        message = messages(2**15, rng)[label]
        exact = bootstrapped(core, facts, message, rng)
        noisy = bootstrapped(core, facts, message, rng, rescalings=1)
        found = bits(exact.values - message), bits(noisy.values - message)
        deviation = bits(np.std((noisy.values - message).real, keepdims=True))
        print(
            f"{label}: {found[0]:.1f} bits exactly, {found[1]:.1f} with errors, "
            f"{deviation:.1f} standard deviation"
        )
        assert found[0] > found[1] >= 17.5, label


def test_a_rescaling_for_every_diagonal_costs_a_bit(core: Core) -> None:
    message = np.ones(2**15, complex)
    rng = np.random.default_rng(6)
    found = bootstrapped(core, core.facts("budget"), message, rng, rescalings=63)
    assert bits(found.values - message) == pytest.approx(17.3, abs=0.3)
