"""Packed kernels against plain NumPy, for extents that are no powers of two."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from packed import pack_tensor, unpack_tensor

from atlasc.ir.layout import Layout
from atlasc.ir.module import Module, Value
from atlasc.ir.ops.masks import log_hidden, visible
from atlasc.passes.lowering.packing.geometry import Packing, bits_for
from atlasc.program.counting_engine import Counted, CountingEngine
from atlasc.program.execute import execute
from atlasc.program.kernels.context import KEY_SWITCH, ROWS, blocked, layout_of
from atlasc.program.kernels.linear import DiagonalPlan, choose_plan
from atlasc.program.kernels.scores import row_score_layout, score_layout
from atlasc.targets.sim import SimEngine

LEVEL = 8


class Bench:
    """A ckks module under construction, and the slots of its inputs."""

    def __init__(self, packing: Packing, fewer_keys: bool = False) -> None:
        self.packing = packing
        self.engine = SimEngine(packing.hidden(1, 1, 1).slots, LEVEL)
        self.module = Module("kernel", "ckks")
        if fewer_keys:
            self.module.attributes["fewer_keys"] = True
        self.inputs: dict[str, list[Any]] = {}
        self.public: dict[str, np.ndarray] = {}

    def input(self, name: str, tensor: np.ndarray) -> Value:
        """An encrypted input ``[B, n, F]``."""
        layout = self.packing.hidden(*tensor.shape)
        slots = pack_tensor(layout, tensor)
        self.inputs[name] = [self.engine.encrypt(vector, LEVEL) for vector in slots]
        attributes = {"layout": layout, "shape": list(tensor.shape), "level": LEVEL}
        return self.module.add("ckks.input", [], {"name": name, **attributes})

    def constant(self, array: np.ndarray) -> Any:
        return self.module.constant("constant", array)

    def slots(self, value: Value) -> np.ndarray:
        """Slots of a value ``[ciphertexts, slots]``."""
        layout = layout_of(value)
        shape = list(layout.shape)
        if "d" in dict(layout.extents):
            shape[-2:] = [shape[-2] * shape[-1]]
        self.module.add("ckks.output", [value], {"name": "y", "shape": shape})
        result = execute(self.engine, self.module, self.inputs, self.public)["y"]
        return np.stack([self.engine.decrypt(ciphertext) for ciphertext in result])

    def linear(self, x: Value, weight: np.ndarray, **more: Any) -> Value:
        source = layout_of(x)
        target = self.packing.like(source, len(weight))
        plan = more.pop("plan", None) or choose_plan(source, target, *weight.T.shape)
        attributes = {"weight": self.constant(weight), "layout": target, **plan._asdict()}
        return self.module.add("ckks.linear_transform", [x], {**attributes, **more})


@st.composite
def packings(draw: st.DrawFn, features: int, tokens: int, batch: int) -> Packing:
    """Any packing of some features: blocks of any width, any number of them in a ciphertext."""
    width = draw(st.integers(1, features))
    blocks = bits_for(-(-features // width))
    g = draw(st.integers(0, blocks))
    b = bits_for(batch) + draw(st.integers(0, 1))
    return Packing(width, bits_for(width), g, b, bits_for(tokens), draw(st.booleans()))


@st.composite
def linears(
    draw: st.DrawFn,
) -> tuple[Packing, np.ndarray, np.ndarray, np.ndarray, DiagonalPlan | None]:
    extent = st.integers(1, 11)
    inputs, outputs, tokens = draw(extent), draw(extent), draw(st.integers(1, 5))
    batch = draw(st.integers(1, 3))
    packing = draw(packings(max(inputs, outputs), tokens, batch))
    random = np.random.default_rng(draw(st.integers(0, 99)))
    steps = draw(st.sampled_from([None, 1, 2, 3, 8]))
    paired = packing.d + packing.g > 0 and not packing.features_low and draw(st.booleans())
    plan = None if steps is None else DiagonalPlan(steps, paired)
    x, weight = random.normal(size=(batch, tokens, inputs)), random.normal(size=(outputs, inputs))
    return packing, x, weight, random.normal(size=outputs), plan


@given(linears(), st.booleans())
def test_linear_transform(
    case: tuple[Packing, np.ndarray, np.ndarray, np.ndarray, DiagonalPlan | None],
    fewer_keys: bool,
) -> None:
    packing, x, weight, bias, plan = case
    bench = Bench(packing, fewer_keys)
    y = bench.linear(bench.input("x", x), weight, bias=bench.constant(bias), plan=plan)
    slots, layout = bench.slots(y), layout_of(y)
    wanted = x @ weight.T + bias
    np.testing.assert_allclose(unpack_tensor(layout, slots, len(weight)), wanted, atol=1e-9)
    # Padding rows copy row 0, padding features are 0.
    np.testing.assert_allclose(slots, pack_tensor(layout, wanted), atol=1e-9)


@given(linears(), st.integers(1, 9), st.booleans())
def test_the_cost_of_a_plan_is_what_is_done(
    case: tuple[Packing, np.ndarray, np.ndarray, np.ndarray, DiagonalPlan | None],
    other: int,
    paired: bool,
) -> None:
    """No other plan is cheaper than the chosen one."""
    packing, x, weight, _, _ = case
    packing = replace(packing, features_low=False)
    features = packing.d + packing.g
    costs = []
    for plan in (None, DiagonalPlan(1 << other % (features + 1), paired and features > 0)):
        bench = Bench(packing)
        bench.linear(bench.input("x", x), weight, plan=plan)
        engine = CountingEngine(bench.engine.slots, LEVEL)
        execute(engine, bench.module, {"x": [Counted(LEVEL) for _ in bench.inputs["x"]]})
        counts = engine.total()
        costs.append(KEY_SWITCH * counts.key_switches + counts.plaintext_products)
    assert costs[0] <= costs[1]


def test_linear_transform_after_a_selection_zeroes_the_other_tokens() -> None:
    packing, random = Packing(3, 2, 1, 1, 2), np.random.default_rng(0)
    x, weight, bias = (random.normal(size=shape) for shape in ((2, 3, 5), (4, 5), (4,)))
    for flag in (False, True):
        bench = Bench(packing)
        chosen = {"layout_axis": "t", "index": 2}
        first = bench.module.add("ckks.select", [bench.input("x", x)], chosen)
        y = bench.linear(first, weight, bias=bench.constant(bias), only_first=flag)
        slots, layout = bench.slots(y), layout_of(y)
        wanted = x[:, 2] @ weight.T + bias
        np.testing.assert_allclose(unpack_tensor(layout, slots, 4), wanted, atol=1e-9)
        others = slots.reshape(-1, 4)[:, 1:]
        assert np.any(others) != flag


@given(linears(), st.integers(0, 4))
def test_linear_transforms_of_one_row(
    case: tuple[Packing, np.ndarray, np.ndarray, np.ndarray, DiagonalPlan | None], token: int
) -> None:
    """Back and forth between numbers of features, which take places of different sizes."""
    packing, x, weight, bias, _ = case
    bench, index = Bench(packing), token % x.shape[1]
    chosen = {"layout_axis": "t", "index": index}
    one = bench.module.add("ckks.select", [bench.input("x", x)], chosen)
    one = bench.linear(one, weight, bias=bench.constant(bias), only_first=True)
    one = bench.module.add("ckks.replicate", [one], {"layout": layout_of(one).one_row})
    if packing.features_low:
        assert layout_of(one).ciphertexts == layout_of(one.op.operands[0]).ciphertexts
    wanted = x[:, index] @ weight.T + bias
    for matrix in (weight.T, weight):
        one = bench.linear(one, matrix)
        wanted = wanted @ matrix.T
    slots, layout = bench.slots(one), layout_of(one)
    np.testing.assert_allclose(unpack_tensor(layout, slots, len(weight)), wanted, atol=1e-9)
    np.testing.assert_allclose(slots, layout.pack(blocked(wanted, layout), ROWS), atol=1e-9)
    if packing.b == 0 and not packing.features_low:
        assert layout.ciphertexts == max(1, -(-layout.extent("g") // (1 << packing.g + packing.t)))


def test_copied_padding_repeats_the_first_head() -> None:
    packing, random = Packing(3, 2, 2, 0, 1), np.random.default_rng(0)
    x, weight, bias = (random.normal(size=shape) for shape in ((1, 2, 9), (9, 9), (9,)))
    bench = Bench(packing)
    y = bench.linear(bench.input("x", x), weight, bias=bench.constant(bias), copy_padding=True)
    blocks = bench.slots(y).reshape(4, 4, 2)  # [d, g, t]
    wanted = (x @ weight.T + bias)[0].reshape(2, 3, 3)  # [t, g, d]
    np.testing.assert_allclose(blocks[:3, :3], wanted.T, atol=1e-9)
    np.testing.assert_allclose(blocks[:3, 3], wanted[:, 0].T, atol=1e-9)
    assert not blocks[3].any()


def turned(x: np.ndarray, cos: np.ndarray, sin: np.ndarray, width: int) -> np.ndarray:
    heads = x.reshape(*x.shape[:-1], -1, width)
    half = np.concatenate([-heads[..., width // 2 :], heads[..., : width // 2]], -1)
    return (heads * cos[:, None] + half * sin[:, None]).reshape(x.shape)


@given(
    batch=st.integers(1, 2), tokens=st.integers(1, 5), heads=st.integers(1, 5),
    half=st.integers(1, 3), g=st.integers(0, 3), copy=st.booleans(), low=st.booleans(),
)  # fmt: skip
def test_rotary_in_the_linear_transform_or_after_it(
    batch: int, tokens: int, heads: int, half: int, g: int, copy: bool, low: bool
) -> None:
    width, random = 2 * half, np.random.default_rng(1)
    features = heads * width
    packing = Packing(width, bits_for(width), min(g, bits_for(heads)), bits_for(batch), 3, low)
    x, bias = random.normal(size=(batch, tokens, features)), random.normal(size=features)
    weight = random.normal(size=(features, features))
    cos, sin = random.normal(size=(2, tokens, width))
    bench = Bench(packing)
    tables = {"cos": bench.constant(cos), "sin": bench.constant(sin)}
    given = {"copy_padding": copy, "bias": bench.constant(bias)}
    source, wanted = bench.input("x", x), turned(x @ weight.T + bias, cos, sin, width)
    y = bench.linear(source, weight, **given, **tables)
    slots = bench.slots(y)
    np.testing.assert_allclose(unpack_tensor(layout_of(y), slots, features), wanted, atol=1e-9)
    bench.module.ops.pop()
    z = bench.module.add("ckks.rotary", [bench.linear(source, weight, **given)], tables)
    np.testing.assert_allclose(bench.slots(z), slots, atol=1e-9)


@st.composite
def attentions(draw: st.DrawFn) -> dict[str, Any]:
    return {
        "batch": draw(st.integers(1, 3)),
        "tokens": draw(st.integers(1, 9)),  # more than the features of a block, and fewer
        "heads": draw(st.integers(1, 5)),
        "width": draw(st.integers(1, 6)),
        "g": draw(st.integers(0, 3)),  # heads that do not fit go to other ciphertexts
        "causal": draw(st.booleans()),
        "masked": draw(st.booleans()),
        "window": draw(st.integers(0, 6)),
        "features_low": draw(st.booleans()),
        "fewer_keys": draw(st.booleans()),
        "seed": draw(st.integers(0, 99)),
    }


def attention(
    batch: int,
    tokens: int,
    heads: int,
    width: int,
    g: int,
    causal: bool,
    masked: bool,
    window: int,
    features_low: bool,
    fewer_keys: bool,
    seed: int,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Scores with fill −3 and log_keys 2, and context, packed; and both by einsum."""
    random = np.random.default_rng(seed)
    t, b = bits_for(tokens), bits_for(batch)
    packing = Packing(width, bits_for(width), min(g, bits_for(heads)), b, t, features_low)
    bench = Bench(packing, fewer_keys)
    tensors = random.normal(size=(3, batch, tokens, heads * width))
    q, k, v = (bench.input(name, x) for name, x in zip("qkv", tensors, strict=True))
    keep, mask = np.ones((batch, 1, tokens, tokens), bool), None
    operands = [q, k]
    if masked:
        mask = random.random((batch, tokens)) < 0.6
        bench.public["mask"] = mask.astype(float)
        entry = {"name": "mask", "shape": [batch, tokens]}
        operands.append(bench.module.add("ckks.public_input", [], entry))
        keep = keep & mask[:, None, None, :]
    keep = keep & visible(np.arange(tokens), np.arange(tokens), causal, window, mask)
    scores = score_layout(layout_of(q), heads)
    seen = {"causal": causal, **({"window": window} if window else {})}
    attributes = {**seen, "fill": -3.0, "log_keys": 2.0, "layout": scores}
    s = bench.module.add("ckks.ct_matmul_qk", operands, attributes)
    zero = {**seen, "value": -3.0}
    p = bench.module.add("ckks.mask_zero", [s, *operands[2:]], zero)
    low = [bench.module.add("ckks.drop", [x], {"level": LEVEL - 3}) for x in (v,)]
    y = bench.module.add("ckks.ct_matmul_pv", [p, *low], {"layout": layout_of(v)})
    split = [x.reshape(batch, tokens, heads, width) for x in tensors]
    plain = np.einsum("bihd,bjhd->bhij", *split[:2])
    plain = np.where(keep, plain + 2.0 * log_hidden(plain, keep), -3.0)
    context = np.einsum("bhij,bjhd->bihd", np.where(keep, plain, 0.0), split[2])
    packed_context = unpack_tensor(layout_of(y), bench.slots(y), heads * width)
    bench.module.ops.pop()
    by_diagonal = layout_of(s).unpack(bench.slots(s))  # [b, g, s, t]: query t, key t + s
    query, diagonal = np.arange(tokens), np.arange(1 << t)
    key = (query[None, :] + diagonal[:, None]) % (1 << t)
    assert np.array_equal(
        by_diagonal[..., key >= tokens], np.full_like(by_diagonal[..., key >= tokens], -3.0)
    )
    packed_scores = np.zeros((batch, heads, tokens, tokens))
    inside = np.nonzero(key < tokens)
    packed_scores[..., inside[1], key[inside]] = by_diagonal[..., inside[0], inside[1]]
    return packed_scores, plain, packed_context, context.reshape(batch, tokens, -1)


@given(attentions())
def test_attention_products(case: dict[str, Any]) -> None:
    scores, plain, context, wanted = attention(**case)
    np.testing.assert_allclose(scores, plain, atol=1e-9)
    np.testing.assert_allclose(context, wanted, atol=1e-9)


@given(attentions(), st.integers(0, 8))
def test_attention_of_one_query(case: dict[str, Any], token: int) -> None:
    batch, tokens, heads, width = (case[n] for n in ("batch", "tokens", "heads", "width"))
    random, query = np.random.default_rng(case["seed"]), token % tokens
    packing = Packing(width, bits_for(width), min(case["g"], bits_for(heads)), bits_for(batch),
                      bits_for(tokens))  # fmt: skip
    bench = Bench(packing)
    tensors = random.normal(size=(3, batch, tokens, heads * width))
    q, k, v = (bench.input(name, x) for name, x in zip("qkv", tensors, strict=True))
    keep, mask = np.ones((batch, 1, 1, tokens), bool), None
    masks = []
    if case["masked"]:
        mask = random.random((batch, tokens)) < 0.6
        bench.public["mask"] = mask.astype(float)
        entry = {"name": "mask", "shape": [batch, tokens]}
        masks = [bench.module.add("ckks.public_input", [], entry)]
        keep = keep & mask[:, None, None, :]
    near = case["causal"], case["window"]
    keep = keep & visible(np.array([query]), np.arange(tokens), *near, mask)
    chosen = {"layout_axis": "t", "index": query}
    one = bench.module.add("ckks.select", [q], chosen)
    copied = heads % (1 << packing.g) > 0
    one = bench.linear(one, np.eye(heads * width), only_first=True, copy_padding=copied)
    beside = layout_of(k).without(("t",), "*")
    one = bench.module.add("ckks.replicate", [one], {"layout": beside})
    k = bench.linear(k, np.eye(heads * width), copy_padding=copied)
    scores, seen = row_score_layout(layout_of(k), heads), {"causal": case["causal"], "query": query}
    seen |= {"window": case["window"]} if case["window"] else {}
    attributes = {**seen, "fill": -3.0, "log_keys": 2.0, "layout": scores}
    s = bench.module.add("ckks.row_scores", [one, k, *masks], attributes)
    p = bench.module.add("ckks.mask_zero", [s, *masks], {**seen, "value": -3.0})
    low = bench.module.add("ckks.drop", [v], {"level": LEVEL - 4})
    y = bench.module.add("ckks.row_context", [p, low])
    split = [x.reshape(batch, tokens, heads, width) for x in tensors]
    plain = np.einsum("bhd,bjhd->bhj", split[0][:, query], split[1])
    plain = plain + 2.0 * log_hidden(plain, keep[:, 0])
    weights = np.where(keep[:, :, 0], plain, 0.0)
    context = np.einsum("bhj,bjhd->bhd", weights, split[2]).reshape(batch, -1)
    slots, layout = bench.slots(y), layout_of(y)
    np.testing.assert_allclose(unpack_tensor(layout, slots, heads * width), context, atol=1e-9)
    tensor = blocked(context, layout)
    np.testing.assert_allclose(slots, layout.pack(tensor, repeat=("b",)), atol=1e-9)
    bench.module.ops.pop()
    slots = bench.slots(s)
    filled = np.where(keep[:, :, 0], plain, -3.0)
    np.testing.assert_allclose(scores.unpack(slots), filled, atol=1e-9)
    # Padding holds the fill or real scores.
    assert np.isclose(slots[..., None], np.append(filled.ravel(), -3.0), atol=1e-9).any(-1).all()


@pytest.mark.parametrize("low", [False, True])
@pytest.mark.parametrize("tokens", [1, 2, 3, 8, 13])
@pytest.mark.parametrize("width", [1, 3, 8])
def test_diagonals_beside_features(tokens: int, width: int, low: bool) -> None:
    """Fewer diagonals than features are copied; more spill over to other ciphertexts."""
    layout = score_layout(Packing(width, bits_for(width), 1, 0, bits_for(tokens), low).hidden(
        1, tokens, 3 * width), 3)  # fmt: skip
    d, t = bits_for(width), bits_for(tokens)
    assert layout.ciphertexts == 2 << max(0, t - d)
    assert layout.fields[2 if low else 0].axis == ("*" if d > t else "s")
    scores, plain, context, wanted = attention(1, tokens, 3, width, 1, True, False, 0, low, low, 5)
    np.testing.assert_allclose(scores, plain, atol=1e-9)
    np.testing.assert_allclose(context, wanted, atol=1e-9)


def run_unary(text: str, tensor: np.ndarray, **attributes: Any) -> tuple[np.ndarray, Layout]:
    bench = Bench(Packing(3, 2, 1, 1, 2))  # blocks of 3 features, 2 of them in a ciphertext
    y = bench.module.add(f"ckks.{text}", [bench.input("x", tensor)], attributes)
    return bench.slots(y), layout_of(y)


X = np.random.default_rng(9).normal(size=(2, 3, 11))


def test_rotate_sum_over_the_features_reaches_every_slot() -> None:
    slots, layout = run_unary("rotate_sum", X, axes=["d", "g"])
    assert layout == Layout.parse("[*:2 *:1 b:1 t:2 |  | b=2 t=3]")
    totals = X.sum(-1)
    totals = np.concatenate([totals, totals[:, :1]], 1)  # padding tokens copy token 0
    np.testing.assert_allclose(slots[0].reshape(8, 2, 4), np.broadcast_to(totals, (8, 2, 4)))


def test_rotate_sum_over_the_tokens_is_right_in_slot_0() -> None:
    slots, layout = run_unary("rotate_sum", X[:, :, :2], axes=["t"])
    assert layout == Layout.parse("[d:2 g:1 b:1 ?:2 |  | b=2 g=1 d=3]")
    copied = X[:, :, :2].sum(1) + X[:, 0, :2]
    np.testing.assert_allclose(layout.unpack(slots)[:, 0, :2], copied)


@pytest.mark.parametrize("index", [0, 1, 2])
def test_select(index: int) -> None:
    slots, layout = run_unary("select", X, layout_axis="t", index=index)
    np.testing.assert_allclose(unpack_tensor(layout, slots, 11), X[:, index])


def test_double_add_plain_and_mul_plain() -> None:
    slots, layout = run_unary("double", X, times=3)
    np.testing.assert_allclose(unpack_tensor(layout, slots, 11), 8 * X)
    slots, layout = run_unary("add_plain", X, value=2.0)
    np.testing.assert_allclose(unpack_tensor(layout, slots, 11), X + 2)
    slots, layout = run_unary("mul_plain", X, value=0.5, zero_padding=True)
    halves = layout.unpack(pack_tensor(layout, X / 2))
    np.testing.assert_allclose(slots, layout.pack(halves, repeat=("b",)))


@pytest.mark.parametrize("shape", [(), (11,), (3, 1), (3, 11), (2, 1, 11), (2, 3, 1)])
def test_plaintexts_broadcast_like_tensors(shape: tuple[int, ...]) -> None:
    value = np.random.default_rng(2).normal(size=shape)
    for name, wanted in (("add_plain", X + value), ("mul_plain", X * value)):
        bench = Bench(Packing(3, 2, 1, 1, 2))
        attributes = {"value": bench.constant(value)}
        y = bench.module.add(f"ckks.{name}", [bench.input("x", X)], attributes)
        result = unpack_tensor(layout_of(y), bench.slots(y), 11)
        np.testing.assert_allclose(result, wanted, atol=1e-12)


def test_a_missing_input_is_named() -> None:
    from atlasc.ir.errors import AtlasError

    bench = Bench(Packing(3, 2, 1, 1, 2))
    y = bench.input("x", X)
    bench.inputs.clear()
    with pytest.raises(AtlasError, match="input 'x' is missing"):
        bench.slots(y)
