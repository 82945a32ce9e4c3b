"""Rotations by a plan on real ciphertexts: with the keys that it names, and no others."""

from __future__ import annotations

import numpy as np
import pytest

from atlasc.compilation.lowering import key_model
from atlasc.ir.errors import AtlasError
from atlasc.passes.lowering.keys.choose_rotations import choose_rotations
from atlasc.program.rotation_plan import PlannedEngine

pytest.importorskip("desilofhe", reason="the extra 'desilo' is not installed")

from atlasc.program.key_plan import KeyPlan
from atlasc_comparisons.desilo.engine import DesiloEngine
from atlasc_comparisons.desilo.keys import KeySet
from atlasc_comparisons.desilo.parameters import DesiloParameters

pytestmark = pytest.mark.encrypted

SMALL = DesiloParameters(14, 1)
BABY = (1, 2, 3, 4, 5, 6, 7)
USES = {(6, BABY): 2, (3, BABY): 1, (2, (1024,)): 9, (6, (1024,)): 1, (6, (1025,)): 1}


def test_composed_rotations_of_real_ciphertexts() -> None:
    model = key_model(SMALL)
    full = choose_rotations(USES, model, SMALL.slots)
    plan = choose_rotations(USES, model, SMALL.slots, model.size(full.keys) // 2)
    assert plan.composed
    keys = KeySet.generate(SMALL, KeyPlan(dict(plan.keys)))
    real = DesiloEngine(keys)
    assert set(keys.plan.rotations) == set(plan.keys)
    engine = PlannedEngine(real, plan)
    x = np.random.default_rng(0).uniform(-1, 1, SMALL.slots)
    for level, amounts in USES:
        ciphertext = engine.encrypt(x, level)
        for amount, turned in zip(amounts, engine.rotate_many(ciphertext, amounts), strict=True):
            assert engine.level(turned) == level
            np.testing.assert_allclose(engine.decrypt(turned), np.roll(x, -amount), atol=1e-10)
    with pytest.raises(AtlasError, match="rotate is impossible"):
        engine.rotate(engine.encrypt(x), 77)
