"""Counts per scope, levels, keys and costs, without data."""

from __future__ import annotations

from pathlib import Path

import pytest

from atlasc.ir.errors import AtlasError
from atlasc.program.counting_engine import Counted, CountingEngine
from atlasc.program.engine import Engine
from atlasc.program.kernels.context import nothing
from atlasc.program.live_engine import LiveEngine
from atlasc.program.transform_work import LEAST_REPEATS, MOST_SUMS, TransformTerm, TransformWork
from atlasc.targets import find_target


def test_is_an_engine() -> None:
    assert isinstance(CountingEngine(8, 3), Engine)


def test_counts_by_scope_and_level() -> None:
    engine = CountingEngine(slots=16, max_level=5, bootstrap_level=4)
    ct = engine.encrypt(None)
    engine.scope = "layer.0"
    product = engine.mul(ct, engine.drop_to(ct, 3))
    assert product.level == 2
    engine.square(product)
    engine.mul_plain(ct, object())
    engine.mul_plain(ct, 0.5)
    engine.add_plain(ct, object())
    engine.add_plain(product, -1)
    engine.add(ct, product)
    engine.sub(ct, ct)
    engine.scope = "layer.1"
    engine.rotate(ct, 3)
    engine.rotate(product, 3 - 16)
    engine.rotate(ct, 16)
    assert [c.level for c in engine.rotate_many(product, [0, 1, 2, 17])] == [2, 2, 2, 2]
    assert [c.level for c in engine.rotate_many(ct, [0, 5])] == [5, 5]
    assert engine.bootstrap(product).level == 4

    first, second = engine.counts["layer.0"], engine.counts["layer.1"]
    assert first.primitives == {
        ("mul", 3): 1,
        ("mul_scalar", 3): 1,  # brings it to level 3, with a rescaling
        ("rescale", 3): 2,
        ("square", 2): 1,
        ("rescale", 2): 1,
        ("mul_plain", 5): 1,
        ("mul_scalar", 5): 1,
        ("add_plain", 5): 1,
        ("add_scalar", 2): 1,
        ("add", 2): 1,
        ("add", 5): 1,
    }
    assert (first.key_switches, first.ciphertext_products, first.plaintext_products) == (2, 2, 3)
    assert first.count("rescale") == 3
    assert second.primitives == {
        ("rotate", 5): 2,
        ("rotate", 2): 1,
        ("hoist", 2): 1,
        ("rotate_hoisted", 2): 3,
        ("bootstrap", 4): 1,
    }
    assert second.key_switches == 6
    assert second.bootstraps == 1
    groups = [(5, (3,)), (2, (3,)), (2, (1, 2)), (5, (5,))]
    assert second.rotation_groups == dict.fromkeys(groups, 1)
    assert second.rotation_levels == {3: 5, 1: 2, 2: 2, 5: 5}

    total = engine.total()
    assert total.key_switches == 8
    assert total.rotation_levels == second.rotation_levels
    assert engine.counts[""].primitives == {("encrypt", 5): 1}


def test_dot_is_relinearised_once() -> None:
    engine = CountingEngine(16, 5)
    a, b = Counted(5), Counted(4)
    engine.dot([a, b, a], [b, b, a])
    counts = engine.total()
    assert counts.ciphertext_products == 3
    assert counts.key_switches == 1
    assert (counts.count("mul_lazy"), counts.count("mul"), counts.count("add")) == (2, 1, 2)
    assert counts.count("mul_scalar") == 1  # brings `a` to the level of `b`, with a rescaling
    assert counts.count("rescale") == 2 + 1


def test_conjugations_need_a_key_of_their_own() -> None:
    engine = CountingEngine(16, 5)
    assert engine.total().conjugation_level == -1
    engine.conjugate(engine.times_i(engine.encrypt(None, 3)))
    engine.conjugate(Counted(2))
    assert engine.total().conjugation_level == 3
    assert engine.total().key_switches == 2
    assert not engine.total().rotation_levels


def test_a_transform_has_costs_of_its_own() -> None:
    """Two operands by 0, 1 and -3; two results by 0 and 4, at the lower level of the operands."""
    engine = CountingEngine(64, 5)
    terms = [
        TransformTerm(baby, giant, nothing(16), operand, result)
        for result in range(2)
        for giant in (0, 4)
        for operand in range(2)
        for baby in (0, 1, -3)
    ]
    results = engine.transform([Counted(3), Counted(5)], terms)
    counts = engine.total()
    assert [one.level for one in results] == [2, 2]
    assert counts.primitives == {
        ("hoist", 3): 2,
        ("transform_baby", 3): 4,
        ("transform_giant", 3): 2,
        ("transform_product", 3): 24,
        ("transform_result", 3): 2,
    }
    assert (counts.key_switches, counts.plaintext_products) == (6, 24)
    assert counts.transform_levels == counts.rotation_levels == {1: 3, 61: 3, 4: 3}
    assert not counts.rotation_groups
    engine.mul(*results)  # rescaled already
    assert engine.total().count("rescale") == 0
    engine.rotate(Counted(5), 4)
    engine.rotate(Counted(1), 1)
    assert engine.total().rotation_levels == {1: 3, 61: 3, 4: 5}
    engine.transform([Counted(4)], terms[:1])
    assert engine.total().transform_levels == {1: 3, 61: 3, 4: 3}
    with pytest.raises(AtlasError, match="transform is impossible"):
        engine.transform([Counted(0)], terms[:1])


def work(*terms: TransformTerm) -> TransformWork:
    return TransformWork.of(3, terms, 64)


def test_dense_plaintexts_are_counted_apart() -> None:
    rare, short = nothing(8), nothing(16)
    assert nothing().rolled(3).repeats == 1
    assert short.rolled(3).repeats == (short * rare).repeats * 2 == 16
    mixed = work(TransformTerm(1, 0, rare), TransformTerm(2, 0, short), TransformTerm(3, 0, 0.5))
    assert (mixed.products, mixed.dense) == (1, 2)
    assert mixed.plaintexts == 1 / 8 + 1 / 16 + 1


def test_products_by_zero_are_counted_where_operands_are_multiplied_as_they_are_made() -> None:
    for value, products in ((nothing(16), 6), (nothing(8), 0)):
        terms = [TransformTerm(baby, 0, value, 0, baby) for baby in (0, 1)]
        found = work(*terms, TransformTerm(5, 7, value, 0, 1))
        assert (found.steps, found.results) == (3, 2)
        assert (found.products, found.dense) == (products + 3 * (products > 0), 3 * (not products))


def test_more_giant_steps_than_are_held_repeat_the_baby_steps() -> None:
    cases = [(held, held + more, 1 + more) for held in (MOST_SUMS, 50) for more in (0, 1)]
    for held, steps, passes in cases:
        terms = [
            TransformTerm(baby, giant, nothing(16)) for giant in range(steps) for baby in (1, 2)
        ]
        found = TransformWork.of(3, terms, 64, held)
        assert found.calls["transform_baby"] == 2 * passes
        assert found.calls["transform_giant"] == steps - 1
        assert found.sums == held + 1
        assert found.plaintexts == 2 * held / 16


def test_sums_and_repetitions_are_those_of_the_engine() -> None:
    devices = Path(__file__).resolve().parents[3] / "runtime_cuda" / "devices"
    for target, file in (("cpu", "host/transforms.cpp"), ("cuda", "cuda/transforms.cu"),
                         ("phantom", "phantom/transforms.cu")):  # fmt: skip
        held = find_target(target).parameters.bootstrapped().most_sums
        text = (devices / file).read_text()
        assert f"std::size_t most_sums() {{ return {held}; }}" in text
    runs = (devices / "host/transforms.cpp").read_text()
    assert f"int least_log_run() {{ return {LEAST_REPEATS.bit_length() - 1}; }}" in runs


def test_the_memory_of_a_transform_is_held_beside_the_ciphertexts_of_its_time() -> None:
    engine = LiveEngine(64, 5)
    kept = [engine.encrypt(None, 5), engine.encrypt(None, 3)]
    terms = [TransformTerm(baby, 0, nothing(16), 0, 0) for baby in (0, 1)]
    made = engine.transform(kept[1:], terms)
    assert engine.peaks[TransformWork.of(3, terms, 64)] == {5: 1, 3: 1}
    assert engine.peaks[None] == {5: 1, 3: 1, 2: 1}
    del made
    assert +engine.live == {5: 1, 3: 1}


def test_seconds() -> None:
    engine = CountingEngine(16, 5)
    ct = engine.encrypt(None, 2)
    engine.rotate(engine.mul(ct, ct), 1)
    known = {("encrypt", 2): 1.0, ("mul", 2): 0.5, ("rescale", 1): 4.0}
    assert engine.total().seconds({**known, ("rotate", 1): 0.25}) == 5.75
    with pytest.raises(AtlasError, match="no entry for rotate at level 1"):
        engine.total().seconds(known)  # type: ignore[arg-type]


def test_underflow_names_the_scope() -> None:
    engine = CountingEngine(16, 1)
    bottom = engine.encrypt(None, 0)
    engine.scope = "encoder.layer.3.attention"
    for product in (
        lambda: engine.mul(bottom, bottom),
        lambda: engine.square(bottom),
        lambda: engine.mul_plain(bottom, 2.0),
    ):
        with pytest.raises(AtlasError, match=r"in encoder\.layer\.3\.attention"):
            product()
    with pytest.raises(AtlasError, match="no level 1"):
        engine.drop_to(bottom, 1)
    with pytest.raises(AtlasError, match="bootstrap is impossible"):
        engine.bootstrap(bottom)
    with pytest.raises(AtlasError, match="computes no answers"):
        engine.decrypt(bottom)
    with pytest.raises(AtlasError, match=r"not in 0\.\.1"):
        engine.encrypt(None, 2)
