"""Random small Transformers: folded, packed and bootstrapped programs compute what they should."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from packed import Arrays, expanded, folded, run_packed
from small_transformers import Builder, Shape, approximate, inputs_for

from atlasc.ir.errors import AtlasError
from atlasc.ir.interpreter import interpret
from atlasc.ir.module import Module
from atlasc.ir.text.parser import parse
from atlasc.ir.text.storage import print_module
from atlasc.passes.framework.pass_base import run_passes
from atlasc.passes.lowering.gather_sums import GatherSums
from atlasc.passes.lowering.pack import Pack
from atlasc.passes.lowering.packing.geometry import least_slots
from atlasc.passes.lowering.place_bootstraps import PlaceBootstraps
from atlasc.passes.lowering.select_early import SelectEarly
from atlasc.program.costs import critical_path
from atlasc.targets.sim import SimEngine

LEVELS = 14


@st.composite
def shapes(draw: st.DrawFn, layers: int = 2) -> Shape:
    rms = draw(st.booleans())
    width = st.integers(1, 3).map(lambda n: 2 * n) if rms else st.integers(1, 7)
    return Shape(
        batch=draw(st.integers(1, 3)),
        tokens=draw(st.integers(1, 9)),
        heads=draw(st.integers(1, 5)),
        width=draw(width),
        hidden=draw(st.integers(1, 39)),
        layers=draw(st.integers(1, layers)),
        pre_norm=draw(st.booleans()),
        rms=rms,
        causal=draw(st.booleans()),
        mask=draw(st.booleans()),
        classes=draw(st.sampled_from([0, 1, 3])),
        token=draw(st.sampled_from([0, 0, 5])),
        mean=draw(st.sampled_from([False, False, False, True])),
        key_norm=draw(st.sampled_from(["", "", "heads", "features"])),
        bias=draw(st.sampled_from(["", "", "hqk", "qk", "hk", "slopes"])),
    )


def program(shape: Shape, seed: int) -> tuple[Module, Arrays]:
    """The poly module of a random model, and inputs."""
    module = Builder(shape, seed).build()
    inputs = inputs_for(shape, seed + 1)
    approximate(module, inputs)
    poly = expanded(module)
    inputs["embedded"] = inputs["x"]
    return poly, inputs


def usable_program(shape: Shape, seed: int) -> tuple[Module, Arrays]:
    """The same, for a property test: no polynomial leaves its range.

    Errors add up from layer to layer, and a norm of few features may then see what it was not
    fitted for.
    """
    poly, inputs = program(shape, seed)
    magnitudes: list[float] = []
    with np.errstate(all="ignore"):
        interpret(poly, inputs, observe=lambda op, y: magnitudes.append(np.abs(y).max()))
    assume(np.isfinite(magnitudes).all() and max(magnitudes) < 1e4)
    return poly, inputs


def packed_program(poly: Module, slots: int, early: bool, low: bool) -> Module:
    """A packed program. Where blocks lie in the places of tokens, the query of one token cannot
    come from a norm; the pipeline then computes all tokens.
    """
    try:
        return run_passes(poly, [*([SelectEarly()] if early else []), Pack(slots, low)])
    except AtlasError as error:
        assume("the query of one token must come from a linear layer" not in error.what)
        raise


def largest_difference(one: np.ndarray, other: np.ndarray) -> float:
    assert one.shape == other.shape
    return float(np.abs(one - other).max() / max(1.0, np.abs(other).max()))


@given(shapes(layers=3), st.integers(0, 999))
def test_folding_changes_nothing(shape: Shape, seed: int) -> None:
    poly, inputs = usable_program(shape, seed)
    result = interpret(folded(poly, inputs), inputs)["y"]
    assert largest_difference(result, interpret(poly, inputs)["y"]) < 1e-9


@given(shapes(layers=3), st.integers(0, 999))
def test_selecting_early_changes_nothing(shape: Shape, seed: int) -> None:
    poly, inputs = usable_program(shape, seed)
    early = run_passes(poly, [SelectEarly()])
    wanted = interpret(poly, inputs)
    for name, result in interpret(early, inputs).items():
        assert largest_difference(result, wanted[name]) < 1e-12


@given(shapes(layers=4), st.integers(0, 999), st.integers(0, 4), st.booleans(), st.booleans())
def test_packed_program_equals_the_poly_module(
    shape: Shape, seed: int, spare: int, early: bool, low: bool
) -> None:
    """With and without the last block computed for the one token that a classifier reads."""
    poly, inputs = usable_program(shape, seed)
    poly = folded(poly, inputs)
    slots = least_slots(poly) << spare
    packed = packed_program(poly, slots, early, low)
    engine = SimEngine(slots, critical_path(packed).total)
    wanted = interpret(poly, inputs)
    for name, result in run_packed(packed, inputs, engine).items():
        assert largest_difference(result, wanted[name]) < 1e-6


@given(shapes(), st.integers(0, 999), st.booleans(), st.booleans(), st.booleans())
def test_bootstrapped_program_equals_the_poly_module(
    shape: Shape, seed: int, gathered: bool, early: bool, low: bool
) -> None:
    """The engine refuses a bootstrap of values outside [−1, 1], so the scales are tested too; two
    ciphertexts share one, with sums of all heads in one ciphertext or not.
    """
    poly, inputs = usable_program(shape, seed)
    poly = folded(poly, inputs)
    slots = 2 * least_slots(poly)
    steps = [*([GatherSums()] if gathered else []), PlaceBootstraps(LEVELS, True, 2)]
    placed = run_passes(packed_program(poly, slots, early, low), steps)
    again = parse(print_module(placed), placed.symbols)
    engine = SimEngine(slots, LEVELS, LEVELS, bootstrap_batch=2)
    result = run_packed(again, inputs, engine)["y"]
    assert largest_difference(result, interpret(poly, inputs)["y"]) < 1e-6


CASES = {
    "heads and scores over several ciphertexts": Shape(heads=5, width=3, tokens=9, batch=1),
    "a batch that fills the ciphertext": Shape(batch=4, tokens=4, heads=3, width=4, mask=True),
    "one token": Shape(batch=2, tokens=1, heads=2, width=3),
    "one feature in a head": Shape(heads=3, width=1, tokens=6, causal=True),
    "tokens as many as heads": Shape(heads=3, width=3, tokens=3, classes=0),
    "more diagonals than features": Shape(heads=2, width=2, tokens=13, mask=True, causal=True),
    "fewer diagonals than features": Shape(heads=2, width=7, tokens=2, classes=0),
    "decoder": Shape(rms=True, causal=True, heads=3, width=6, tokens=7, classes=0, batch=2),
    "post-norm encoder": Shape(pre_norm=False, batch=3, mask=True, layers=2, classes=0),
    "a hidden layer smaller than a head": Shape(heads=2, width=6, hidden=3),
    "last token of a decoder": Shape(rms=True, causal=True, heads=3, width=2, tokens=9, token=8),
    "blocks in the places of tokens": Shape(heads=5, width=3, tokens=13, hidden=39, mask=True),
    "more blocks than places": Shape(heads=2, width=2, tokens=3, hidden=39),
    "a bias that differs by head": Shape(heads=3, width=2, tokens=5, batch=2, bias="hqk"),
    "a bias and later keys": Shape(heads=2, width=4, tokens=6, causal=True, mask=True, bias="qk"),
    "slopes": Shape(heads=3, width=2, tokens=6, batch=2, mask=True, causal=True, bias="slopes"),
    "norms of heads": Shape(rms=True, heads=3, width=4, tokens=5, batch=2, key_norm="heads"),
    "norms of heads, no rotary": Shape(heads=3, width=4, tokens=5, batch=2, key_norm="heads"),
    "norms of all heads": Shape(rms=True, heads=3, width=4, batch=2, key_norm="features"),
    "norms of heads over several ciphertexts": Shape(
        rms=True, heads=5, width=4, tokens=9, classes=0, causal=True, key_norm="heads"
    ),
    "a classifier after norms": Shape(pre_norm=False, batch=2, heads=3, width=3, mask=True),
}


@pytest.mark.parametrize("low", [False, True])
@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_shapes_that_are_easy_to_get_wrong(case: str, early: bool, low: bool) -> None:
    poly, inputs = program(CASES[case], 7)
    poly = folded(poly, inputs)
    slots = least_slots(poly)
    packed = run_passes(poly, [*([SelectEarly()] if early else []), Pack(slots, low)])
    for module in (packed, run_passes(packed, [GatherSums()])):
        result = run_packed(module, inputs, SimEngine(slots, critical_path(module).total))["y"]
        assert largest_difference(result, interpret(poly, inputs)["y"]) < 1e-9


@pytest.mark.parametrize("low", [False, True])
def test_masked_tokens_do_not_leak(low: bool) -> None:
    """Changing what a masked token holds changes no real token's result."""
    shape = Shape(pre_norm=False, batch=2, tokens=5, heads=3, mask=True, classes=2, layers=2)
    poly, inputs = program(shape, 3)
    mask = np.array([[1.0, 1, 1, 0, 0], [1, 1, 0, 0, 0]])
    inputs = {**inputs, "mask": mask}
    other = inputs["embedded"].copy()
    other[mask == 0] = other[::-1][mask == 0] * 0.5
    poly = folded(poly, inputs)
    packed = run_passes(poly, [Pack(least_slots(poly), low)])
    engine = SimEngine(least_slots(poly), critical_path(packed).total)
    one, two = (
        run_packed(packed, {**inputs, "embedded": x}, engine)["y"]
        for x in (inputs["embedded"], other)
    )
    np.testing.assert_allclose(one, two, rtol=0, atol=1e-9)


@pytest.mark.parametrize("low", [False, True])
def test_inputs_of_a_batch_do_not_mix(low: bool) -> None:
    shape = Shape(batch=3, tokens=5, heads=3, width=3, classes=2)
    poly, inputs = program(shape, 4)
    poly = folded(poly, inputs)
    packed = run_passes(poly, [Pack(least_slots(poly), low)])
    engine = SimEngine(least_slots(poly), critical_path(packed).total)
    straight = run_packed(packed, inputs, engine)["y"]
    turned = run_packed(packed, {"embedded": inputs["embedded"][::-1]}, engine)["y"]
    np.testing.assert_allclose(turned, straight[::-1], rtol=0, atol=1e-9)
