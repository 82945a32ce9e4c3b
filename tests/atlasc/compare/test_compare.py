"""Two engines in lock-step: the wrong op is found, and nothing but live values is kept."""

from __future__ import annotations

import json
import math
import weakref
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_model import LENGTH, Tiny, write_ids

from atlasc.bundle.folder import Bundle, load_bundle
from atlasc.client.program import Packed
from atlasc.compare.checkpoint import Checkpoint, OpError, comparison_identity
from atlasc.compare.compare import Comparison, compare
from atlasc.ir.errors import AtlasError
from atlasc.ir.types import CiphertextType
from atlasc.program.engine import Engine
from atlasc.targets.noise import NoiseModel
from atlasc.targets.sim import SimEngine

SLOTS, TOP = 16384, 16
NOISE = NoiseModel.ckks(2 * SLOTS)


class Stepwise(SimEngine):
    """Plays functions by its own primitives, which a test may change."""

    play = Engine.play


class Broken(Stepwise):
    """Returns slightly too much for the n-th square; else as good or bad as CKKS."""

    def __init__(self, *, square: int, wrong: float = 1e-4, seed: int = 7) -> None:
        super().__init__(SLOTS, TOP, noise=NOISE, seed=seed)
        self.squares, self.wrong = square, wrong

    def square(self, ciphertext: Any) -> Any:
        result = super().square(ciphertext)
        self.squares -= 1
        return self.add_plain(result, self.wrong) if self.squares == -1 else result


class Wasteful(Stepwise):
    """Loses a level with every rotation."""

    def _rotate(self, ciphertext: Any, amount: int) -> Any:
        return self.drop_to(super()._rotate(ciphertext, amount), ciphertext.level - 1)

    def rotate_many(self, ciphertext: Any, amounts: Sequence[int]) -> list[Any]:
        rotated = super().rotate_many(ciphertext, amounts)
        return [self.drop_to(one, one.level - 1) for one in rotated]


@pytest.fixture(scope="module")
def bundle(tiny: Tiny) -> Bundle:
    return load_bundle(tiny.bundle)


@pytest.fixture(scope="module")
def query(tiny: Tiny, bundle: Bundle) -> Packed:
    return bundle.client.query(bundle.load_inputs(tiny.data).take([0, 1]).arrays)


def exact() -> SimEngine:
    return SimEngine(SLOTS, TOP)


def noisy(seed: int) -> SimEngine:
    return SimEngine(SLOTS, TOP, noise=NOISE, seed=seed)


def test_equal_engines_do_not_part(bundle: Bundle, query: Packed) -> None:
    result = compare(bundle.program, query, exact(), exact(), NOISE)
    assert [op.op for op in result.ops] == [op.name for op in bundle.program.ops if op.result]
    assert {op.error for op in result.ops} == {op.difference for op in result.ops} == {0.0}
    assert result.first is None
    assert all(op.bound >= 1e-10 for op in result.ops)


@pytest.mark.parametrize("seed", range(11, 16))
def test_noise_stays_within_the_bounds_that_noise_sets(
    bundle: Bundle, query: Packed, seed: int
) -> None:
    result = compare(bundle.program, query, exact(), noisy(seed), NOISE)
    assert result.first is None
    assert 0 < result.worst.difference < 1e-4  # type: ignore[union-attr]
    # An op alone adds less than all so far; and the bounds are no hundredfold of the errors.
    last = result.ops[-1]
    assert last.error < last.difference
    loud = [op for op in result.ops if op.error > 1e-9]
    assert len(loud) > 10
    assert all(op.bound < 100 * op.error for op in loud)


def test_an_error_of_twenty_deviations_is_found(bundle: Bundle, query: Packed) -> None:
    result = compare(
        bundle.program, query, exact(), Broken(square=1, wrong=20 * NOISE.rescale), NOISE
    )
    assert result.first is not None
    assert result.first is result.ops[-1]
    assert result.first.deviation > result.first.deviation_bound


@pytest.fixture(scope="module")
def bootstrapped(texts: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Bundle, Packed]:
    """A program with bootstraps, and a query for it."""
    folder = tmp_path_factory.mktemp("bootstrapped")
    bundle = load_bundle(texts / "bundle")
    write_ids(folder / "ids.jsonl", [LENGTH])
    inputs = bundle.load_inputs(folder / "ids.jsonl")
    return bundle, bundle.client.query(inputs.arrays)


@pytest.mark.parametrize(
    ("member", "times", "blamed"),
    [
        ("bootstrap", 1, set()),
        ("bootstrap", 10, {"ckks.bootstrap"}),
        ("bootstrap", 700, {"ckks.bootstrap"}),
        ("key_switch", 30, {"ckks.linear_transform", "ckks.rotate_sum"}),
        ("rescale", 30, {"ckks.linear_transform", "ckks.mul_plain", "ckks.mul"}),
        ("fresh", 300, {"ckks.input"}),  # it is far below a rescaling
    ],
)
def test_a_primitive_that_errs_more_than_its_model_says_is_found(
    bootstrapped: tuple[Bundle, Packed], member: str, times: float, blamed: set[str]
) -> None:
    bundle, query = bootstrapped
    shape, noise = bundle.parameters.shape, bundle.parameters.noise_model()
    assert getattr(noise, member) > 0
    faulty = replace(noise, **{member: times * getattr(noise, member)})
    target = SimEngine(*shape, bootstrap_range=np.inf, noise=faulty, seed=1)
    right = SimEngine(*shape, bootstrap_range=np.inf)
    result = compare(bundle.program, query, right, target, noise)
    assert result.refused is None
    assert ({result.first.op} if result.first else set()) <= blamed
    assert (result.first is not None) == bool(blamed)


@pytest.mark.parametrize("wrong", [1e-4, 0.01])
def test_the_wrong_op_is_found_and_ends_the_comparison(
    bundle: Bundle, query: Packed, wrong: float
) -> None:
    result = compare(bundle.program, query, exact(), Broken(square=1, wrong=wrong), NOISE)
    first = result.first
    assert first is not None
    assert first is result.ops[-1]
    assert first.op in ("ckks.square", "ckks.chebyshev")
    assert first.error == pytest.approx(wrong, rel=0.2) or first.op == "ckks.chebyshev"
    assert first.error > first.bound


def test_going_on_blames_no_op_for_the_error_of_another(bundle: Bundle, query: Packed) -> None:
    result = compare(
        bundle.program, query, exact(), Broken(square=1, wrong=0.01), NOISE, keep_going=True
    )
    assert len(result.ops) == sum(op.result is not None for op in bundle.program.ops)
    assert [op for op in result.ops if op.parts] == [result.first]
    assert result.worst.difference > 1e-3  # type: ignore[union-attr]


def test_a_tolerance_bounds_what_has_added_up(bundle: Bundle, query: Packed) -> None:
    result = compare(
        bundle.program, query, exact(), noisy(1), NOISE, tolerance=1e-8, keep_going=True
    )
    parting = [op for op in result.ops if op.parts]
    assert len(parting) > 3
    assert all(op.error <= op.bound for op in parting)


def test_a_lost_level_is_blamed_on_the_op_that_lost_it(bundle: Bundle, query: Packed) -> None:
    first = compare(bundle.program, query, exact(), Wasteful(SLOTS, TOP), NOISE).first
    assert first is not None
    assert first.op == "ckks.replicate"  # the first with rotations
    assert first.error < 1e-12
    assert first.target_level < first.level


def test_a_refused_op_ends_the_comparison_with_its_message(bundle: Bundle, query: Packed) -> None:
    shallow = SimEngine(SLOTS, TOP, rotation_keys={1: 0})
    result = compare(bundle.program, query, exact(), shallow, NOISE)
    assert result.refused is not None
    assert "there is no key" in result.refused.why
    assert 0 < len(result.ops) < len(bundle.program.ops)


def test_not_a_number_parts(bundle: Bundle, query: Packed) -> None:
    class Spoilt(Stepwise):
        def square(self, ciphertext: Any) -> Any:
            return self.add_plain(super().square(ciphertext), float("nan"))

        def decrypt(self, ciphertext: Any) -> np.ndarray:
            try:
                return super().decrypt(ciphertext)
            except AtlasError:  # not a number
                return np.full(SLOTS, np.nan)

    result = compare(bundle.program, query, exact(), Spoilt(SLOTS, TOP), NOISE)
    assert result.first is not None
    assert result.first.error == float("inf")


def test_only_live_values_are_kept(bundle: Bundle, query: Packed) -> None:
    class Remembering(Stepwise):
        def __init__(self) -> None:
            super().__init__(SLOTS, TOP)
            self.made: list[weakref.ref[Any]] = []
            self.most = 0

        def add(self, left: Any, right: Any) -> Any:
            result = super().add(left, right)
            self.made.append(weakref.ref(result))
            self.most = max(self.most, sum(array() is not None for array in self.made))
            return result

    target = Remembering()
    compare(bundle.program, query, exact(), target, NOISE)
    assert len(target.made) > 20
    assert target.most < len(target.made) / 4


def test_engines_of_different_parameters_are_refused(bundle: Bundle, query: Packed) -> None:
    with pytest.raises(AtlasError, match="different parameters") as caught:
        compare(bundle.program, query, exact(), SimEngine(SLOTS, TOP - 1), NOISE)
    assert "max_level is 16 in the reference and 15 in the target" in caught.value.why


def interrupted_and_resumed(bundle: Bundle, query: Packed, path: Path, after: int) -> Comparison:
    """The comparison, killed after some ops and gone on with by another process."""
    state = Checkpoint(path, comparison_identity("p", query, "sim"), every=0.0)
    left = iter(range(after))

    def die(op: object) -> None:
        if next(left, None) is None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compare(
            bundle.program, query, exact(), Broken(square=-1), NOISE, before=die, checkpoint=state
        )
    ran = []
    again = Checkpoint(path, comparison_identity("p", query, "sim"))
    target = Broken(square=1, wrong=0.0, seed=8)
    result = compare(
        bundle.program, query, exact(), target, NOISE, before=ran.append, checkpoint=again
    )
    assert len(ran) == len(bundle.program.ops) - after
    return result


@pytest.mark.parametrize("after", [1, 12, 20])
def test_an_interrupted_comparison_goes_on(
    bundle: Bundle, query: Packed, tmp_path: Path, after: int
) -> None:
    path = tmp_path / "state.npz"
    result = interrupted_and_resumed(bundle, query, path, after)
    assert [op.op for op in result.ops] == [op.name for op in bundle.program.ops if op.result]
    assert result.first is None
    assert 0 < result.worst.difference < 1e-4  # type: ignore[union-attr]
    assert not path.exists()


def test_checkpoints_of_other_comparisons_are_refused(
    bundle: Bundle, query: Packed, tmp_path: Path
) -> None:
    path, identity = tmp_path / "state.npz", comparison_identity("p", query, "sim")
    state = Checkpoint(path, identity, every=0.0)
    assert (state.position, state.ops, state.live) == (0, [], {})
    state.save_now_and_then(3, [], dict)
    state = Checkpoint(path, identity)
    assert (state.position, state.ops, state.live) == (3, [], {})
    with pytest.raises(AtlasError, match="belongs to another comparison"):
        Checkpoint(path, comparison_identity("q", query, "sim"))
    path.write_bytes(b"nothing")
    with pytest.raises(AtlasError, match="cannot be read") as unreadable:
        Checkpoint(path, identity)
    assert unreadable.value.remedy.startswith("delete the file")
    facts = {"identity": identity, "position": 0, "records": [], "levels": {}}
    for name, value in (
        *(("position", -1), ("position", 1e9), ("records", [{}]), ("levels", {"x": [[1], []]})),
        *(("levels", {"x": [[-1], [1]]}), ("levels", {"x": 3}), ("more", 1)),
    ):
        np.savez(path, facts=json.dumps({**facts, name: value}))
        with pytest.raises(AtlasError, match="cannot be read"):
            Checkpoint(path, identity)


def test_a_checkpoint_must_suit_the_program(bundle: Bundle, query: Packed, tmp_path: Path) -> None:
    path = tmp_path / "state.npz"
    identity = comparison_identity("p", query, "sim")
    state = Checkpoint(path, identity, every=0.0)
    values = [
        op.value for op in bundle.program.ops[:5] if isinstance(op.value.type, CiphertextType)
    ]
    good = {v.name: [[(np.ones(SLOTS), 1)] * v.ciphertext.ciphertexts] * 2 for v in values}
    first = values[0].name
    for live in (
        {},
        {**good, "nothing": good[first]},
        {**good, first: [[], []]},
        {**good, first: [[(np.ones(3), 1)]] * 2},
        {**good, first: [[(np.array(["x"] * SLOTS), 1)]] * 2},
        {**good, first: [[(np.ones(SLOTS), TOP + 1)]] * 2},
    ):
        state.save_now_and_then(5, [], lambda live=live: live)
        with pytest.raises(AtlasError, match="does not suit the program"):
            compare(
                bundle.program,
                query,
                exact(),
                exact(),
                NOISE,
                checkpoint=Checkpoint(path, identity),
            )


def test_a_checkpoint_keeps_what_is_no_number(query: Packed, tmp_path: Path) -> None:
    record = OpError("ckks.square", "y", "", 1, 1, math.inf, 0.1, math.nan, 1.0)
    state = Checkpoint(tmp_path / "s.npz", "p", every=0.0)
    state.save_now_and_then(1, [record], dict)
    assert repr(Checkpoint(state.path, "p").ops) == repr([record])
