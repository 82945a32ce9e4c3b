"""expand: nonlinear ops become polynomials of the same meaning; the client's part stays behind."""

from __future__ import annotations

import re

import numpy as np
import pytest

from atlasc.ir.errors import AtlasError
from atlasc.ir.interpreter import interpret
from atlasc.ir.module import Module
from atlasc.ir.opdef import Symbol
from atlasc.ir.text.approximations import read_approximation
from atlasc.ir.text.storage import print_module, print_op
from atlasc.passes.approximation.expand import Expand
from atlasc.passes.framework.pass_base import run_passes
from atlasc.passes.lowering.normalise_affine import NormaliseAffine
from atlasc.polynomials.algorithms.chebyshev import ActivationApproximation
from atlasc.polynomials.fits.chebyshev import fit
from atlasc.polynomials.fits.chebyshev_sum import valid_domain

SERVER = {"side": "server", "dtype": "f64"}
X = np.random.default_rng(0).normal(size=(2, 3, 4))


def nn(op: str, attributes: dict, shape: tuple[int, ...] = (2, 3, 4)) -> Module:
    """A module with one nonlinear op, and the symbols gamma and beta."""
    if "approximation" in attributes:
        attributes |= {"approximation": read_approximation(op, attributes["approximation"])}
    module = Module("m", "nn")
    module.symbols = {"gamma": np.array([1.0, 2, 3, 4]), "beta": np.array([0.5, 0, 1, 0])}
    x = module.add("nn.input", [], {"name": "x", "shape": list(shape), **SERVER}, "", "x")
    y = module.add(op, [x], attributes, "encoder.layer.1", "y")
    module.add("nn.output", [y], {"name": "y"})
    return module


def short(module: Module) -> list[str]:
    """Ops without types, inputs, places and what a sum stands for; floats cut to three digits."""
    left_out = r" loc .*| : tensor<.*$| valid = \[.*?\],| function = .*? gain = 1\.0,"
    lines = [re.sub(left_out, "", print_op(op)) for op in module.ops[1:]]
    return [re.sub(r"-?\d+\.\d+(e-?\d+)?", lambda m: f"{float(m[0]):.3g}", line) for line in lines]


def test_an_activation_becomes_one_chebyshev_sum() -> None:
    entry = {"algorithm": "chebyshev", "degree": 63, "range": [-4.0, 5.0]}
    module = nn("nn.gelu", {"approximation": entry})
    poly = run_passes(module, [Expand()])
    assert short(poly) == [
        "%0 = poly.chebyshev %x {coefficients = @chebyshev.gelu.38, domain = [-4, 5], "
        'part = "gelu"}',
        'poly.output %0 {name = "y"}',
    ]
    assert [op.location for op in poly.ops] == ["", "encoder.layer.1", ""]
    difference = interpret(poly, {"x": X})["y"] - interpret(module, {"x": X})["y"]
    assert np.abs(difference).max() < 1e-8


@pytest.mark.parametrize(("op", "attributes"), [("nn.gelu_tanh", {}), ("nn.silu", {}),
                                                ("nn.tanh", {}), ("nn.gelu", {})])  # fmt: skip
def test_every_activation_keeps_its_meaning(op: str, attributes: dict) -> None:
    entry = {"algorithm": "chebyshev", "degree": 127, "range": [-4.0, 4.0]}
    module = nn(op, {**attributes, "approximation": entry})
    poly = run_passes(module, [Expand()])
    difference = interpret(poly, {"x": X})["y"] - interpret(module, {"x": X})["y"]
    assert np.abs(difference).max() < 1e-9


def test_a_layer_norm_becomes_a_centring_and_the_norm_of_a_mean_square() -> None:
    entry = {"algorithm": "chebyshev", "degree": 127, "range": [0.05, 4.0]}
    names = {"gamma": "gamma", "beta": "beta"}
    symbols = {key: Symbol(value) for key, value in names.items()}
    module = nn("nn.layer_norm", {**symbols, "epsilon": 1e-3, "approximation": entry})
    poly = run_passes(module, [Expand()])
    part = 'part = "layer_norm"'
    assert short(poly) == [
        f"%0 = poly.center %x {{{part}}}",
        f"%1 = poly.square %0 {{{part}}}",
        f"%2 = poly.row_sum %1 {{{part}}}",
        # 4 features: the mean of squares lies between the range less ε, so their sum does times 4.
        "%3 = poly.chebyshev %2 {coefficients = @chebyshev.layer_norm.126, "
        f"domain = [0.196, 16], {part}}}",
        f"%4 = poly.mul %0, %3 {{{part}}}",
        f"%5 = poly.scale %4 {{factor = @gamma, {part}}}",
        f"%6 = poly.add_constant %5 {{value = @beta, {part}}}",
        'poly.output %6 {name = "y"}',
    ]
    difference = interpret(poly, {"x": X})["y"] - interpret(module, {"x": X})["y"]
    assert np.abs(difference).max() < 1e-6


def test_a_sum_says_where_it_is_right() -> None:
    entry = {"algorithm": "chebyshev", "degree": 31, "range": [0.5, 40.0]}
    attributes = {"gamma": Symbol("gamma"), "epsilon": 1e-3, "approximation": entry}
    poly = run_passes(nn("nn.rms_norm", attributes), [Expand()])
    (found,) = [op.attributes["valid"] for op in poly.ops if op.name == "poly.chebyshev"]
    coefficients = fit("invsqrt", 31, (0.5, 40.0))
    assert found == pytest.approx(valid_domain("invsqrt", (0.5, 40.0), coefficients))
    lowered = run_passes(poly, [NormaliseAffine()])
    assert [op.attributes["valid"] for op in lowered.ops if op.name == "poly.chebyshev"] == [found]


def softmax_module(causal: bool, masked: bool) -> Module:
    module = Module("m", "nn")
    shape = {"name": "x", "shape": [1, 2, 3, 3], **SERVER}
    operands = [module.add("nn.input", [], shape, "", "x")]
    if masked:
        entry = {"name": "mask", "shape": [1, 3], "side": "public", "dtype": "f64"}
        operands.append(module.add("nn.input", [], entry, "", "mask"))
    approximation = {
        "algorithm": "iterative", "iterations": [6, 0, 3], "shift": 1.0,
        "sum_ranges": [[0.05, 4.0], [0.003, 1.2], [0.003, 1.2]],
    }  # fmt: skip
    attributes = {
        "causal": causal,
        "approximation": read_approximation("nn.softmax", approximation),
    }
    y = module.add("nn.softmax", operands, attributes)
    module.add("nn.output", [y], {"name": "y"})
    return module


def test_iterative_softmax_is_the_paper_s_algorithm_1() -> None:
    """A zero ends the iterations; masked scores get the middle of exp's range, then weight 0."""
    poly = run_passes(softmax_module(causal=True, masked=True), [Expand()])
    part = 'part = "softmax"'
    middle = float(np.polynomial.chebyshev.chebval(0.0, poly.symbols["chebyshev.softmax.15"]))
    assert middle == pytest.approx(np.exp(-4), abs=1e-6)
    assert short(poly)[1:] == [
        f"%0 = poly.mask_fill %x, %mask {{causal = true, fill = -7, log_keys = 1, {part}}}",
        "%1 = poly.chebyshev %0 {coefficients = @chebyshev.softmax.15, "
        f'domain = [-15, 1], basis = "published", {part}}}',
        f"%2 = poly.mask_zero %1, %mask {{causal = true, value = {middle:.3g}, {part}}}",
        f"%3 = poly.square %2 {{{part}}}",
        f"%4 = poly.row_sum %3 {{{part}}}",
        "%5 = poly.chebyshev %4 {coefficients = @chebyshev.softmax.63, "
        f"domain = [0.05, 4], {part}}}",
        f"%6 = poly.mul %2, %5 {{{part}}}",
        f"%7 = poly.square %6 {{{part}}}",
        'poly.output %7 {name = "y"}',
    ]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("window", [0, 1, 2])
def test_softmax_keeps_its_meaning(causal: bool, masked: bool, window: int) -> None:
    module = softmax_module(causal, masked)
    if window:
        (softmax,) = (op for op in module.ops if op.name == "nn.softmax")
        softmax.attributes["window"] = window
    poly = run_passes(module, [Expand()])
    scores = 0.5 * np.random.default_rng(1).normal(size=(1, 2, 3, 3))
    inputs = {"x": scores, "mask": np.array([[1.0, 1.0, 0.0]])}
    result, wanted = interpret(poly, inputs)["y"], interpret(module, inputs)["y"]
    assert np.abs(result - wanted).max() < 1e-5
    assert np.array_equal(result == 0, wanted == 0)


def test_equal_coefficients_are_stored_once() -> None:
    module = Module("m", "nn")
    x = module.add("nn.input", [], {"name": "x", "shape": [1, 2], **SERVER})
    for high in (5.0, 5.0, 6.0):
        x = module.add("nn.tanh", [x], {"approximation": ActivationApproximation(15, (-4.0, high))})
    module.add("nn.output", [x], {"name": "y"})
    poly = run_passes(module, [Expand()])
    assert list(poly.symbols) == ["chebyshev.tanh.15", "chebyshev.tanh.15.1"]
    assert print_module(run_passes(module, [Expand()])) == print_module(poly)


def test_the_client_s_ops_stay_behind() -> None:
    module = Module("m", "nn")
    ids = module.add(
        "nn.input", [], {"name": "ids", "shape": [1, 3], "side": "client", "dtype": "i64"}
    )
    table = module.constant("table", np.ones((5, 4)))
    e = module.add("nn.embedding", [ids], {"table": table})
    x = module.add("nn.encrypt", [e], {}, "embeddings", "embedded")
    weight = module.constant("weight", np.ones((2, 4)))
    y = module.add("nn.linear", [x], {"weight": weight})
    module.add("nn.output", [y], {"name": "y"})
    poly = run_passes(module, [Expand()])
    assert [print_op(op) for op in poly.ops] == [
        '%embedded = poly.input {name = "embedded", shape = [1, 3, 4], side = "server", '
        'dtype = "f64"} loc "embeddings" : tensor<1x3x4xf64, server>',
        "%2 = poly.linear %embedded {weight = @weight} : tensor<1x3x2xf64, server>",
        'poly.output %2 {name = "y"}',
    ]
    assert set(poly.symbols) == {"weight"}


@pytest.mark.parametrize(
    ("approximation", "message"),
    [
        (None, "nn.gelu has no approximation"),
        ({"algorithm": "magic"}, "knows no approximation algorithm 'magic'"),
        ({"degree": 7}, "knows no approximation algorithm None"),
        ({"algorithm": "chebyshev"}, "is not complete"),
        ({"algorithm": "chebyshev", "degree": 3.0, "range": [-1.0, 1.0]}, "not right"),
        ({"algorithm": "chebyshev", "degree": 65536, "range": [-1.0, 1.0]}, "not right"),
        ({"algorithm": "chebyshev", "degree": 7, "width": 1}, "no entry 'width'"),
        ({"algorithm": "chebyshev", "degree": 7, "range": [2.0, 1.0]}, "low < high"),
        ({"algorithm": "chebyshev", "degree": 7, "range": [2.0]}, r"range is \[2.0\]"),
        ({"algorithm": "chebyshev", "degree": 0, "range": [0.0, 1.0]}, "degree 0"),
        ({"algorithm": "chebyshev", "degree": 7}, "no range yet"),
    ],
)
def test_faults(approximation: dict | None, message: str) -> None:
    attributes = {} if approximation is None else {"approximation": approximation}
    with pytest.raises(AtlasError, match=message):
        run_passes(nn("nn.gelu", attributes), [Expand()])


def test_an_op_that_cannot_be_encrypted_is_named() -> None:
    module = Module("m", "nn")
    entry = {"name": "x", "shape": [1, 4], "side": "server", "dtype": "i64"}
    table = module.constant("table", np.ones((3, 2)))
    y = module.add("nn.embedding", [module.add("nn.input", [], entry)], {"table": table}, "words")
    module.add("nn.output", [y], {"name": "y"})
    with pytest.raises(AtlasError, match="nn.embedding cannot run on encrypted data") as caught:
        run_passes(module, [Expand()])
    assert caught.value.where == "words"
