"""The bootstrapped engine at full size: real keys, real bootstraps. 16 GB and several minutes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from conformance import EngineConformance, rotations

from atlasc.program.engine import Engine, Vector

pytest.importorskip("desilofhe", reason="the extra 'desilo' is not installed")

from atlasc_comparisons.desilo.engine import DesiloEngine
from atlasc_comparisons.desilo.keys import KeySet
from atlasc_comparisons.desilo.parameters import BOOTSTRAPPED

PLAN = rotations(BOOTSTRAPPED.slots)


@pytest.mark.encrypted
@pytest.mark.bootstrap
class TestBootstrapped(EngineConformance):
    # The error of a slot is noise times the secret's value there, so its tail is exponential, not
    # Gaussian: over 32,768 slots the worst is 9 to 12 standard deviations (1.15e-8 for a square),
    # and beyond 22 of them in one check of a billion.
    tolerance = 2.5e-7
    exact = 2e-12
    refreshed = 2e-4
    copies = (8,)

    @pytest.fixture(scope="class")
    @classmethod
    def engine(cls, bootstrap_keys: KeySet) -> Engine[Any]:
        assert bootstrap_keys.plan is not None
        assert set(PLAN) <= set(bootstrap_keys.plan.rotations)
        return DesiloEngine(bootstrap_keys)

    @pytest.fixture(scope="class")
    @classmethod
    def fresh(cls, engine: Engine[Any], x: Vector, y: Vector) -> list[tuple[Vector, Any]]:
        """Slots and what came out of their bootstrap: two ciphertexts shared one, the last did not.

        A mean of 1/4 in the slots: the error must stay below what noise and sine explain. The last
        one's slots repeat. The library has no bootstrap for that, so this is an ordinary one.
        """
        period = engine.slots // cls.copies[0]
        slots = [0.75 * x + 0.25, y, np.tile(0.25 - 0.75 * x[:period], cls.copies[0])]
        encrypted = [engine.encrypt(part, level) for level, part in enumerate(slots)]
        refreshed = engine.bootstrap_many(encrypted[:2])
        refreshed += engine.bootstrap_many(encrypted[2:], period)
        return list(zip(slots, refreshed, strict=True))

    @pytest.mark.parametrize("count", [2])
    def test_bootstrap_many(
        self, engine: Engine[Any], fresh: list[tuple[Vector, Any]], count: int
    ) -> None:
        for slots, ct in fresh[:count]:
            self.check(engine, ct, slots, 14, self.refreshed)

    @pytest.mark.parametrize("count", [1])
    def test_slots_that_repeat(
        self, engine: Engine[Any], fresh: list[tuple[Vector, Any]], count: int
    ) -> None:
        for slots, ct in fresh[-count:]:
            self.check(engine, ct, slots, 14, self.refreshed)

    def test_bootstrap_then_all_levels(
        self, engine: Engine[Any], fresh: list[tuple[Vector, Any]], y: Vector
    ) -> None:
        slots, refreshed = fresh[-1]
        ct, expected = refreshed, slots
        for _ in range(14):
            ct = engine.mul_plain(ct, np.ones(engine.slots))
        self.check(engine, ct, expected, 0, self.refreshed + 14 * self.tolerance)
        product = engine.mul(refreshed, engine.encrypt(y))
        self.check(engine, product, slots * y, 13, self.refreshed)

    def test_the_bootstrap_key_rotates_by_powers_of_two(
        self, engine: Engine[Any], x: Vector
    ) -> None:
        amount = engine.slots - 2
        assert amount not in PLAN
        rotated = engine.rotate_many(engine.encrypt(x, 2), [amount, 1])
        self.check(engine, rotated[0], np.roll(x, 2), 2, self.exact)
        self.check(engine, rotated[1], np.roll(x, -1), 2, self.exact)
