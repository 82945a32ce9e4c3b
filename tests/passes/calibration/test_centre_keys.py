"""Centred keys: the same outputs, smaller ranges, and a reason where nothing can be done."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from packed import expanded, folded, run_packed
from small_transformers import Builder, Grouped, Shape, approximate, inputs_for

from atlasc.calibration.calibrate import calibrate, read_calibration
from atlasc.calibration.measure import measure
from atlasc.ir.errors import AtlasError
from atlasc.ir.interpreter import Interpreter, interpret
from atlasc.ir.module import Module, Op, Value
from atlasc.ir.opdef import Site
from atlasc.ir.ops.masks import keep_mask
from atlasc.passes.calibration.centre_keys import (
    CentreKeys,
    key_paths,
    key_shifts,
    with_centred_keys,
)
from atlasc.passes.framework.pass_base import Report, run_passes
from atlasc.passes.frontend.canonicalise import Canonicalise
from atlasc.passes.lowering.pack import Pack
from atlasc.passes.lowering.packing.geometry import least_slots
from atlasc.program.costs import critical_path
from atlasc.targets.sim import SimEngine

SHAPES = {
    "encoder": Shape(layers=2, mask=True, pre_norm=False, classes=0, tokens=6),
    "vision": Shape(layers=2, heads=3, tokens=6),
    "causal": Shape(causal=True, mask=True, classes=0, tokens=6),
}
Arrays = dict[str, np.ndarray]


def far_from_centred(module: Module, seed: int = 5) -> Module:
    """The same with long vectors in the biases of the keys: rows differ by what queries tell."""
    rng = np.random.default_rng(seed)
    for name, array in module.symbols.items():
        if name.endswith(".key.bias"):
            module.symbols[name] = 6 * rng.normal(size=array.shape)
    return module


def model(name: str, grouped: bool = False, inputs: int = 40) -> tuple[Module, Arrays]:
    shape = replace(SHAPES[name], heads=4) if grouped else SHAPES[name]
    module = far_from_centred((Grouped if grouped else Builder)(shape, 1).build())
    return module, inputs_for(replace(shape, batch=inputs), 2)


def largest_difference(one: Module, other: Module, arrays: Arrays) -> float:
    y, z = interpret(one, arrays)["y"], interpret(other, arrays)["y"]
    return float(np.abs(y - z).max() / max(1.0, np.abs(y).max()))


def widths(module: Module, arrays: Arrays) -> np.ndarray:
    """[softmaxes, 6] ranges of the rows' log-sums, as if all keys were visible."""
    found = [m.sums for m in measure(module, arrays) if m.sums]
    return np.array([(m.high.max(axis=0) - m.low.min(axis=0))[:, -1] for m in found])


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("name", SHAPES)
def test_means_the_same_with_smaller_ranges(name: str, grouped: bool) -> None:
    module, arrays = model(name, grouped)
    report = Report()
    shifts = key_shifts(module, arrays, report=report)
    centred = with_centred_keys(module, shifts)
    assert len(shifts) == len(report.lines) == SHAPES[name].layers
    assert largest_difference(module, centred, arrays) < 1e-12
    unseen = inputs_for(
        replace(SHAPES[name], heads=4 if grouped else SHAPES[name].heads, batch=40), 9
    )
    before, after = widths(module, unseen), widths(centred, unseen)
    assert (after[:, 0] < 0.7 * before[:, 0]).all()


@given(st.sampled_from(sorted(SHAPES)), st.booleans(), st.integers(1, 4), st.integers(0, 99))
def test_no_vector_changes_an_output(name: str, grouped: bool, width: int, seed: int) -> None:
    shape = replace(SHAPES[name], heads=4, width=width, batch=2)
    module = (Grouped if grouped else Builder)(shape, seed).build()
    rng = np.random.default_rng(seed)
    shifts = {
        path.softmax.value.name: rng.normal(size=path.linear.value.tensor.shape[-1])
        for path in key_paths(module, Report())
    }
    assert len(shifts) == shape.layers
    centred = with_centred_keys(module, shifts)
    assert largest_difference(module, centred, inputs_for(shape, seed)) < 1e-12


def rows_of(module: Module, arrays: Arrays) -> list[tuple[np.ndarray, np.ndarray]]:
    """For each softmax its queries over 1/√d [N, H, n, d] and rows' log-sums [N, H, n], by hand."""
    found: list[tuple[np.ndarray, np.ndarray]] = []
    queries: list[np.ndarray] = []

    def record(op: Op, site: Site, operands: list[np.ndarray]) -> None:
        if op.name == "nn.matmul" and op.attributes["transpose_b"]:
            queries.append(operands[0] / np.sqrt(operands[0].shape[-1]))
        if op.name == "nn.softmax":
            keep = keep_mask(site, operands[0], operands[1] if len(operands) > 1 else None)
            weights = np.exp(operands[0]) * (1.0 if keep is None else keep)
            found.append((queries[-1], np.log(weights.sum(axis=-1))))

    Interpreter(module, np.float64, override=record).run(arrays)
    return found


@pytest.mark.parametrize("grouped", [False, True])
def test_vectors_are_the_least_squares(grouped: bool) -> None:
    """Against one dense problem: a column for each feature of a key head, and a common constant."""
    shape = Shape(heads=4, width=3, tokens=6, classes=0)
    module = (Grouped if grouped else Builder)(shape, 1).build()
    for name, array in module.symbols.items():
        if name.endswith(".key.bias"):  # scores small enough for one iteration, temperature 1
            module.symbols[name] = 2.5 * np.random.default_rng(0).normal(size=array.shape)
    arrays = inputs_for(replace(shape, batch=40), 2)
    [(queries, targets)] = rows_of(module, arrays)
    heads = shape.heads // 2 if grouped else shape.heads
    columns = np.zeros((*queries.shape[:3], heads * shape.width + 1))
    columns[..., -1] = 1
    for head in range(shape.heads):
        first = (head // 2 if grouped else head) * shape.width
        columns[:, head, :, first : first + shape.width] = queries[:, head]
    matrix = columns.reshape(-1, columns.shape[-1])
    expected = np.linalg.lstsq(matrix, targets.ravel(), rcond=None)[0][:-1]
    [shift] = key_shifts(module, arrays).values()
    np.testing.assert_allclose(shift, -expected, rtol=2e-2, atol=2e-2)


def reasons(module: Module, arrays: Arrays) -> list[str]:
    report = Report()
    assert key_shifts(module, arrays, report=report) == {}
    return report.lines


def test_rotary_keys_stay() -> None:
    shape = Shape(rms=True, causal=True, classes=0)
    lines = reasons(Builder(shape, 1).build(), inputs_for(replace(shape, batch=40), 2))
    assert lines == [
        "layer.0.attention: keys stay as they are, a rotary embedding rotates the keys by their "
        "positions"
    ]


def test_few_inputs_tell_nothing() -> None:
    lines = reasons(*model("vision", inputs=29))
    assert lines == ["keys stay as they are, because 29 inputs are fewer than 30"]


def test_rows_that_hardly_differ_need_nothing() -> None:
    shape = Shape(width=2)
    module = Builder(shape, 1).build()
    for name in [name for name in module.symbols if name.endswith((".key", ".key.bias"))]:
        module.symbols[name] = 0.01 * module.symbols[name]
    module.symbols["layer.0.attention.key.weight"] *= 0.01
    [line] = reasons(module, inputs_for(replace(shape, batch=40), 2))
    assert "keys stay as they are, at temperature 1" in line


class SharedKeys(Builder):
    """Its values are its keys."""

    def _attention(self, x: Value, place: str) -> Value:
        keys: list[Value] = []
        heads = super()._heads

        def shared(x: Value, place: str, rotary: bool) -> Value:
            if place.endswith("value"):
                return keys[0]
            keys[:] = [heads(x, place, rotary)]
            return keys[0]

        self._heads = shared  # type: ignore[method-assign]
        return super()._attention(x, place)


def test_keys_that_something_else_reads_stay() -> None:
    shape = Shape()
    lines = reasons(SharedKeys(shape, 1).build(), inputs_for(replace(shape, batch=40), 2))
    assert lines == ["layer.0.attention: keys stay as they are, the keys are used elsewhere"]


class NormedKeys(Builder):
    """Its keys are normalised, as in Qwen3."""

    def _heads(self, x: Value, place: str, rotary: bool) -> Value:
        y = super()._heads(x, place, rotary)
        if not place.endswith("key"):
            return y
        gamma = self.module.constant(f"{place}.gamma", np.ones(self.shape.width))
        return self.module.add("nn.rms_norm", [y], {"gamma": gamma, "epsilon": 1e-5}, place)


def test_keys_behind_something_that_is_not_linear_stay() -> None:
    shape = Shape()
    lines = reasons(NormedKeys(shape, 1).build(), inputs_for(replace(shape, batch=40), 2))
    assert lines == [
        "layer.0.attention: keys stay as they are, the keys come from nn.rms_norm, not from a "
        "linear layer"
    ]


def test_a_linear_layer_without_bias_gets_one() -> None:
    module, arrays = model("vision")
    for op in module.ops:
        if op.name == "nn.linear" and op.location.endswith("key"):
            weight = op.attributes["weight"].name
            module.symbols[weight] = 3 * module.symbols[weight]
            del op.attributes["bias"]
    shifts = {p.softmax.value.name: np.ones(12) for p in key_paths(module, Report())}
    centred = with_centred_keys(module, shifts)
    biases = [op.attributes["bias"].name for op in centred.ops if op.location.endswith("key")
              and op.name == "nn.linear"]  # fmt: skip
    assert len(biases) == 2
    assert all(name.endswith(".weight.bias.centred") for name in biases)
    assert largest_difference(module, centred, arrays) < 1e-12


def test_the_path_of_a_canonical_module() -> None:
    """The factor 1/√d may stand before or behind the product, or in a weight."""
    module, _ = model("vision")
    before, after = (key_paths(m, Report()) for m in (module, run_passes(module, [Canonicalise()])))
    for one, other in zip(before, after, strict=True):
        assert (one.features == other.features).all()
        assert np.allclose(one.gains, 1 / 2)
        assert np.allclose(other.gains, 1)


def test_ranges_of_one_are_refused_for_the_other() -> None:
    module, arrays = model("vision")
    shifts = key_shifts(module, arrays)
    centred = with_centred_keys(module, shifts)
    for mine, other in ((module, centred), (centred, module)):
        calibration = calibrate(mine, arrays)
        softmax = next(op for op in other.ops if op.name == "nn.softmax")
        with pytest.raises(AtlasError, match="has no range"):
            calibration.of(softmax)
    assert [op.name for op in with_centred_keys(centred, shifts).ops] == [
        op.name for op in centred.ops
    ]
    assert largest_difference(centred, with_centred_keys(centred, shifts), arrays) == 0
    with pytest.raises(AtlasError, match="cannot be centred"):
        with_centred_keys(module, {"nothing": np.ones(12)})


def test_the_pass_takes_the_vectors_of_a_calibration(tmp_path: Path) -> None:
    module, arrays = model("encoder")
    shifts = key_shifts(module, arrays)
    centred = with_centred_keys(module, shifts)
    keys = {name: tuple(shift.tolist()) for name, shift in shifts.items()}
    calibration = replace(calibrate(centred, arrays), keys=keys)
    file = tmp_path / "ranges.json"
    file.write_text(json.dumps(calibration.to_dict()))
    assert read_calibration(file) == calibration
    report = Report()
    result = CentreKeys(str(file)).run(module, report)
    assert report.lines == []
    assert largest_difference(result, centred, arrays) == 0
    assert CentreKeys().run(module, report) is module
    assert report.lines == ["no calibration is given"]


@pytest.mark.parametrize("name", SHAPES)
def test_the_packed_program_equals_its_polynomials(name: str) -> None:
    shape = replace(SHAPES[name], batch=2)
    module = Builder(shape, 1).build()
    levels = []
    for shifts in ({}, {p.softmax.value.name: np.linspace(-1, 1, shape.features)
                        for p in key_paths(module, Report())}):  # fmt: skip
        centred = with_centred_keys(module, shifts)
        arrays = inputs_for(shape, 2)
        approximate(centred, arrays)
        arrays["embedded"] = arrays["x"]
        poly = folded(expanded(centred), arrays)
        program = run_passes(poly, [Pack(least_slots(poly))])
        levels.append(critical_path(program).total)
        result = run_packed(program, arrays, SimEngine(least_slots(poly), levels[-1]))["y"]
        np.testing.assert_allclose(result, interpret(poly, arrays)["y"], atol=1e-9)
    assert levels[0] == levels[1]


def test_progress_counts_inputs() -> None:
    done: list[tuple[int, int]] = []
    key_shifts(*model("vision"), progress=lambda *counts: done.append(counts))
    assert done[-1] == (40, 40)
    key_shifts(*model("vision", inputs=200), progress=lambda *counts: done.append(counts))
    assert done[-1] == (128, 128)
