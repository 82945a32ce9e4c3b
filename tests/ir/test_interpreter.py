"""The cleartext meaning of every op against NumPy and torch, in single and double precision."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from atlasc.ir.errors import AtlasError
from atlasc.ir.interpreter import Interpreter, interpret
from atlasc.ir.module import Module
from atlasc.ir.opdef import OPS
from atlasc.ir.scalar_functions import ACTIVATIONS

RANDOM = np.random.default_rng(3)
F = torch.nn.functional
Arrays = dict[str, np.ndarray]
SHAPES = {"x": (2, 3, 4), "z": (2, 3, 4), "row": (2, 3, 1), "s": (2, 2, 3, 3), "h": (2, 2, 3, 4),
          "one": (2, 2, 1, 4)}  # fmt: skip
INPUTS: Arrays = {name: RANDOM.normal(size=shape) for name, shape in SHAPES.items()}
INPUTS["mask"] = np.array([[1.0, 1, 0], [1, 0, 1]])
SYMBOLS: Arrays = {
    name: RANDOM.normal(size=shape)
    for name, shape in {
        "weight": (5, 4), "bias": (5,), "vector": (4,), "token": (3, 1), "gamma": (4,),
        "beta": (4,), "cos": (3, 4), "sin": (3, 4), "c": (8,), "table": (7, 4),
        "heads": (2, 1, 3), "slopes": (2,),
    }.items()
}  # fmt: skip
KEYS = INPUTS["mask"][:, None, None, :] > 0
CAUSAL = np.tril(np.ones((3, 3), bool))


def alibi(slopes: np.ndarray) -> np.ndarray:
    """By the visible keys before each key, for the two rows of the mask."""
    return slopes[:, None, None] * np.array([[0, 1, 1], [0, 0, 1]])[:, None, None, :]


def at_mask(table: np.ndarray) -> np.ndarray:
    """The sum of the rows that each row of the mask keeps."""
    return np.stack([table[0] + table[1], table[0] + table[2]])[:, None, None]


def raised(keep: np.ndarray, log_keys: float) -> np.ndarray:
    visible = keep.sum(axis=-1, keepdims=True)
    return log_keys * np.log(keep.shape[-1] / np.maximum(visible, 1))


def torch_of(function: Callable[..., Any], *names: str, **options: Any) -> Callable[..., Any]:
    def reference(v: Arrays) -> np.ndarray:
        return function(*(torch.from_numpy(v[name]) for name in names), **options).numpy()

    return reference


def softmax(scores: np.ndarray, keep: np.ndarray) -> np.ndarray:
    bias = torch.from_numpy(np.where(keep, 0.0, -np.inf).astype(scores.dtype))
    return torch.softmax(torch.from_numpy(scores) + bias, -1).numpy()


def rotate_half(x: np.ndarray) -> np.ndarray:
    """As in HuggingFace's modeling_llama."""
    return np.concatenate([-x[..., x.shape[-1] // 2 :], x[..., : x.shape[-1] // 2]], -1)


Reference = Callable[[Arrays], np.ndarray]
BOTH: list[tuple[str, str, dict[str, Any], Reference]] = [
    ("linear", "x", {"weight": "@weight", "bias": "@bias"},
     torch_of(F.linear, "x", "weight", "bias")),
    ("linear", "h", {"weight": "@weight"}, torch_of(F.linear, "h", "weight")),
    ("add", "x z", {}, lambda v: v["x"] + v["z"]),
    ("add", "x row", {}, lambda v: v["x"] + v["row"]),
    ("mul", "x row", {}, lambda v: v["x"] * v["row"]),
    ("add_constant", "x", {"value": "@vector"}, lambda v: v["x"] + v["vector"]),
    ("add_constant", "x", {"value": -1.5}, lambda v: v["x"] - 1.5),
    ("scale", "x", {"factor": "@token"}, lambda v: v["x"] * v["token"]),
    ("scale", "x", {"factor": -2}, lambda v: -2 * v["x"]),
    ("matmul", "h h", {"transpose_b": True},
     lambda v: np.einsum("bhid,bhjd->bhij", v["h"], v["h"])),
    ("matmul", "s h", {"transpose_b": False}, torch_of(torch.matmul, "s", "h")),
    ("transpose", "h", {"permutation": [0, 2, 3, 1]}, lambda v: np.moveaxis(v["h"], 1, 3)),
    ("reshape", "x", {"shape": [2, 3, 2, 2]}, lambda v: v["x"].reshape(2, 3, 2, 2)),
    ("select", "x", {"axis": 1, "index": 2}, lambda v: v["x"][:, 2]),
    ("mean", "x", {"axis": 1}, lambda v: v["x"].sum(1) / 3),
    ("mean", "x", {"axis": 1, "factor": 6.0}, lambda v: v["x"].sum(1) * 2),
    ("mean", "x mask", {"axis": 1, "factor": 6.0},
     lambda v: 3 * np.stack([v["x"][0, :2].sum(0), v["x"][1, ::2].sum(0)])),
    ("mean", "x mask", {"axis": 1, "last": True},
     lambda v: np.stack([v["x"][0, 1], v["x"][1, 2]])),
    ("add_positions", "s mask", {"slopes": "@slopes"}, lambda v: v["s"] + alibi(v["slopes"])),
    ("center", "x", {}, lambda v: v["x"] - v["x"].sum(-1)[..., None] / 4),
    ("repeat", "h", {"axis": 1, "repeats": 3},
     torch_of(torch.repeat_interleave, "h", repeats=3, dim=1)),
    ("rotary", "h", {"cos": "@cos", "sin": "@sin"},
     lambda v: v["h"] * v["cos"] + rotate_half(v["h"]) * v["sin"]),
    ("rotary", "one mask", {"cos": "@cos", "sin": "@sin"},
     lambda v: v["one"] * at_mask(v["cos"]) + rotate_half(v["one"]) * at_mask(v["sin"])),
    ("at_tokens", "h mask", {}, lambda v: np.where(KEYS[..., 0, :, None], v["h"], 0)),
    ("at_tokens", "one mask", {}, lambda v: np.where(KEYS[..., 0, :, None], v["one"], 0)),
]  # fmt: skip
NN: list[tuple[str, str, dict[str, Any], Reference]] = [
    ("softmax", "s", {}, torch_of(torch.softmax, "s", dim=-1)),
    ("softmax", "s mask", {}, lambda v: softmax(v["s"], KEYS)),
    ("softmax", "s", {"causal": True}, lambda v: softmax(v["s"], CAUSAL)),
    ("softmax", "s mask", {"causal": True}, lambda v: softmax(v["s"], KEYS & CAUSAL)),
    ("layer_norm", "x", {"gamma": "@gamma", "beta": "@beta", "epsilon": 1e-5},
     lambda v: F.layer_norm(*map(torch.from_numpy, (v["x"],)), (4,), *(
         torch.from_numpy(v[n]) for n in ("gamma", "beta")), eps=1e-5).numpy()),
    ("rms_norm", "x", {"gamma": "@gamma", "epsilon": 1e-3},
     lambda v: v["x"] / np.sqrt((v["x"] ** 2).sum(-1, keepdims=True) / 4 + 1e-3) * v["gamma"]),
    ("gelu", "x", {}, torch_of(F.gelu, "x")),
    ("gelu_tanh", "x", {}, torch_of(F.gelu, "x", approximate="tanh")),
    ("silu", "x", {}, torch_of(F.silu, "x")),
    ("tanh", "x", {}, torch_of(torch.tanh, "x")),
    ("relu", "x", {}, torch_of(torch.relu, "x")),
]  # fmt: skip
POLY: list[tuple[str, str, dict[str, Any], Reference]] = [
    ("sub", "row x", {}, lambda v: v["row"] - v["x"]),
    ("square", "x", {}, lambda v: v["x"] * v["x"]),
    ("double", "x", {"times": 3}, lambda v: 8 * v["x"]),
    ("affine", "x", {"scale": "@vector", "shift": 0.5}, lambda v: v["x"] * v["vector"] + 0.5),
    ("row_sum", "s", {}, lambda v: v["s"].sum(-1, keepdims=True)),
    ("mask_fill", "s mask", {"fill": -7.0}, lambda v: np.where(KEYS, v["s"], -7)),
    ("mask_fill", "s", {"fill": 2.5, "causal": True}, lambda v: np.where(CAUSAL, v["s"], 2.5)),
    ("mask_fill", "s", {"fill": 2.5, "log_keys": 3.0}, lambda v: v["s"]),
    ("mask_fill", "s mask", {"fill": -7.0, "log_keys": 3.0, "causal": True},
     lambda v: np.where(KEYS & CAUSAL, v["s"] + raised(KEYS & CAUSAL, 3.0), -7)),
    ("mask_fill", "s mask", {"fill": -7.0, "bias": "@heads", "causal": True},
     lambda v: np.where(KEYS & CAUSAL, v["s"] + v["heads"], -7)),
    ("mask_fill", "s", {"fill": -7.0, "bias": "@heads"}, lambda v: v["s"] + v["heads"]),
    ("mask_fill", "s mask", {"fill": -7.0, "slopes": "@slopes"},
     lambda v: np.where(KEYS, v["s"] + alibi(v["slopes"]), -7)),
    ("mask_zero", "s mask", {"value": 9.0, "causal": True},
     lambda v: np.where(KEYS & CAUSAL, v["s"], 0)),
    ("chebyshev", "x", {"coefficients": "@c", "domain": [-4.0, 6.0]},
     lambda v: sum(v["c"][k] * np.cos(k * np.arccos((v["x"] - 1) / 5)) for k in range(8))),
    ("chebyshev", "x", {"coefficients": [2.5], "domain": [-4, 6]}, lambda v: 2.5 + 0 * v["x"]),
]  # fmt: skip
CASES = [
    (f"{level}.{case[0]}", *case[1:])
    for level, cases in (("nn", BOTH + NN), ("poly", BOTH + POLY))
    for case in cases
]


def evaluate(op: str, operands: str, attributes: dict[str, Any], dtype: Any) -> np.ndarray:
    module = Module("m", op.split(".")[0])  # type: ignore[arg-type]
    values = {}
    for name in dict.fromkeys(operands.split()):
        side = "public" if name == "mask" else "server"
        entry = {"name": name, "shape": list(INPUTS[name].shape), "side": side, "dtype": "f64"}
        values[name] = module.add(f"{module.level}.input", [], entry)
    attributes = {
        key: module.constant(value[1:], SYMBOLS[value[1:]]) if isinstance(value, str) else value
        for key, value in attributes.items()
    }
    y = module.add(op, [values[name] for name in operands.split()], attributes)
    module.add(f"{module.level}.output", [y], {"name": "y"})
    result = interpret(module, INPUTS, dtype)["y"]
    assert result.shape == y.tensor.shape
    return result


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}-{case[1]}-{list(case[2])}")
def test_meaning(case: tuple[str, str, dict[str, Any], Reference], dtype: Any) -> None:
    op, operands, attributes, reference = case
    result = evaluate(op, operands, attributes, dtype)
    assert result.dtype == dtype
    wanted = reference({name: array.astype(dtype) for name, array in {**INPUTS, **SYMBOLS}.items()})
    np.testing.assert_allclose(result, wanted, rtol=0, atol=2e-5 if dtype == np.float32 else 1e-12)


def test_every_op_with_a_meaning_is_tested() -> None:
    # Activations are compared with torch in test_scalar_functions.
    elsewhere = {f"nn.{f}" for f in ACTIVATIONS}
    elsewhere |= {
        f"nn.{f}"
        for f in (
            "encrypt",
            "embedding",
            "convolution",
            "gather",
            "position_ids",
            "fill_padding",
            "zero_padding",
        )
    }
    with_meaning = {name for name, op in OPS.items() if op.evaluate is not None}
    assert with_meaning - elsewhere == {case[0] for case in CASES} - elsewhere


def test_position_ids_count_what_is_not_padding() -> None:
    """Against HuggingFace's own function; a padding that no vocabulary has is refused."""
    from transformers.models.roberta.modeling_roberta import RobertaEmbeddings

    ids = np.random.default_rng(0).integers(0, 4, (5, 9))
    module = Module("m", "nn")
    entry = {"name": "ids", "shape": [5, 9], "side": "client", "dtype": "i64"}
    x = module.add("nn.input", [], entry)
    y = module.add("nn.position_ids", [x], {"padding": 1})
    assert (y.tensor.dtype, y.tensor.side) == ("i64", "client")
    seen: dict[str, np.ndarray] = {}
    interpret(module, {"ids": ids}, observe=lambda op, value: seen.update({op.name: value}))
    wanted = RobertaEmbeddings.create_position_ids_from_input_ids(torch.from_numpy(ids), 1)
    np.testing.assert_array_equal(seen["nn.position_ids"], wanted.numpy())
    with pytest.raises(AtlasError, match="no id of a vocabulary"):
        module.add("nn.position_ids", [x], {"padding": -1})


@pytest.mark.parametrize(("token", "sources"), [(0, [1, 1, 2, 1]), (-1, [2, 1, 2, 2])])
def test_padding_becomes_copies_of_a_kept_token(token: int, sources: list[int]) -> None:
    module = Module("m", "nn")
    x = module.add(
        "nn.input", [], {"name": "x", "shape": [2, 4, 3], "side": "client", "dtype": "f64"}
    )
    mask = module.add(
        "nn.input", [], {"name": "mask", "shape": [2, 4], "side": "public", "dtype": "i64"}
    )
    y = module.add("nn.fill_padding", [x, mask], {"token": token})
    module.add("nn.output", [module.add("nn.encrypt", [y])], {"name": "y"})
    given = np.random.default_rng(0).normal(size=(2, 4, 3))
    found = interpret(module, {"x": given, "mask": np.array([[0, 1, 1, 0], [0, 0, 0, 0]])})["y"]
    np.testing.assert_array_equal(found[0], given[0, sources])
    np.testing.assert_array_equal(found[1], given[1])  # no token is kept
    with pytest.raises(AtlasError, match="first or the last"):
        module.add("nn.fill_padding", [x, mask], {"token": 1})
    with pytest.raises(AtlasError, match="only the client"):
        module.add("nn.fill_padding", [module.add("nn.encrypt", [x]), mask], {"token": 0})


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_embedding_and_encrypt(dtype: Any) -> None:
    module = Module("m", "nn")
    entry = {"name": "ids", "shape": [2, 3], "side": "client", "dtype": "i64"}
    table = module.constant("table", SYMBOLS["table"])
    x = module.add("nn.embedding", [module.add("nn.input", [], entry)], {"table": table})
    module.add("nn.output", [module.add("nn.encrypt", [x])], {"name": "y"})
    ids = np.array([[0, 6, 3], [1, 1, 2]])
    result = interpret(module, {"ids": ids}, dtype)["y"]
    assert result.dtype == dtype
    assert np.array_equal(result, SYMBOLS["table"].astype(dtype)[ids])
    for wrong in (7, -1):
        with pytest.raises(AtlasError, match="outside the vocabulary of 7"):
            interpret(module, {"ids": np.array([[0, wrong, 3]])})


CONVOLUTIONS: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((2, 3, 4, 6), (5, 3, 2, 2), {"stride": [2, 2]}),
    ((2, 3, 7, 6), (5, 3, 4, 3), {"stride": [2, 1], "padding": [1, 2]}),
    ((1, 4, 9), (6, 2, 3), {"stride": [2], "padding": [1], "groups": 2}),
    ((2, 4, 11), (4, 1, 3), {"dilation": [3], "groups": 4}),
    ((1, 2, 3, 4, 5), (3, 2, 2, 2, 2), {"stride": [1, 2, 3]}),
]
"""Shapes of the operand and of the kernel, and the options of torch."""


def convolution(
    shape: Sequence[int],
    kernel: np.ndarray,
    bias: np.ndarray,
    side: str = "client",
    **options: Any,
) -> Module:
    axes, module = kernel.ndim - 2, Module("m", "nn")
    entry = {"name": "x", "shape": list(shape), "side": side, "dtype": "f64"}
    x = module.add("nn.input", [], entry)
    given = {"stride": [1] * axes, "padding": [0] * axes, "dilation": [1] * axes, "groups": 1}
    given |= options
    given["border"] = [n for n in given.pop("padding") for _ in range(2)]
    arrays = {"weight": module.constant("kernel", kernel), "bias": module.constant("bias", bias)}
    y = module.add("nn.convolution", [x], {**given, **arrays})
    module.add("nn.output", [y], {"name": "y"})
    return module


@pytest.mark.parametrize(("shape", "kernel", "options"), CONVOLUTIONS)
def test_convolution_is_that_of_torch(
    shape: tuple[int, ...], kernel: tuple[int, ...], options: dict[str, Any]
) -> None:
    x, weight, bias = (RANDOM.normal(size=one) for one in (shape, kernel, kernel[:1]))
    result = interpret(convolution(shape, weight, bias, **options), {"x": x})["y"]
    function = (F.conv1d, F.conv2d, F.conv3d)[len(kernel) - 3]
    wanted = function(*map(torch.from_numpy, (x, weight, bias)), **options)
    np.testing.assert_allclose(result, wanted.flatten(2).transpose(1, 2).numpy(), atol=1e-12)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"stride": [0]}, "a step is out of bounds"),
        ({"padding": [-1]}, "a step is out of bounds"),
        ({"padding": [1 << 40]}, "a step is out of bounds"),
        ({"stride": [1, 1]}, "stride and dilation need 1 number"),
        ({"groups": 2}, "2 groups of 2 channels are not the 2 channels"),
        ({"groups": 0}, "0 groups"),
        ({"dilation": [9]}, "does not fit into"),
        ({"side": "server"}, "only the client computes it"),
        ({"padding": [1 << 19], "shape": (1 << 10, 2, 5)}, "too many elements"),
        (
            {"padding": [(1 << 18) - 8], "shape": (1 << 10, 2, 5)},
            "its windows have too many elements",
        ),
    ],
)
def test_convolutions_that_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(AtlasError, match=message):
        convolution(**{"shape": (1, 2, 5), **options}, kernel=np.ones((3, 2, 2)), bias=np.ones(3))


def gathered(axis: int, elements: list[int]) -> Module:
    module = Module("m", "nn")
    entry = {"name": "x", "shape": [2, 3, 4], "side": "client", "dtype": "f64"}
    x = module.add("nn.input", [], entry)
    y = module.add("nn.gather", [x], {"axis": axis, "elements": elements})
    module.add("nn.output", [y], {"name": "y"})
    return module


def test_gather_places_elements_among_zeros() -> None:
    x = RANDOM.normal(size=(2, 3, 4))
    result = interpret(gathered(1, [-1, 2, 0]), {"x": x})["y"]
    np.testing.assert_array_equal(result, np.stack([0 * x[:, 0], x[:, 2], x[:, 0]], axis=1))
    result = interpret(gathered(2, [3, -1]), {"x": x})["y"]
    np.testing.assert_array_equal(result, np.stack([x[..., 3], 0 * x[..., 3]], axis=-1))


@pytest.mark.parametrize(("axis", "elements"), [(0, [0]), (3, [0]), (1, []), (1, [3]), (1, [-2])])
def test_gathers_that_are_refused(axis: int, elements: list[int]) -> None:
    with pytest.raises(AtlasError, match=r"axis = |an element is not from -1 to"):
        gathered(axis, elements)


def small() -> Module:
    module = Module("m", "poly")
    entry = {"name": "x", "shape": [2, 2], "side": "server", "dtype": "f64"}
    x = module.add("poly.input", [], {**entry, "factor": 2.0, "centred": True})
    y = module.add("poly.square", [x])
    shift = module.constant("shift", np.array([1.0, 2.0]))
    module.add("poly.output", [y], {"name": "y", "factor": 0.25, "shift": shift})
    return module


def test_the_client_s_part_of_inputs_and_outputs() -> None:
    """y = (2 · (x − mean))² / 4 + shift."""
    result = interpret(small(), {"x": np.array([[1.0, 3.0], [5.0, 5.0]])})["y"]
    assert result.tolist() == [[2.0, 3.0], [1.0, 2.0]]


def test_another_batch_than_declared() -> None:
    assert interpret(small(), {"x": np.ones((5, 2))})["y"].shape == (5, 2)


@pytest.mark.parametrize("x", [np.ones(2), np.ones((2, 3)), np.ones((1, 2, 2))])
def test_inputs_of_the_wrong_shape(x: np.ndarray) -> None:
    with pytest.raises(AtlasError, match=r"input 'x' has shape .*\n.*compiled for \(2, 2\)"):
        interpret(small(), {"x": x})


def test_a_missing_input() -> None:
    with pytest.raises(AtlasError, match="input 'x' is missing"):
        interpret(small(), {})


def test_override_and_observe() -> None:
    module = small()
    x, square, _ = module.ops
    seen = []
    interpreter = Interpreter(module, override=lambda op, site, arrays: (
        arrays[0] ** 3 if op is square else None))  # fmt: skip
    inputs = {"x": np.array([[0.0, 2.0], [0.0, 4.0]])}
    first = interpreter.run(inputs, observe=lambda op, result: seen.append((op, result.copy())))
    assert [op for op, _ in seen] == [x, square]
    assert seen[1][1].tolist() == [[-8.0, 8.0], [-64.0, 64.0]]
    assert first["y"].tolist() == [[-1.0, 4.0], [-15.0, 18.0]]
