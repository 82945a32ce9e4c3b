"""The polynomial simulator: what it computes, and what it does not compute again."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from small_transformers import SHAPES, Builder, Shape, inputs_for

from atlasc.calibration.calibrate import calibrate
from atlasc.ir.errors import AtlasError
from atlasc.ir.interpreter import interpret
from atlasc.ir.module import Module
from atlasc.passes.approximation.approximate import (
    apply_recipe,
    apply_settings,
    settings_approximations,
)
from atlasc.passes.approximation.expand import Expand
from atlasc.passes.framework.pass_base import run_passes
from atlasc.polynomials.arithmetic import NumpyArithmetic
from atlasc.polynomials.fits.chebyshev import fit
from atlasc.polynomials.fits.chebyshev_sum import ChebyshevSum
from atlasc.simulation import row_programs, simulate
from atlasc.simulation.blockwise import BlockArithmetic, Blockwise
from atlasc.simulation.row_programs import RowProgram, significant
from atlasc.simulation.simulate import PolynomialSimulator

LAYER = (7, 7, 0, 0, 0, 7, 7, 7)


def model(shape: Shape, settings: tuple = (LAYER, LAYER)) -> tuple[Module, dict[str, np.ndarray]]:
    module, arrays = Builder(shape, 1).build(), inputs_for(shape, 2)
    return apply_settings(module, settings, calibrate(module, arrays, margin=0.1)), arrays


def expanded(module: Module, arrays: dict[str, np.ndarray]) -> np.ndarray:
    """The poly module of `expand`, interpreted."""
    inputs = {"embedded": arrays["x"], **{k: v for k, v in arrays.items() if k != "x"}}
    return interpret(run_passes(module, [Expand()]), inputs)["y"]


@pytest.mark.parametrize("name", SHAPES)
def test_it_computes_what_expand_emits(name: str) -> None:
    module, arrays = model(SHAPES[name])
    outputs = PolynomialSimulator(module, np.float64, threads=1).run(arrays).outputs
    np.testing.assert_allclose(outputs["y"], expanded(module, arrays), rtol=0, atol=1e-11)


@pytest.mark.parametrize("name", ["is", "thor", "arion"])
def test_recipes_too(name: str) -> None:
    shape = SHAPES["vision"]
    module, arrays = Builder(shape, 1).build(), inputs_for(shape, 2)
    module = apply_recipe(module, name, calibrate(module, arrays, margin=0.1))
    simulated = PolynomialSimulator(module, np.float64, threads=1).run(arrays)
    assert simulated.finite
    reference = expanded(module, arrays)
    np.testing.assert_allclose(simulated.outputs["y"], reference, rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", SHAPES)
def test_float32_is_close(name: str) -> None:
    module, arrays = model(SHAPES[name])
    simulator = PolynomialSimulator(module, np.float32, threads=1)
    output = simulator.run(arrays).outputs["y"]
    assert output.dtype == np.float32
    np.testing.assert_allclose(output, expanded(module, arrays), rtol=0, atol=2e-4)
    exact = interpret(module, arrays)["y"]
    np.testing.assert_allclose(simulator.cleartext(arrays)["y"], exact, rtol=0, atol=1e-5)


def test_ops_that_are_not_named_are_exact() -> None:
    module, arrays = model(SHAPES["vision"])
    simulator = PolynomialSimulator(module, np.float64)
    name, approximation = next(iter(simulator.default_approximations().items()))
    one = simulator.run(arrays, {name: approximation}).outputs["y"]
    exact = interpret(module, arrays)["y"]
    np.testing.assert_array_equal(simulator.run(arrays, {}).outputs["y"], exact)
    every = np.abs(simulator.run(arrays).outputs["y"] - exact).mean()
    assert 0 < np.abs(one - exact).mean() < every


@pytest.fixture
def evaluated(monkeypatch):
    """The ops that are really evaluated."""
    seen = []
    evaluate = Blockwise.evaluate
    monkeypatch.setattr(
        Blockwise, "evaluate", lambda self, op, *a: seen.append(op) or evaluate(self, op, *a)
    )
    return seen


def test_an_explosion_stops_the_run_and_names_the_op(evaluated) -> None:
    module, arrays = model(SHAPES["vision"])
    simulator = PolynomialSimulator(module, threads=1)
    chosen = simulator.default_approximations()
    victim = next(op for op in module.ops if op.location == "layer.0.norm2")
    chosen[victim.value.name] = replace(chosen[victim.value.name], range=(1e-6, 1e-5))
    prepared = simulator.prepare(arrays)
    simulated = simulator.run(prepared, chosen)
    assert not simulated.finite
    assert simulated.outputs == {}
    assert simulated.exploded_at == "layer.0.norm2: nn.layer_norm"
    assert evaluated[-1] is victim
    count = len(evaluated)
    later = next(op for op in module.ops if op.location == "layer.1.norm1")
    chosen[later.value.name] = replace(chosen[later.value.name], degree=3)
    assert simulator.run(prepared, chosen) == simulated
    assert len(evaluated) == count, "an equal beginning explodes again without being evaluated"


@pytest.mark.parametrize("native", [True, False])
def test_a_watched_input_that_explodes_disturbs_no_other(native: bool, monkeypatch) -> None:
    if not native:
        monkeypatch.setattr(row_programs, "native_library", lambda: None)
    module, arrays = model(replace(SHAPES["vision"], batch=5))
    alone = PolynomialSimulator(module, np.float64, threads=1).run(arrays).outputs["y"]
    arrays["x"][[1, 4]] *= [[[1e3]], [[np.nan]]]
    simulator = PolynomialSimulator(module, np.float64, threads=1)
    simulated = simulator.run(simulator.prepare(arrays, watched=True))
    assert simulated.finite and simulated.exploded is not None
    assert simulated.exploded.tolist() == [False, True, False, False, True]
    others = simulated.outputs["y"][[0, 2, 3]]
    np.testing.assert_allclose(others, alone[[0, 2, 3]], rtol=0, atol=1e-12)


def test_values_that_are_not_finite_count_as_an_explosion() -> None:
    module, arrays = model(SHAPES["vision"])
    arrays["x"][1, 2, 3] = np.nan
    assert not PolynomialSimulator(module).run(arrays).finite


def test_only_what_changed_is_evaluated_again(evaluated) -> None:
    module, arrays = model(SHAPES["encoder"])
    calibration = calibrate(module, arrays, margin=0.1)
    changed = settings_approximations(module, (LAYER, (6, 7, 0, 0, 0, 6, 7, 5)), calibration)
    simulator = PolynomialSimulator(module, threads=1, memory=1 << 20)
    prepared = simulator.prepare(arrays)
    simulator.run(prepared)
    evaluated.clear()
    reused = simulator.run(prepared, changed).outputs["y"]
    assert {op.layer for op in evaluated} == {1}
    afresh = PolynomialSimulator(module, threads=1).run(arrays, changed).outputs["y"]
    np.testing.assert_array_equal(reused, afresh)
    evaluated.clear()
    simulator.run(prepared)
    assert {op.layer for op in evaluated} == {1}, "the first setting's beginning is still there"


def test_a_softmax_that_is_equal_is_not_evaluated_again(evaluated) -> None:
    module, arrays = model(SHAPES["encoder"])
    calibration = calibrate(module, arrays, margin=0.1)
    changed = settings_approximations(module, ((*LAYER[:7], 2), LAYER), calibration)
    simulator = PolynomialSimulator(module, threads=1, memory=1 << 20)
    prepared = simulator.prepare(arrays)
    first = simulator.run(prepared).outputs["y"]
    evaluated.clear()
    assert np.abs(simulator.run(prepared, changed).outputs["y"] - first).max() > 0
    assert evaluated[0].name == "nn.gelu"
    assert evaluated[0].layer == 0
    usual, other = simulator.default_approximations(), changed
    keys = [simulator.prefix(chosen) for chosen in (usual, other, usual)]
    assert keys[0] == keys[2] != keys[1]


def test_little_memory_keeps_little() -> None:
    module, arrays = model(SHAPES["encoder"])
    simulator = PolynomialSimulator(module, threads=1, memory=1000)
    prepared = simulator.prepare(arrays)
    first = simulator.run(prepared).outputs["y"]
    np.testing.assert_array_equal(simulator.run(prepared).outputs["y"], first)
    snapshots = prepared[0][0].snapshots
    kept = [snapshots.load(key) or {} for key in range(1, 100)]
    assert sum(array.nbytes for values in kept for array in values.values()) <= 1000


def test_the_first_layers_alone() -> None:
    module, arrays = model(SHAPES["encoder"])
    simulator = PolynomialSimulator(module, np.float64, threads=1)
    start = next(op for op in module.ops if op.location.startswith("layer.1"))
    boundary = start.operands[0].name
    seen = {}
    interpret(module, arrays, observe=lambda op, result: seen.update({op.value.name: result}))
    exact = simulator.cleartext(arrays, layers=1)
    assert list(exact) == [boundary]
    np.testing.assert_allclose(exact[boundary], seen[boundary])
    simulated = simulator.run(arrays, layers=1).outputs[boundary]
    assert 0 < np.abs(simulated - exact[boundary]).max() < 0.1
    assert "y" in simulator.run(arrays, layers=2).outputs


def test_inputs_are_divided_alike_whatever_the_threads(monkeypatch) -> None:
    module, arrays = model(replace(SHAPES["decoder"], batch=5))
    whole = PolynomialSimulator(module, np.float64, threads=1).run(arrays).outputs["y"]
    monkeypatch.setattr(simulate, "SMALLEST_PART", 1)
    found = []
    for threads in (1, 3, 9):
        simulator = PolynomialSimulator(module, np.float64, threads=threads, memory=1 << 20)
        prepared = simulator.prepare(arrays)
        assert [len(next(iter(part.values.values()))) for part in prepared[0]] == [1, 1, 1, 2]
        found.append(simulator.run(prepared).outputs["y"])
        np.testing.assert_allclose(found[-1], whole, rtol=0, atol=1e-12)
    assert all(np.array_equal(one, found[0]) for one in found)


@pytest.mark.parametrize(("inputs", "sizes"), [(3, [3]), (9, [2, 7])])
def test_a_few_inputs_go_ahead_of_many(inputs: int, sizes: list[int], monkeypatch) -> None:
    module, arrays = model(replace(SHAPES["vision"], batch=inputs))
    simulator = PolynomialSimulator(module, np.float64, threads=1)
    prepared = simulator.prepare(arrays)
    assert [len(next(iter(part.values.values()))) for (part,) in prepared] == sizes
    alone = np.concatenate(
        [simulator.run({"x": arrays["x"][i : i + 1]}).outputs["y"] for i in range(inputs)]
    )
    np.testing.assert_allclose(simulator.run(prepared).outputs["y"], alone, rtol=0, atol=1e-12)
    evaluated = []
    evaluate = Blockwise.evaluate
    monkeypatch.setattr(
        Blockwise,
        "evaluate",
        lambda self, op, site, arrays, *others: (
            evaluated.append(len(arrays[0])) or evaluate(self, op, site, arrays, *others)
        ),
    )
    chosen = simulator.default_approximations()
    for name, approximation in chosen.items():
        if hasattr(approximation, "range"):
            chosen[name] = replace(approximation, range=(1e-6, 1e-5))
    assert not simulator.run(prepared, chosen).finite
    assert set(evaluated) == {sizes[0]}, "the others are not evaluated where the first explodes"


def test_blocks_of_a_large_tensor_give_the_same(monkeypatch) -> None:
    module, arrays = model(SHAPES["decoder"])
    whole = PolynomialSimulator(module, np.float64, threads=1).run(arrays).outputs["y"]
    monkeypatch.setattr("atlasc.simulation.blockwise.BLOCK", 16)
    for threads in (1, 2):
        output = PolynomialSimulator(module, np.float64, threads=threads).run(arrays).outputs["y"]
        np.testing.assert_allclose(output, whole, rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_skipped_terms_cannot_be_seen_and_explosions_are_kept(dtype: type) -> None:
    coefficients, domain = fit("gelu", 511, (-12.0, 15.0)), (-12.0, 15.0)
    total = ChebyshevSum.of(coefficients, domain)
    tolerance = np.finfo(dtype).eps / 128
    kept = significant(coefficients, tolerance)
    assert kept < 256
    assert np.abs(coefficients[kept:]).sum() <= tolerance * np.abs(coefficients).sum()
    inside = np.linspace(*domain, 5001).astype(dtype)
    block, full = BlockArithmetic(dtype, 1), NumpyArithmetic(dtype, 1)
    skipped = block.step("chebyshev", inside, constant=total)
    exact = full.step("chebyshev", inside, constant=total)
    assert np.abs(skipped - exact).max() <= 4 * np.finfo(dtype).eps * 15
    outside = np.array([0.0, 20.0, np.nan], dtype)
    exploded = block.step("chebyshev", outside, constant=total)
    np.testing.assert_array_equal(exploded[1:], full.step("chebyshev", outside[1:], constant=total))
    assert abs(exploded[1]) > 1e6
    # Whatever else is in its block, an element has the same result.
    mixed = np.concatenate([inside, outside])
    np.testing.assert_array_equal(
        block.step("chebyshev", mixed, constant=total), np.concatenate([skipped, exploded])
    )


def test_mistakes() -> None:
    shape = SHAPES["vision"]
    module, arrays = Builder(shape, 1).build(), inputs_for(shape, 2)
    simulator = PolynomialSimulator(module)
    with pytest.raises(AtlasError, match="has no approximation"):
        simulator.run(arrays)
    with pytest.raises(AtlasError, match="input 'x' is missing"):
        simulator.prepare({})
    plain = Module("plain", "nn")
    x = plain.add("nn.input", [], {"name": "x", "shape": [1], "side": "client", "dtype": "f64"})
    plain.add("nn.output", [x], {"name": "y"})
    with pytest.raises(AtlasError, match="encrypts nothing"):
        PolynomialSimulator(plain)


def test_parts_at_the_same_time_take_the_same_path(monkeypatch) -> None:
    """A slow recording of a row program sends no other part to NumPy, which rounds differently."""
    record = RowProgram.__init__

    def slow(*args: Any) -> None:
        time.sleep(0.01)
        record(*args)

    module, arrays = model(replace(SHAPES["encoder"], batch=4))
    monkeypatch.setattr(simulate, "SMALLEST_PART", 1)
    monkeypatch.setattr(RowProgram, "__init__", slow)
    monkeypatch.setattr(
        BlockArithmetic, "step", lambda *_, **__: pytest.fail("a part was evaluated with NumPy")
    )
    PolynomialSimulator(module, np.float64, threads=4).run(arrays)
