"""A bootstrap on paper: real ciphertexts whose modulus is raised, then the record on their slots.

Exact polynomials over the integers up to the raised modulus; from there on the slots, in double
precision, with or without the errors that CKKS adds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest
from ckks_ring import Complexes, polynomial_of, raised, slots_of

from atlasc.program.bootstrap.circuit import circuit, reduction_of
from atlasc.program.bootstrap.sets import SETS, BootstrapSet
from atlasc.program.counting_engine import counts_of
from atlasc.program.engine import Engine
from atlasc.program.plaintexts import Slots as Descriptor
from atlasc.program.plaintexts import built
from atlasc.program.transform_work import TransformTerm
from atlasc.targets.ckks.parameters import BOOTSTRAP_ERROR

NAMES = ["fourteen_levels", "fifteen_levels_40", "fifteen_levels_40_fewer_keys",
         "fourteen_levels_fewest_keys"]  # fmt: skip
"""Both chains of moduli, and each number of baby steps."""


@dataclass(frozen=True)
class Slots:
    """Slots and a level."""

    values: Complexes
    level: int


class PaperEngine(Engine[Slots]):
    """Cleartext slots whose modulus is raised as a real ciphertext's is.

    With ``rescalings`` every rescaling and every key switch adds the error of CKKS: both components
    rounded, and the secret dense (h = 2N/3). A sum of products with diagonals is rescaled so many
    times: once, as a fast library does. Nothing errs where it is zero.
    """

    def __init__(self, chosen: BootstrapSet, slots: int, seed: int, rescalings: int = 0) -> None:
        super().__init__(slots, chosen.top)
        self.chosen, self.rescalings = chosen, rescalings
        self.rng = np.random.default_rng(seed)
        self.integers = 0.0

    def error(self, level: int, factor: float = 1.0) -> Complexes:
        """The rounding of a ciphertext at the scale of a level."""
        if not self.rescalings:
            return np.zeros(self.slots, complex)
        degree = 2 * self.slots
        deviation = np.sqrt(degree * (1 + 2 * degree / 3) / 12)
        deviation *= factor / 2.0 ** self.chosen.log_scales[level] / np.sqrt(2)
        return np.asarray(deviation * (self.rng.normal(size=(2, self.slots)).T @ (1, 1j)))

    def raise_modulus(self, ciphertext: Slots, level: int, copies: int) -> Slots:
        assert ciphertext.level == 0
        base, scale = self.chosen.base_bits, 2.0**self.chosen.scale_bits
        encoded = np.rint(polynomial_of(ciphertext.values) * scale).astype(np.int64)
        weight = min(self.chosen.secret_weight, self.slots)
        coefficients = raised(encoded, 2**base, weight, self.rng) / 2.0**base
        self.integers = max(self.integers, float(np.abs(coefficients).max()))
        unit = 2.0 ** (self.chosen.log_scales[-1] - self.chosen.log_scales[level])
        whole = unit * slots_of(coefficients)
        return Slots(np.tile(whole.reshape(copies, -1).mean(0), copies), level)

    def add(self, left: Slots, right: Slots) -> Slots:
        return Slots(left.values + right.values, min(left.level, right.level))

    def sub(self, left: Slots, right: Slots) -> Slots:
        return Slots(left.values - right.values, min(left.level, right.level))

    def negate(self, ciphertext: Slots) -> Slots:
        return Slots(-ciphertext.values, ciphertext.level)

    def add_plain(self, ciphertext: Slots, value: Any) -> Slots:
        return Slots(ciphertext.values + value, ciphertext.level)

    def times_i(self, ciphertext: Slots) -> Slots:
        return Slots(1j * ciphertext.values, ciphertext.level)

    def conjugate(self, ciphertext: Slots) -> Slots:
        level = ciphertext.level
        return Slots(ciphertext.values.conj() + self.error(level), level)

    def square(self, ciphertext: Slots) -> Slots:
        return self.mul(ciphertext, ciphertext)

    def _dot(self, lefts: Sequence[Slots], rights: Sequence[Slots], level: int) -> Slots:
        pairs = zip(lefts, rights, strict=True)
        total = sum((x.values * y.values for x, y in pairs), self.error(level - 1))
        return Slots(total, level - 1)

    def mul_plain(self, ciphertext: Slots, value: Any) -> Slots:
        level = self._require_level("mul_plain", ciphertext) - 1
        return Slots(ciphertext.values * value + self.error(level), level)

    def _rotate(self, ciphertext: Slots, amount: int) -> Slots:
        return Slots(np.roll(ciphertext.values, -amount), ciphertext.level)

    def rotate_many(self, ciphertext: Slots, amounts: Sequence[int]) -> list[Slots]:
        return [self.rotate(ciphertext, amount) for amount in amounts]

    def transform(
        self, ciphertexts: Sequence[Slots], terms: Sequence[TransformTerm], chained: bool = False
    ) -> list[Slots]:
        """Rotations of the operand err at its scale, before the products; a row of the matrix has a
        norm."""
        [ciphertext] = ciphertexts
        level, total = ciphertext.level, np.zeros(self.slots, complex)
        norm = 0.0
        for baby, giant, value, *_ in terms:
            total += np.roll(np.roll(ciphertext.values, -baby) * value, -giant)
            norm += float(np.mean(np.abs(value) ** 2))
        errors = self.error(level, np.sqrt(norm))
        errors += self.error(level - 1, np.sqrt(self.rescalings))
        return [Slots(total + errors, level - 1)]

    def _drop_to(self, ciphertext: Slots, level: int) -> Slots:
        return Slots(ciphertext.values, level)

    def _encrypt(self, vector: Any, level: int) -> Slots:
        return Slots(vector.astype(complex), level)

    def decrypt(self, ciphertext: Slots) -> Any:
        return ciphertext.values.real

    def _made(self, slots: Descriptor, array: object) -> Complexes:
        return numbers(slots, self.slots)

    def _bootstrap(self, ciphertexts: Sequence[Slots], level: int) -> list[Slots]:
        raise AssertionError("a bootstrap within a bootstrap")


@cache
def numbers(plaintext: Descriptor, slots: int) -> Complexes:
    return np.asarray(built(plaintext, slots, lambda argument: np.zeros(0)))


def bootstrapped(
    engine: PaperEngine, name: str, messages: list[Complexes], period: int | None = None
) -> list[Slots]:
    """What comes back of slots in ciphertexts with the levels of StC left."""
    function = circuit(name, engine.slots, period or engine.slots)[len(messages) - 1]
    operands = [[Slots(message, engine.chosen.stc_stages)] for message in messages]
    result = engine.play(function, operands)
    assert [one.level for one in result] == [engine.chosen.levels] * len(messages)
    assert engine.integers > 1.5  # the integers are there
    return result


def messages(slots: int, rng: np.random.Generator) -> dict[str, Complexes]:
    """Real slots of amplitude 1; a constant is the worst that a sine can meet."""
    return {
        "ones": np.ones(slots, complex),
        "uniform": rng.uniform(-1, 1, slots).astype(complex),
        "signs": rng.choice((-1.0, 1.0), slots).astype(complex),
        "one coefficient": slots_of(np.eye(1, 2 * slots, slots)[0]).real.astype(complex),
    }


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("log_degree", [4, 6, 8, 10])
def test_every_message_comes_back(log_degree: int, name: str) -> None:
    slots, chosen = 2 ** (log_degree - 1), SETS[name]
    # The rest is the rounding of the coefficients.
    bound = reduction_of(chosen, 2**15).error_bound(chosen.ratio)
    bound += 2.0**-chosen.scale_bits / chosen.shrink
    engine = PaperEngine(chosen, slots, log_degree)
    known = list(messages(slots, engine.rng).items())
    for at, (label, message) in enumerate(known):
        _, other = known[at - 1]
        for given in ([message], [message, other]):
            for found, slots_of_one in zip(bootstrapped(engine, name, given), given, strict=True):
                error = np.abs(found.values - slots_of_one).max()
                assert error <= 1.01 * bound <= 2.0**-20, label


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("log_degree", [6, 7, 10])
def test_slots_that_repeat_come_back_narrowly(log_degree: int, name: str) -> None:
    slots, chosen = 2 ** (log_degree - 1), SETS[name]
    for period in (1 << power for power in range(log_degree - 1)):
        engine = PaperEngine(chosen, slots, period)
        x, y = (np.tile(engine.rng.uniform(-1, 1, period), slots // period) for _ in range(2))
        for given in ([x], [x, y]):
            messages = [one.astype(complex) for one in given]
            for found, one in zip(bootstrapped(engine, name, messages, period), given, strict=True):
                assert np.abs(found.values - one).max() <= 2.0**-16


def test_a_narrow_bootstrap_loses_what_does_not_repeat() -> None:
    engine = PaperEngine(SETS["fourteen_levels"], 64, 5)
    x = engine.rng.uniform(-0.5, 0.5, 64)
    [found] = bootstrapped(engine, "fourteen_levels", [x.astype(complex)], 16)
    assert np.abs(found.values - np.tile(x.reshape(4, 16).mean(0), 4)).max() < 2.0**-16


def test_an_imaginary_part_is_the_partners() -> None:
    engine = PaperEngine(SETS["fourteen_levels"], 64, 3)
    x, y = (engine.rng.uniform(-0.5, 0.5, 64).astype(complex) for _ in range(2))
    both = bootstrapped(engine, "fourteen_levels", [x + 0.25j, y])
    assert np.abs(both[0].values - x).max() < 2.0**-16
    assert np.abs(both[1].values - y - 0.25).max() < 2.0**-16
    [alone] = bootstrapped(engine, "fourteen_levels", [x + 0.25j])
    assert np.abs(alone.values - x).max() < 2.0**-16


@pytest.mark.parametrize(
    ("name", "bits"),
    [("fourteen_levels", 20), ("fifteen_levels_40", 18), ("fifteen_levels_40_fewest_keys", 18)],
)
def test_precision_at_full_size_with_the_errors_of_ckks(name: str, bits: float) -> None:
    """docs/bootstrapping.md has the largest errors and the standard deviations."""
    slots = 2**15
    given = list(messages(slots, np.random.default_rng(5)).values())[:2]
    for rescalings in (0, 1):
        engine = PaperEngine(SETS[name], slots, 6, rescalings)
        found = bootstrapped(engine, name, given)
        errors = [
            (one.values - slots_of_one).real for one, slots_of_one in zip(found, given, strict=True)
        ]
        largest = [-np.log2(np.abs(one).max()) for one in errors]
        deviations = [-np.log2(np.sqrt(np.mean(one**2))) for one in errors]
        print(f"{name}, {rescalings} rescalings: bits of ones and of uniform slots", end=" ")
        print(f"{largest}, root mean squares {deviations}")
    assert min(largest) >= bits
    assert min(deviations) > -np.log2(BOOTSTRAP_ERROR)


@pytest.mark.parametrize("name", NAMES)
def test_narrow_bootstraps_err_no_more(name: str) -> None:
    slots, errors = 2**12, {}
    for period in (2**10, 2**6):
        x = np.random.default_rng(period).uniform(-1, 1, period)
        given = [np.tile(x, slots // period).astype(complex)] * 2
        for used in (slots, period):
            found = bootstrapped(PaperEngine(SETS[name], slots, 6, 1), name, given, used)
            errors[used] = float(np.std((found[0].values - given[0]).real))
        print(f"period {period}: {errors[slots]:.2g}, narrowly {errors[period]:.2g}")
        assert errors[period] < 1.2 * errors[slots]


def test_rotation_keys_at_full_size() -> None:
    counts = counts_of(circuit("fourteen_levels", 2**15, 2**15).two)
    levels = counts.rotation_levels
    assert len(levels) == 38  # stages of CtS and StC of the same size share them
    assert max(levels.values()) == 28
    assert all(0 < amount < 2**15 for amount in levels)
    assert counts.conjugation_level == 25
    for period in (1 << power for power in range(15)):
        narrow = counts_of(circuit("fourteen_levels", 2**15, period).two)
        assert set(narrow.rotation_levels) <= set(levels)
        assert max(narrow.rotation_levels.values()) <= 28
        assert narrow.conjugation_level == 25
        assert narrow.key_switches < counts.key_switches


@pytest.mark.parametrize("name", NAMES)
def test_the_record_shares_what_it_repeats(name: str) -> None:
    one, two = circuit(name, 2**10, 2**10)
    diagonals = [
        [instruction.plaintexts for instruction in function.code if instruction.numbers[1:]]
        for function in (one, two)
    ]
    assert diagonals[0] == diagonals[1]
