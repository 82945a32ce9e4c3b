"""Answers that are none: outside what calibration saw, not finite, or copies that differ."""

from __future__ import annotations

import numpy as np
import pytest
from tiny_model import Tiny

from atlasc.bundle.folder import Bundle, load_bundle
from atlasc.ir.layout import Layout
from atlasc.run import session
from atlasc.targets import find_target
from atlasc.targets.base import no_progress
from tests.atlasc.client.owners import COPIES, OUTSIDE, owners, wrong_shares


@pytest.fixture(scope="module")
def bundle(tiny: Tiny) -> Bundle:
    return load_bundle(tiny.bundle)


def decrypted(tiny: Tiny, bundle: Bundle, count: int) -> dict[str, np.ndarray]:
    """Slots of the answer to the first inputs, with the noise of CKKS."""
    arrays = bundle.load_inputs(tiny.data).take(range(count)).arrays
    engine = find_target("sim").make_engine(
        bundle.program, bundle.parameters, no_progress, noise=True
    )
    packed = bundle.client.query(arrays)
    encrypted = session.encrypt_all(engine, packed)
    results = bundle.server.play(engine, encrypted, packed.public)
    return session.decrypt_all(engine, results)


def test_the_client_knows_the_magnitude_of_answers_in_their_own_units(
    tiny: Tiny, bundle: Bundle
) -> None:
    from atlasc.run.session import simulate

    (output,) = bundle.client.interface.outputs
    arrays = bundle.load_inputs(tiny.data).arrays
    values = simulate(bundle.client, bundle.poly, arrays)["output"]
    seen = output.magnitude
    # A magnitude is rounded up at its fifth digit.
    assert 0.8 * np.abs(values).max() <= seen <= np.abs(values).max() * (1 + 1e-4)


@pytest.mark.parametrize("count", [1, 2])
def test_every_copy_of_a_number_is_found_and_agrees(tiny: Tiny, bundle: Bundle, count: int) -> None:
    slots = decrypted(tiny, bundle, count)
    (output,) = bundle.client.interface.outputs
    layout = Layout.parse(output.layout)
    owner = owners(layout, [2, 3], count)
    # 16,384 slots: 4 features, of which 3 are classes, times 1 of 2 blocks, 512 rows, 4 copies.
    assert (owner >= 0).sum() == 3 * 512 * 4
    assert (owner >= 3).sum() == (3 * 4 if count == 2 else 0)
    assert bundle.client.answers(slots, count).refused == {}


def test_an_answer_far_outside_is_refused_and_the_other_is_shown(
    tiny: Tiny, bundle: Bundle
) -> None:
    slots = decrypted(tiny, bundle, 2)
    (output,) = bundle.client.interface.outputs
    limit = OUTSIDE * output.magnitude / output.factor[0]
    owner = owners(Layout.parse(output.layout), [2, 3], 2)
    for value, refused in ((0.9 * limit, {}), (-1.1 * limit, {1: 1 / 3}), (np.nan, {1: 1 / 3})):
        wild = slots["output"].copy()
        wild[owner == 4] = value
        answers = bundle.client.answers({"output": wild}, 2)
        assert answers.refused == pytest.approx(refused)
        shown = answers.shown()["output"]
        assert np.isnan(shown[1]).all() == bool(refused)
        assert np.isfinite(shown[0]).all()
        assert np.array_equal(
            answers.shown(unchecked=True)["output"][1, 1],
            answers.outputs["output"][1, 1],
            equal_nan=True,
        )


def test_copies_that_differ_are_no_answer_though_each_is_in_range(
    tiny: Tiny, bundle: Bundle
) -> None:
    slots = decrypted(tiny, bundle, 2)["output"]
    (output,) = bundle.client.interface.outputs
    magnitude = output.magnitude / output.factor[0]
    owner = owners(Layout.parse(output.layout), [2, 3], 2)
    last = tuple(np.argwhere(owner == 5)[-1])
    for part, refused in ((0.9 * COPIES, {}), (1.1 * COPIES, {1: 1 / 12})):
        changed = slots.copy()
        changed[last] += part * magnitude
        assert bundle.client.answers({"output": changed}, 2).refused == pytest.approx(refused)
    # What another key decrypts to: small numbers, as far as one can tell.
    noise = np.random.default_rng(0).uniform(-magnitude, magnitude, slots.shape)
    assert list(bundle.client.answers({"output": noise}, 2).refused) == [0, 1]


def test_owners_of_replicated_tokens_and_ciphertexts() -> None:
    layout = Layout.parse("[*:1 d:1 b:1 t:1 | g:1 | b=2 t=2 g=2 d=2]")
    owner = owners(layout, [2, 2, 3], 2)
    assert owner.shape == (2, 16)
    # Two copies of 12 elements; the fourth feature is padding.
    assert sorted(owner[owner >= 0]) == sorted([*range(12), *range(12)])
    assert (owner[:, :8] == owner[:, 8:]).all()
    alone = owners(layout, [2, 2, 3], 1)
    assert set(alone[alone >= 0]) == set(range(6))


def test_every_share_is_that_of_the_oracle(tiny: Tiny, bundle: Bundle) -> None:
    good = decrypted(tiny, bundle, 2)["output"]
    (output,) = bundle.client.interface.outputs
    magnitude = output.magnitude / output.factor[0]
    rng = np.random.default_rng(5)
    for spread in (0.02, 0.07, 0.5, 5.0):
        changed = good + magnitude * spread * rng.standard_normal(good.shape) * (
            rng.random(good.shape) < 0.1
        )
        changed[rng.random(good.shape) < 1e-4] = np.nan
        answers = bundle.client.answers({"output": changed}, 2)
        expected = wrong_shares(output, changed, answers.outputs["output"])
        assert answers.refused == pytest.approx(
            {row: share for row, share in enumerate(expected) if share}
        )
