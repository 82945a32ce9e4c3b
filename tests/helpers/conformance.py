"""What every backend has to do: subclass :class:`EngineConformance` and give it an ``engine``.

Each result is compared with the cleartext slots, under a bound that follows from the error of one
product, ``tolerance``. The engine needs rotation keys for :func:`rotations` at its top level.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from atlasc.ir.errors import AtlasError
from atlasc.program.engine import Engine, Vector
from atlasc.program.key_plan import KeyPlan
from atlasc.program.transform_work import TransformTerm
from atlasc.targets.parameters import ParameterSet

LEFT = (1, 5, 64)


def rotations(slots: int) -> tuple[int, ...]:
    """Amounts that the suite rotates by: to the left, by half, and to the right."""
    return (*LEFT, slots // 2, slots - 3)


def every_key(parameters: ParameterSet) -> KeyPlan:
    """All keys of the suite, at the top level."""
    top = parameters.max_level
    return KeyPlan(dict.fromkeys(rotations(parameters.slots), top), top, top)


class EngineConformance:
    """Tests of the protocol.

    Attributes:
        tolerance: largest error of one product of slots in [-1, 1].
        exact: largest error of what does not rescale.
        refreshed: largest error of a bootstrap of slots in [-1, 1] with a mean of 1/4 at most.
        copies: how often slots repeat in ciphertexts of a narrow bootstrap.
    """

    tolerance = 1e-12
    exact = 1e-12
    refreshed = 1e-12
    copies: tuple[int, ...] = (16, 2**20)

    @pytest.fixture(scope="class")
    @classmethod
    def engine(cls) -> Engine[Any]:
        raise NotImplementedError("a subclass provides the engine")

    @pytest.fixture(scope="class")
    @classmethod
    def x(cls, engine: Engine[Any]) -> Vector:
        return np.random.default_rng(1).uniform(-1, 1, engine.slots)

    @pytest.fixture(scope="class")
    @classmethod
    def y(cls, engine: Engine[Any]) -> Vector:
        return np.random.default_rng(2).uniform(-1, 1, engine.slots)

    def check(
        self, engine: Engine[Any], ct: Any, expected: Vector, level: int, bound: float
    ) -> None:
        """The slots of ``ct`` within ``bound`` of ``expected``, at ``level``."""
        assert engine.level(ct) == level
        slots = engine.decrypt(ct)
        assert slots.dtype == np.float64
        assert slots.shape == (engine.slots,)
        assert np.abs(slots - expected).max() <= bound

    # --- protocol

    def test_is_an_engine(self, engine: Engine[Any]) -> None:
        assert isinstance(engine, Engine)
        assert engine.slots & (engine.slots - 1) == 0
        assert engine.max_level >= 2

    # --- in and out

    def test_encrypt_defaults_to_the_top_level(self, engine: Engine[Any], x: Vector) -> None:
        self.check(engine, engine.encrypt(x), x, engine.max_level, self.exact)

    @pytest.mark.parametrize("level", [0, 1, 2])
    def test_encrypt_at_a_level(self, engine: Engine[Any], x: Vector, level: int) -> None:
        self.check(engine, engine.encrypt(x, level), x, level, self.exact)

    def test_encrypt_copies(self, engine: Engine[Any], x: Vector) -> None:
        source = x.copy()
        ct = engine.encrypt(source, 1)
        source[:] = 7.0
        self.check(engine, ct, x, 1, self.exact)

    def test_encrypt_refuses_other_levels_and_lengths(self, engine: Engine[Any], x: Vector) -> None:
        for level in (-1, engine.max_level + 1):
            with pytest.raises(AtlasError, match="level"):
                engine.encrypt(x, level)
        with pytest.raises(AtlasError, match="slots"):
            engine.encrypt(x[:-1])

    def test_encrypt_takes_what_decrypt_can_read(self, engine: Engine[Any]) -> None:
        """Larger numbers came back as others, without a word."""
        for level in (0, 1, engine.max_level):
            taken = 0.0
            for bits in range(4, 240, 3):
                x = np.full(engine.slots, 1.37 * 2.0**bits)
                try:
                    ciphertext = engine.encrypt(x, level)
                except AtlasError:
                    break
                assert np.abs(engine.decrypt(ciphertext) / x - 1).max() < 1e-3
                taken = x[0]
            assert taken > 2.0**7
        with pytest.raises(AtlasError, match=r"encrypt is impossible(.|\n)*scale the input down"):
            engine.encrypt(np.full(engine.slots, 1e30), 0)

    # --- additions

    def test_add_and_sub_align_levels(self, engine: Engine[Any], x: Vector, y: Vector) -> None:
        high, low = engine.encrypt(x), engine.encrypt(y, 1)
        self.check(engine, engine.add(high, low), x + y, 1, self.exact)
        self.check(engine, engine.add(low, high), x + y, 1, self.exact)
        self.check(engine, engine.sub(high, low), x - y, 1, self.exact)
        self.check(engine, engine.sub(low, high), y - x, 1, self.exact)

    def test_negate(self, engine: Engine[Any], x: Vector) -> None:
        self.check(engine, engine.negate(engine.encrypt(x, 2)), -x, 2, self.exact)

    def test_add_plain(self, engine: Engine[Any], x: Vector, y: Vector) -> None:
        ct = engine.encrypt(x, 2)
        self.check(engine, engine.add_plain(ct, y), x + y, 2, self.tolerance)
        self.check(engine, engine.add_plain(ct, -0.75), x - 0.75, 2, self.tolerance)
        self.check(engine, engine.add_plain(ct, 3), x + 3, 2, self.tolerance)
        both = engine.add_plain(ct, 1j * y)
        self.check(engine, both, x, 2, self.tolerance)
        self.check(engine, engine.times_i(both), -y, 2, self.tolerance)

    # --- products

    def test_mul_aligns_and_costs_a_level(self, engine: Engine[Any], x: Vector, y: Vector) -> None:
        high, low = engine.encrypt(x), engine.encrypt(y, 2)
        self.check(engine, engine.mul(high, low), x * y, 1, self.tolerance)
        self.check(engine, engine.mul(low, high), x * y, 1, self.tolerance)
        top = engine.mul(high, high)
        self.check(engine, top, x * x, engine.max_level - 1, self.tolerance)

    def test_square(self, engine: Engine[Any], x: Vector) -> None:
        top = engine.square(engine.encrypt(x))
        self.check(engine, top, x * x, engine.max_level - 1, self.tolerance)
        self.check(engine, engine.square(engine.encrypt(x, 1)), x * x, 0, self.tolerance)

    def test_mul_plain_with_a_vector(self, engine: Engine[Any], x: Vector, y: Vector) -> None:
        product = engine.mul_plain(engine.encrypt(x, 2), y)
        self.check(engine, product, x * y, 1, self.tolerance)

    @pytest.mark.parametrize("factor", [0.3, -2.0, 3, 0, 1, np.float64(0.5)])
    def test_mul_plain_with_a_number_costs_a_level(
        self, engine: Engine[Any], x: Vector, factor: float
    ) -> None:
        product = engine.mul_plain(engine.encrypt(x, 2), factor)
        self.check(engine, product, x * factor, 1, 4 * self.tolerance)

    def test_sums_of_different_histories(self, engine: Engine[Any], x: Vector, y: Vector) -> None:
        """The scales agree whatever was done before: products, plaintexts, numbers, nothing."""
        ct = engine.encrypt(x, 2)
        terms = [
            engine.mul(ct, ct),
            engine.mul_plain(ct, y),
            engine.mul_plain(ct, 0.3),
            engine.encrypt(y, 2),
            engine.drop_to(engine.encrypt(y), 1),
        ]
        total = terms[0]
        for term in terms[1:]:
            total = engine.add(total, term)
        expected = x * x + x * y + 0.3 * x + 2 * y
        self.check(engine, total, expected, 1, 4 * self.tolerance)
        self.check(engine, engine.mul_plain(total, 0.5), expected / 2, 0, 8 * self.tolerance)

    def test_products_down_to_level_zero(self, engine: Engine[Any], x: Vector, y: Vector) -> None:
        """Errors of a chain of products only add up: the scale does not drift."""
        cosine, sine = np.cos(1.0), np.sin(1.0)
        a, b = engine.encrypt(x), y * sine
        ct, expected = a, x.copy()
        for step in range(engine.max_level):
            # z <- cos(1) z + sin(1) y keeps its size, and alternates number and vector.
            scaled = (
                engine.mul_plain(ct, cosine)
                if step % 2
                else engine.mul_plain(ct, np.full(engine.slots, cosine))
            )
            ct, expected = engine.add_plain(scaled, b), cosine * expected + b
        self.check(engine, ct, expected, 0, engine.max_level * self.tolerance)

    def test_squares_down_to_level_zero(self, engine: Engine[Any], x: Vector) -> None:
        """T_(2^n) by doubling: each step quadruples an error at most, in the derivative."""
        steps = min(engine.max_level, 8)
        angle = np.arccos(x)
        ct = engine.encrypt(x, steps)
        for step in range(steps):
            square = engine.square(ct)
            ct = engine.add_plain(engine.add(square, square), -1.0)
            expected = np.cos(2 ** (step + 1) * angle)
            bound = 2 * 4 ** (step + 1) * self.tolerance
            self.check(engine, ct, expected, steps - step - 1, bound)

    def test_dot(self, engine: Engine[Any], x: Vector, y: Vector) -> None:
        """A sum of products, from any levels; one pair is a product."""
        high, low = engine.encrypt(x), engine.encrypt(y, 2)
        total = engine.dot([high, low, high], [low, low, high])
        self.check(engine, total, x * y + y * y + x * x, 1, 3 * self.tolerance)
        self.check(engine, engine.mul(total, low), (x * y + y * y + x * x) * y, 0, 1e-6)
        self.check(engine, engine.dot([high], [low]), x * y, 1, self.tolerance)

    # --- the imaginary part

    def test_two_vectors_in_one(self, engine: Engine[Any], x: Vector, y: Vector) -> None:
        """(x + iy)(a + ib) and its conjugate give the real products that a kernel wants."""
        both = engine.add(engine.encrypt(x, 2), engine.times_i(engine.encrypt(y, 2)))
        self.check(engine, both, x, 2, self.exact)
        product = engine.mul_plain(both, 0.5 * (y + 1j * x))
        other = engine.conjugate(product)
        twice_real, twice_imaginary = (
            engine.add(product, other),
            engine.negate(engine.times_i(engine.sub(product, other))),
        )
        self.check(engine, twice_real, np.zeros(engine.slots), 1, 2 * self.tolerance)
        self.check(engine, twice_imaginary, x * x + y * y, 1, 2 * self.tolerance)
        square = engine.mul(twice_imaginary, twice_imaginary)
        self.check(engine, square, (x * x + y * y) ** 2, 0, 12 * self.tolerance)

    def test_times_i_and_conjugate(self, engine: Engine[Any], x: Vector) -> None:
        turned = engine.times_i(engine.encrypt(x, 2))
        self.check(engine, turned, np.zeros(engine.slots), 2, self.exact)
        self.check(engine, engine.times_i(turned), -x, 2, self.exact)
        self.check(engine, engine.times_i(engine.conjugate(turned)), x, 2, self.exact)

    def test_products_leave_sums_and_rotations_exact(self, engine: Engine[Any], x: Vector) -> None:
        """A factor may be rescaled behind the scenes; what is done with it later is as exact."""
        ct = engine.encrypt(x, 2)
        engine.mul_plain(ct, x)
        self.check(engine, engine.rotate(ct, 5), np.roll(x, -5), 2, self.exact)
        self.check(engine, engine.add(ct, ct), 2 * x, 2, self.exact)

    # --- rotations

    def test_rotate_to_the_left_and_wrap(self, engine: Engine[Any], x: Vector) -> None:
        ct = engine.encrypt(x, 2)
        for amount in (*rotations(engine.slots), -3, engine.slots + 5):
            rotated = engine.rotate(ct, amount)
            self.check(engine, rotated, np.roll(x, -amount), 2, self.exact)
        self.check(engine, engine.rotate(ct, 0), x, 2, self.exact)
        self.check(engine, engine.rotate(ct, engine.slots), x, 2, self.exact)

    def test_rotate_first_slot(self, engine: Engine[Any], x: Vector) -> None:
        slots = engine.decrypt(engine.rotate(engine.encrypt(x, 1), 5))
        assert abs(slots[0] - x[5]) <= self.exact
        assert abs(slots[-5] - x[0]) <= self.exact

    def test_rotate_keeps_the_top_level(self, engine: Engine[Any], x: Vector) -> None:
        rotated = engine.rotate(engine.encrypt(x), 1)
        self.check(engine, rotated, np.roll(x, -1), engine.max_level, self.exact)

    def test_rotate_many_equals_rotate(self, engine: Engine[Any], x: Vector) -> None:
        ct = engine.encrypt(x, 2)
        amounts = [5, 0, 1, 5, -3, engine.slots // 2]
        results = engine.rotate_many(ct, amounts)
        assert len(results) == len(amounts)
        for amount, result in zip(amounts, results, strict=True):
            self.check(engine, result, np.roll(x, -amount), 2, self.exact)
        assert engine.rotate_many(ct, []) == []

    def test_rotate_at_level_zero_and_after_products(self, engine: Engine[Any], x: Vector) -> None:
        ct = engine.rotate(engine.square(engine.encrypt(x, 1)), 64)
        self.check(engine, ct, np.roll(x * x, -64), 0, self.tolerance)

    def transformed(
        self,
        engine: Engine[Any],
        x: Vector,
        y: Vector,
        period: int,
        giants: tuple[tuple[int, ...], tuple[int, ...]],
        chained: bool,
    ) -> None:
        """Two blocks of rows by two of columns, whose diagonals repeat."""
        rng = np.random.default_rng(3)
        babies = (0, 1, 5)
        expected = np.zeros((2, engine.slots), complex)
        terms = []
        for result in range(2):
            for giant in giants[result]:
                for operand, slots in enumerate((x, y)):
                    for baby in babies[operand:]:
                        numbers = rng.uniform(-0.1, 0.1, (2, period))
                        value = np.tile(numbers[0] + 1j * numbers[1], engine.slots // period)
                        terms.append(TransformTerm(baby, giant, value, operand, result))
                        product = np.roll(slots, -baby) * value
                        expected[result] += np.roll(product, -giant)
        operands = [engine.encrypt(x, 2), engine.encrypt(y, 1)]
        found = engine.transform(operands, terms, chained)
        assert len(found) == 2
        for one, slots in zip(found, expected, strict=True):
            self.check(engine, one, slots.real, 0, self.tolerance)
            minus_i = engine.negate(engine.times_i(one))
            self.check(engine, minus_i, slots.imag, 0, self.tolerance)

    @pytest.mark.parametrize("copies", [1, 16, 64])
    def test_transform(self, engine: Engine[Any], x: Vector, y: Vector, copies: int) -> None:
        giants = ((64, 0, engine.slots // 2), (engine.slots // 2, 5))
        self.transformed(engine, x, y, engine.slots // copies, giants, chained=False)

    @pytest.mark.parametrize("copies", [1, 16])
    def test_chained_transform(
        self, engine: Engine[Any], x: Vector, y: Vector, copies: int
    ) -> None:
        """Its giant steps, but the first of a result, have no key of their own."""
        half = engine.slots // 2
        giants = ((0, 64, 128), (5, half + 5, 5 + half + 64))
        self.transformed(engine, x, y, engine.slots // copies, giants, chained=True)

    # --- levels

    def test_drop_to(self, engine: Engine[Any], x: Vector) -> None:
        ct = engine.encrypt(x)
        for level in (engine.max_level, 1, 0):
            self.check(engine, engine.drop_to(ct, level), x, level, self.exact)
        with pytest.raises(AtlasError, match="level"):
            engine.drop_to(engine.encrypt(x, 1), 2)
        with pytest.raises(AtlasError, match="level"):
            engine.drop_to(ct, -1)

    def test_products_at_level_zero_are_refused(self, engine: Engine[Any], x: Vector) -> None:
        bottom = engine.encrypt(x, 0)
        high = engine.encrypt(x, 2)
        for product in (
            lambda: engine.mul(bottom, bottom),
            lambda: engine.mul(high, bottom),
            lambda: engine.square(bottom),
            lambda: engine.mul_plain(bottom, x),
            lambda: engine.mul_plain(bottom, 0.5),
        ):
            with pytest.raises(AtlasError, match="level 0"):
                product()

    def test_operands_are_not_changed(self, engine: Engine[Any], x: Vector, y: Vector) -> None:
        a, b = engine.encrypt(x), engine.encrypt(y, 2)
        engine.add(a, b)
        engine.sub(b, a)
        engine.mul(a, b)
        engine.square(a)
        engine.mul_plain(a, y)
        engine.add_plain(a, 1.0)
        engine.negate(a)
        engine.rotate(a, 1)
        engine.rotate_many(a, [1, 5])
        engine.drop_to(a, 0)
        self.check(engine, a, x, engine.max_level, self.exact)
        self.check(engine, b, y, 2, self.exact)

    # --- bootstrap

    @pytest.mark.parametrize("count", [1, 2, 3])
    def test_bootstrap_many(self, engine: Engine[Any], x: Vector, y: Vector, count: int) -> None:
        """Ciphertexts at different levels, with a mean: none gets anything of its neighbour."""
        slots = [0.75 * x + 0.25, y, 0.25 - 0.75 * x][:count]
        least = engine.bootstrap_from
        encrypted = [engine.encrypt(part, least + at) for at, part in enumerate(slots)]
        if engine.bootstrap_level is None:
            with pytest.raises(AtlasError, match="bootstrap"):
                engine.bootstrap_many(encrypted)
            return
        refreshed = engine.bootstrap_many(encrypted)
        assert len(refreshed) == count
        for part, fresh in zip(slots, refreshed, strict=True):
            self.check(engine, fresh, part, engine.bootstrap_level, self.refreshed)

    @pytest.mark.parametrize("count", [1, 2])
    def test_slots_that_repeat(self, engine: Engine[Any], x: Vector, y: Vector, count: int) -> None:
        """A narrow bootstrap, where an engine has one."""
        if engine.bootstrap_level is None:
            with pytest.raises(AtlasError, match="bootstrap"):
                engine.bootstrap_many([engine.encrypt(x, 0)], engine.slots // 8)
            return
        for copies in self.copies:
            period = max(engine.slots // copies, 1)
            both = (x, 0.25 + 0.75 * y)
            slots = [np.tile(one[:period], engine.slots // period) for one in both][:count]
            least = engine.bootstrap_from
            encrypted = [engine.encrypt(part, least + at) for at, part in enumerate(slots)]
            refreshed = engine.bootstrap_many(encrypted, period)
            for part, fresh in zip(slots, refreshed, strict=True):
                self.check(engine, fresh, part, engine.bootstrap_level, self.refreshed)

    def test_a_bootstrap_begins_at_its_level(self, engine: Engine[Any], x: Vector) -> None:
        if engine.bootstrap_from:
            low = engine.encrypt(x, engine.bootstrap_from - 1)
            with pytest.raises(AtlasError, match=f"below {engine.bootstrap_from}"):
                engine.bootstrap(low)

    def test_a_period_divides_the_slots(self, engine: Engine[Any], x: Vector) -> None:
        for period in (0, 3, 2 * engine.slots):
            with pytest.raises(AtlasError, match="bootstrap"):
                engine.bootstrap_many([engine.encrypt(x, engine.bootstrap_from)], period)

    def test_bootstrap_is_refused_where_there_is_none(self, engine: Engine[Any], x: Vector) -> None:
        if engine.bootstrap_level is None:
            with pytest.raises(AtlasError, match="bootstrap"):
                engine.bootstrap(engine.encrypt(x, 0))
