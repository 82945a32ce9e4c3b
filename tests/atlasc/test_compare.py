"""Two engines in lockstep: the parting op is found, and nothing but live values is kept."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import pytest
from tiny_model import Tiny

from atlasc.backends.noise import NoiseModel
from atlasc.backends.sim import SimCiphertext, SimEngine
from atlasc.bundle import Bundle, load_bundle
from atlasc.client import Packed
from atlasc.compare import BOOTSTRAP_TOLERANCE, TOLERANCE, Pair, PairEngine, compare
from atlasc.ir.errors import AtlasError

SLOTS, TOP = 16384, 16


class Broken(SimEngine):
    """Returns slightly too much for the n-th square."""

    def __init__(self, *, square: int) -> None:
        super().__init__(SLOTS, TOP)
        self.squares = square

    def square(self, ciphertext: SimCiphertext) -> SimCiphertext:
        result = super().square(ciphertext)
        self.squares -= 1
        return self.add_plain(result, 0.01) if self.squares == -1 else result


class Wasteful(SimEngine):
    """Loses a level with every square."""

    def square(self, ciphertext: SimCiphertext) -> SimCiphertext:
        result = super().square(ciphertext)
        return self.drop_to(result, result.level - 1)


@pytest.fixture(scope="module")
def bundle(tiny: Tiny) -> Bundle:
    return load_bundle(tiny.bundle)


@pytest.fixture(scope="module")
def query(tiny: Tiny, bundle: Bundle) -> Packed:
    return bundle.client.query(bundle.load_inputs(tiny.data).take([0, 1]).arrays)


def exact() -> SimEngine:
    return SimEngine(SLOTS, TOP)


def test_equal_engines_do_not_part(bundle: Bundle, query: Packed) -> None:
    result = compare(bundle.program, query, exact(), exact())
    assert [op.op for op in result.ops] == [op.name for op in bundle.program.ops if op.result]
    assert {op.difference for op in result.ops} == {0.0}
    assert result.first is None
    assert {op.tolerance / max(1, op.largest) for op in result.ops} == {TOLERANCE}
    assert TOLERANCE < BOOTSTRAP_TOLERANCE


def test_a_wrong_op_is_found(bundle: Bundle, query: Packed) -> None:
    result = compare(bundle.program, query, exact(), Broken(square=1))
    assert result.first is not None
    squares = [op.value.name for op in bundle.program.ops if op.name == "ckks.square"]
    assert result.first.op in ("ckks.square", "ckks.chebyshev")
    assert result.first.value in squares or result.first.op == "ckks.chebyshev"
    later = result.ops[result.ops.index(result.first) :]
    assert sum(op.parts for op in later) > 1  # everything that depends on it


def test_isolation_blames_one_op_alone(bundle: Bundle, query: Packed) -> None:
    together = compare(bundle.program, query, exact(), Broken(square=1))
    alone = compare(bundle.program, query, exact(), Broken(square=1), isolate=True)
    assert [op.value for op in alone.ops if op.parts] == [together.first.value]  # type: ignore[union-attr]


def test_a_lost_level_is_a_difference(bundle: Bundle, query: Packed) -> None:
    result = compare(bundle.program, query, exact(), Wasteful(SLOTS, TOP), isolate=True)
    assert result.first is not None
    assert result.first.difference < 1e-12
    assert result.first.target_level < result.first.level


def test_noise_is_reported_and_isolated_noise_does_not_grow(bundle: Bundle, query: Packed) -> None:
    noisy = [SimEngine(SLOTS, TOP, noise=NoiseModel.ckks(2 * SLOTS), seed=1) for _ in range(2)]
    together = compare(bundle.program, query, exact(), noisy[0])
    alone = compare(bundle.program, query, exact(), noisy[1], isolate=True)
    assert 0 < together.worst.difference < 1e-4  # type: ignore[union-attr]
    assert sum(op.difference for op in alone.ops) < sum(op.difference for op in together.ops)


def test_a_refused_op_ends_the_comparison_with_its_message(bundle: Bundle, query: Packed) -> None:
    shallow = SimEngine(SLOTS, TOP, rotation_keys={1: 0})
    result = compare(bundle.program, query, exact(), shallow)
    assert result.refused is not None
    assert "there is no key" in result.refused.why
    assert 0 < len(result.ops) < len(bundle.program.ops)


def test_not_a_number_parts(bundle: Bundle, query: Packed) -> None:
    class Spoilt(SimEngine):
        def square(self, ciphertext: SimCiphertext) -> SimCiphertext:
            return self.add_plain(super().square(ciphertext), float("nan"))

        def decrypt(self, ciphertext: SimCiphertext) -> np.ndarray:
            return ciphertext.values

    result = compare(bundle.program, query, exact(), Spoilt(SLOTS, TOP))
    assert result.first is not None
    assert result.first.difference == float("inf")


def test_only_live_values_are_kept(
    bundle: Bundle, query: Packed, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Any] = []
    most = 0

    def remember(self: PairEngine, name: str, *arguments: Any) -> Pair:
        nonlocal most
        pair = both(self, name, *arguments)
        made.append(weakref.ref(pair))
        most = max(most, sum(reference() is not None for reference in made))
        return pair

    both = PairEngine._both
    monkeypatch.setattr(PairEngine, "_both", remember)
    compare(bundle.program, query, exact(), exact())
    assert len(made) > 100
    assert most < len(made) / 4


def test_engines_of_different_parameters_are_refused(bundle: Bundle, query: Packed) -> None:
    with pytest.raises(AtlasError, match="different parameters") as caught:
        compare(bundle.program, query, exact(), SimEngine(SLOTS, TOP - 1))
    assert "max_level is 16 in the reference and 15 in the target" in caught.value.why
