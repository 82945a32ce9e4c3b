"""Kernels of a program of one token against plain NumPy, for extents that are no powers of two."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from packed import unpack_tensor

from atlasc.ir.layout import Layout
from atlasc.ir.module import Module, Value
from atlasc.ir.ops.rows import Cache, Diagonals, bits_for, most_copies, row_layout
from atlasc.passes.lowering.packing.geometry import RowPacking
from atlasc.program.execute import execute
from atlasc.program.kernels.context import ROWS, blocked, layout_of
from atlasc.program.kernels.skewed import RowPlan, choose_row_plan
from atlasc.program.kernels.weights import FeatureMap
from atlasc.targets.sim import SimEngine

LEVEL = 9


class Bench:
    """A ckks module of rows under construction, and the slots of its inputs."""

    def __init__(self, packing: RowPacking) -> None:
        self.packing, self.engine = packing, SimEngine(packing.slots, LEVEL)
        self.module = Module("kernel", "ckks")
        self.inputs: dict[str, list[Any]] = {}
        self.public: dict[str, np.ndarray] = {}

    def input(self, name: str, tensor: np.ndarray, heads: int = 0) -> Value:
        """An encrypted row [batch, features]; padding of ``heads`` copies head 0."""
        layout = self.packing.row(*tensor.shape)
        slots = layout.pack(blocked(tensor, layout), (*ROWS, "g") if heads else ROWS)
        self.inputs[name] = [self.engine.encrypt(vector, LEVEL) for vector in slots]
        attributes = {"layout": layout, "shape": list(tensor.shape), "level": LEVEL}
        return self.module.add("ckks.input", [], {"name": name, **attributes})

    def at(self, value: Value, level: int) -> Value:
        """A value, dropped to a level."""
        return self.module.add("ckks.drop", [value], {"level": level})

    def mask(self, name: str, tensor: np.ndarray) -> Value:
        """A public input [batch, tokens]."""
        self.public[name] = tensor.astype(float)
        entry = {"name": name, "shape": list(tensor.shape)}
        return self.module.add("ckks.public_input", [], entry)

    def slots(self, value: Value) -> np.ndarray:
        """Slots of a value ``[ciphertexts, slots]``."""
        shape = list(layout_of(value).shape)
        if "d" in dict(layout_of(value).extents):
            shape[-2:] = [shape[-2] * shape[-1]]
        self.module.add("ckks.output", [value], {"name": "y", "shape": shape})
        result = execute(self.engine, self.module, self.inputs, self.public)["y"]
        self.module.ops.pop()
        return np.stack([self.engine.decrypt(ciphertext) for ciphertext in result])


@st.composite
def linears(draw: st.DrawFn) -> tuple[RowPacking, int, int, int, RowPlan | None]:
    """Packing, batch, inputs, outputs, and a plan: any that is possible, or the chosen one."""
    inputs, outputs, width = (draw(st.integers(1, 20)) for _ in range(3))
    batch = draw(st.integers(1, 3))
    least = bits_for(width) + bits_for(batch)
    packing = RowPacking(1 << draw(st.integers(least, least + 6)), width, bits_for(batch))
    source, target = (packing.row(batch, n) for n in (inputs, outputs))
    one, other = FeatureMap(source, inputs), FeatureMap(target, outputs)
    most = most_copies(packing.slots >> packing.b, one.positions, other.positions)
    copies = 1 << draw(st.integers(0, bits_for(most)))
    steps = Diagonals(one.positions, other.positions, copies).steps
    paired = steps > 1 and draw(st.booleans())
    babies = 1 << draw(st.integers(0, bits_for(steps >> paired)))
    chosen = draw(st.booleans())
    return packing, batch, inputs, outputs, None if chosen else RowPlan(babies, paired, copies)


@given(linears(), st.integers(0, 9))
def test_linear_transform(
    case: tuple[RowPacking, int, int, int, RowPlan | None], seed: int
) -> None:
    packing, batch, inputs, outputs, plan = case
    random = np.random.default_rng(seed)
    x, weight = random.normal(size=(batch, inputs)), random.normal(size=(outputs, inputs))
    bias, bench = random.normal(size=outputs), Bench(packing)
    row, target = bench.input("x", x), packing.row(batch, outputs)
    plan = plan or choose_row_plan(layout_of(row), target, inputs, outputs)
    arrays = {n: bench.module.constant(n, a) for n, a in (("weight", weight), ("bias", bias))}
    attributes = {**arrays, "layout": target, **plan._asdict()}
    y = bench.module.add("ckks.linear_transform", [row], attributes)
    wanted = target.pack(blocked(x @ weight.T + bias, target), ROWS)
    np.testing.assert_allclose(bench.slots(y), wanted, atol=1e-9)  # padding features are 0


def test_the_plan_of_a_wide_row_fills_its_plaintexts() -> None:
    """4,096 features of 32,768 slots: eight diagonals a product, two in each complex slot."""
    packing = RowPacking(32768, 128, 0)
    rows = [packing.row(1, features) for features in (4096, 14336)]
    assert choose_row_plan(rows[0], rows[0], 4096, 4096)[1:] == (True, 8)
    assert choose_row_plan(rows[0], rows[1], 4096, 14336)[1:] == (True, 2)


@pytest.mark.parametrize("changed", [{"copies": 3}, {"copies": 64}, {"baby_steps": 64}])
def test_an_impossible_plan_is_refused(changed: dict[str, int]) -> None:
    packing = RowPacking(64, 4, 0)
    bench, target = Bench(packing), packing.row(1, 8)
    row = bench.input("x", np.zeros((1, 8)))
    weight = bench.module.constant("weight", np.eye(8))
    plan = {"baby_steps": 1, "copies": 1, **changed}
    with pytest.raises(Exception, match="copies|baby steps"):
        bench.module.add(
            "ckks.linear_transform", [row], {"weight": weight, "layout": target, **plan}
        )


@st.composite
def caches(draw: st.DrawFn) -> dict[str, int]:
    case = {
        "batch": draw(st.integers(1, 3)),
        "heads": draw(st.integers(1, 5)),
        "tokens": draw(st.integers(1, 20)),
        "width": draw(st.integers(1, 9)),
        "seed": draw(st.integers(0, 9)),
    }
    least = sum(bits_for(case[name]) for name in ("batch", "heads", "width"))
    return {**case, "bits": least + draw(st.integers(0, 6))}


@given(caches())
def test_attention_with_a_cache(case: dict[str, int]) -> None:
    """Rows are appended at their tokens, in several ciphertexts and parts; some stay empty."""
    batch, heads, tokens, width = (case[n] for n in ("batch", "heads", "tokens", "width"))
    random, features = np.random.default_rng(case["seed"]), heads * width
    packing = RowPacking(1 << case["bits"], width, bits_for(batch))
    bench = Bench(packing)
    seen = random.integers(0, tokens, min(tokens, 3))
    now: dict[bool, Value] = {}
    kept = np.zeros((2, batch, heads, tokens, width))
    for number, token in enumerate(seen):
        position = bench.mask(f"position.{number}", np.tile(np.arange(tokens) == token, (batch, 1)))
        for keys in (True, False):
            row = random.normal(size=(batch, features))
            kept[int(keys), :, :, token] += row.reshape(batch, heads, width)
            value = bench.input(f"row.{number}.{keys}", row, heads)
            layout = Cache.choose(keys, layout_of(value), tokens).layout
            added = bench.module.add("ckks.at_tokens", [value, position], {"layout": layout})
            added, before = bench.at(added, LEVEL - 2), now.get(keys)
            now[keys] = added if before is None else bench.module.add("ckks.add", [before, added])
    visible = random.random((batch, tokens)) < 0.6
    mask, query = bench.mask("mask", visible), random.normal(size=(batch, features))
    layout = Cache.of(layout_of(now[True])).scores()
    flags = {"causal": False, "fill": -3.0, "layout": layout}
    q, k = bench.input("q", query, heads), bench.at(now[True], LEVEL - 2)
    s = bench.module.add("ckks.row_scores", [bench.at(q, LEVEL - 2), k, mask], flags)
    p = bench.module.add("ckks.mask_zero", [s, mask], {"causal": False, "value": -3.0})
    y = bench.module.add("ckks.row_context", [p, bench.at(now[False], p.ciphertext.level)])
    plain = np.einsum("bhd,bhjd->bhj", query.reshape(batch, heads, width), kept[1])
    keep = np.broadcast_to(visible[:, None], plain.shape)
    filled = np.where(keep, plain, -3.0)
    slots = bench.slots(s)
    np.testing.assert_allclose(layout.unpack(slots), filled, atol=1e-9)
    # Padding holds the fill or real scores.
    assert np.isclose(slots[..., None], np.append(filled.ravel(), -3.0), atol=1e-9).any(-1).all()
    context = np.einsum("bhj,bhjd->bhd", np.where(keep, plain, 0.0), kept[0]).reshape(batch, -1)
    found = unpack_tensor(layout_of(y), bench.slots(y), features)
    np.testing.assert_allclose(found, context, atol=1e-9)


def test_a_long_context_has_parts() -> None:
    """LLaMA3-8B's keys and values: 2,048 tokens in two matrices of 1,024, 128 diagonals each."""
    row = row_layout(32768, 1, 32, 128, 0)
    for keys in (True, False):
        cache = Cache.choose(keys, row, 2048)
        assert (cache.parts, cache.tokens, cache.steps) == (2, 1024, 128)
        assert cache.layout.ciphertexts == 256
        assert Cache.of(cache.layout) == cache


@pytest.mark.parametrize(
    "text",
    [
        "[*:1 t:2 g:1 b:0 |  | b=1 t=4 g=2]",
        "[s.1:1 t:2 g:1 b:0 | t.2:1 s:1 | b=1 t=4 g=2 s=4]",
        "[t:2 s:1 g:1 b:0 | t.2:0 s.1:1 | b=1 t=4 g=2 s=4]",
    ],
)
def test_other_layouts_are_no_cache(text: str) -> None:
    with pytest.raises(ValueError, match="no layout of keys or values"):
        Cache.of(Layout.parse(text))
