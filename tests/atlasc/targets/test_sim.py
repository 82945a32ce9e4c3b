"""The simulator keeps the protocol, exactly and with noise, and refuses what CKKS cannot do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from ckks_ring import polynomial_of, slots_of
from conformance import EngineConformance

from atlasc.ir.errors import AtlasError
from atlasc.program.engine import Engine
from atlasc.targets import find_target, target_names
from atlasc.targets.noise import NoiseModel
from atlasc.targets.sim import SimEngine
from atlasc_comparisons.desilo.parameters import noise_model


class TestExact(EngineConformance):
    tolerance = 1e-13
    exact = 0.0

    @pytest.fixture(scope="class")
    @classmethod
    def engine(cls) -> Engine[Any]:
        return SimEngine(slots=256, max_level=12)


class TestBootstrapped(EngineConformance):
    """Two ciphertexts in a bootstrap, with the noise of desilofhe."""

    tolerance = 2e-7
    exact = 2e-12
    refreshed = 2e-4

    @pytest.fixture(scope="class")
    @classmethod
    def engine(cls) -> Engine[Any]:
        noise = noise_model(2**16)
        return SimEngine(32768, 14, 14, bootstrap_batch=2, noise=noise, seed=4)


def test_an_imaginary_part_spoils_the_other_ciphertext_of_a_bootstrap() -> None:
    engine = SimEngine(slots=4, max_level=2, bootstrap_level=2, bootstrap_batch=2)
    x, y = (engine.encrypt(np.full(4, value), 0) for value in (0.5, 0.25))
    spoiled = engine.add(x, engine.times_i(y))
    first, second = engine.bootstrap_many([spoiled, y])
    np.testing.assert_array_equal(engine.decrypt(first), np.full(4, 0.5))
    np.testing.assert_array_equal(engine.decrypt(second), np.full(4, 0.5))
    alone = engine.bootstrap(spoiled)
    np.testing.assert_array_equal(engine.decrypt(alone), np.full(4, 0.5))
    np.testing.assert_array_equal(engine.decrypt(engine.times_i(alone)), np.zeros(4))


class TestNoisy(EngineConformance):
    """With the error of CKKS at N = 2^14, under the bounds that desilofhe keeps there."""

    tolerance = 5e-8
    exact = 2e-12

    @pytest.fixture(scope="class")
    @classmethod
    def engine(cls) -> Engine[Any]:
        return SimEngine(slots=8192, max_level=6, noise=noise_model(2**14), seed=3)


def test_bootstrap_refreshes_and_checks_its_range() -> None:
    engine = SimEngine(slots=8, max_level=14, bootstrap_level=14)
    x = np.linspace(-1, 1, 8)
    fresh = engine.bootstrap(engine.encrypt(x, 0))
    assert engine.level(fresh) == 14
    np.testing.assert_array_equal(engine.decrypt(fresh), x)
    with pytest.raises(AtlasError, match=r"a slot holds 1\.5.* outside \[-1, 1\]"):
        engine.bootstrap(engine.encrypt(1.5 * x))
    with pytest.raises(AtlasError, match="holds nan"):
        engine.bootstrap(engine.encrypt(np.full(8, np.nan)))
    wider = SimEngine(slots=8, max_level=14, bootstrap_level=14, bootstrap_range=2.0)
    assert wider.level(wider.bootstrap(wider.encrypt(1.5 * x))) == 14


def test_values_that_would_wrap_around_are_reported() -> None:
    engine = SimEngine(slots=4, max_level=2)
    with pytest.raises(AtlasError, match="at level 0 only values below 2\\^19 fit"):
        engine.decrypt(engine.encrypt(np.full(4, 1e6), 0))
    assert engine.decrypt(engine.encrypt(np.full(4, 1e6), 1))[0] == 1e6
    with pytest.raises(AtlasError, match="nan"):
        engine.decrypt(engine.encrypt(np.full(4, np.nan)))


def test_a_plan_of_rotation_keys_is_enforced() -> None:
    engine = SimEngine(slots=8, max_level=4, rotation_keys={1: 2, 7: 4})
    ct = engine.encrypt(np.arange(8.0))
    assert engine.decrypt(engine.rotate(ct, 7))[0] == 7.0
    with pytest.raises(AtlasError, match="amount 1 at level 4: its key reaches only level 2"):
        engine.rotate(ct, 1)
    with pytest.raises(AtlasError, match="amount 2 at level 4: there is no key"):
        engine.rotate_many(ct, [0, 2])
    assert engine.decrypt(engine.rotate(engine.drop_to(ct, 2), 1))[0] == 1.0


def test_noise_has_the_size_of_the_model_and_is_seeded() -> None:
    model = NoiseModel(fresh=1e-4, rescale=1e-3, key_switch=1e-2, bootstrap=1e-1)

    def run(seed: int) -> dict[str, np.ndarray]:
        engine = SimEngine(8192, 4, 4, noise=model, seed=seed)
        zero, one = np.zeros(8192), np.ones(8192)
        encrypted = engine.encrypt(zero)
        quiet = SimEngine(8192, 4, 4).encrypt(zero)
        return {
            "fresh": engine.decrypt(encrypted),
            "rescale": engine.decrypt(engine.mul_plain(quiet, one)),
            "key_switch": engine.decrypt(engine.rotate(quiet, 1)),
            "bootstrap": engine.decrypt(engine.bootstrap(quiet)),
        }

    first, again, other = run(1), run(1), run(2)
    for name, slots in first.items():
        expected = getattr(model, name)
        assert abs(slots.std() - expected) <= 0.05 * expected, name
        np.testing.assert_array_equal(slots, again[name])
        assert not np.array_equal(slots, other[name])


def test_ckks_noise_is_what_the_library_shows() -> None:
    """desilofhe 1.17.0 at N = 2^16: 5.5e-8 is the largest of 32,768 slots, whose errors have an
    exponential tail: about 5.5 sigma.
    """
    assert 0.9e-8 <= noise_model(2**16).rescale <= 1.1e-8


def test_a_bootstrap_bends_the_coefficients_of_the_canonical_embedding() -> None:
    slots = np.random.default_rng(0).uniform(-1, 1, 64)
    engine = SimEngine(64, 3, 3, noise=NoiseModel(bootstrap_cubic=0.1))
    polynomial = polynomial_of(slots.astype(complex))
    expected = slots_of(polynomial - 0.1 * polynomial**3).real
    bent = engine.decrypt(engine.bootstrap(engine.encrypt(slots)))
    np.testing.assert_allclose(bent, expected, atol=1e-12)
    assert np.abs(bent - slots).max() > 1e-4


def test_bootstrap_bends_coefficients_as_the_library_does() -> None:
    """Measured on desilofhe 1.17.0: ones, and uniform slots in [-16, 16]."""
    engine = SimEngine(32768, 14, 14, noise=noise_model(2**16), bootstrap_range=16.0)
    ones = np.ones(32768)
    error = engine.decrypt(engine.bootstrap(engine.encrypt(ones))) - ones
    assert abs(error.mean() + 1.606e-3) <= 1e-5
    wide = np.random.default_rng(0).uniform(-16, 16, 32768)
    error = engine.decrypt(engine.bootstrap(engine.encrypt(wide))) - wide
    assert abs(error.std() - 7.374e-5) <= 2e-6


def test_registry() -> None:
    for name in target_names():
        assert find_target(name).name == name and find_target(name).summary
    assert {"sim", "desilo", "phantom"} <= set(target_names())
    with pytest.raises(AtlasError, match="no target 'gpu'"):
        find_target("gpu")
