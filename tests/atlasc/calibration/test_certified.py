"""Ranges by algebra: no input leaves them, and some come close."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_transformers import SHAPES, Builder, Grouped, Shape, arguments, inputs_for

from atlasc.calibration.calibrate import calibrate
from atlasc.calibration.certified import WIDEST_SCORES, certified_bounds, require_certified
from atlasc.calibration.measure import nonlinear_ops
from atlasc.ir.errors import AtlasError
from atlasc.ir.module import Module, Value
from atlasc.passes.approximation.approximate import apply_recipe, apply_settings
from atlasc.passes.approximation.expand import Expand
from atlasc.passes.framework.pass_base import Report
from atlasc.polynomials.parametrisation import WIDE
from atlasc.polynomials.range_levels import as_seen, levels_of_ranges

ROUNDING = 1e-9


class WithoutNorms(Builder):
    """Blocks without norms; the client's own norm comes before all of them."""

    def _norm(self, x: Value, place: str) -> Value:
        return x

    def build(self) -> Module:
        shape, module = self.shape, self.module
        extents = [shape.batch, shape.tokens, shape.features]
        attributes = {"name": "x", "shape": extents, "side": "client", "dtype": "f64"}
        x = super()._norm(module.add("nn.input", [], attributes), "embeddings")
        self.mask = []
        if shape.mask:
            attributes = {**attributes, "name": "mask", "shape": extents[:2], "side": "public"}
            self.mask = [module.add("nn.input", [], attributes)]
        x = module.add("nn.encrypt", [x])
        for layer in range(shape.layers):
            x = self._block(x, f"layer.{layer}")
        module.add("nn.output", [x], {"name": "y"})
        return module


def small(causal: bool = False) -> tuple[Module, dict[str, np.ndarray]]:
    shape = Shape(batch=40, mask=True, causal=causal, classes=0)
    return WithoutNorms(shape, 3).build(), inputs_for(shape, 4)


@given(
    name=st.sampled_from([*SHAPES, "grouped", "without norms"]),
    seed=st.integers(0, 2**32 - 1),
    size=st.sampled_from([1e-3, 1.0, 1e3]),
    alike=st.booleans(),
)
def test_no_input_leaves_the_bounds(name: str, seed: int, size: float, alike: bool) -> None:
    builder = {"grouped": Grouped, "without norms": WithoutNorms}.get(name, Builder)
    shape = replace(SHAPES.get(name, SHAPES["decoder"]), batch=8)
    shape = replace(shape, rms=False, mask=True) if name not in SHAPES else shape
    module, arrays = builder(shape, seed).build(), inputs_for(shape, seed)
    arrays["x"] = size * (arrays["x"] ** 3 + 5 * alike)
    bounds = certified_bounds(module)
    found = arguments(module, arrays)
    assert set(bounds) == {op.value.name for op in nonlinear_ops(module)}
    for op in nonlinear_ops(module):
        x = found[op]
        low, high, channels = bounds[op.value.name]
        room = ROUNDING * max(1.0, float(np.abs(x).max()))
        assert low - room <= x.min() and x.max() <= high + room
        if channels is not None and np.isfinite(low):
            assert (channels[0] - room <= x).all() and (x <= channels[1] + room).all()


@pytest.mark.parametrize("rms", [False, True])
def test_an_input_reaches_the_ends_of_an_activation(rms: bool) -> None:
    """The row along a channel's weights, as the norm sees them, gives the channel's ends."""
    shape = replace(SHAPES["vision"], batch=1, tokens=1, layers=1, heads=4, rms=rms)
    builder = Builder(shape, 1)
    module = builder.module
    attributes = {"name": "x", "shape": [1, 1, 16], "side": "client", "dtype": "f64"}
    x = module.add("nn.encrypt", [module.add("nn.input", [], attributes)])
    normed = builder._norm(x, "norm")
    up = builder._linear(normed, 12, "up")
    module.add("nn.output", [module.add("nn.gelu", [up])], {"name": "y"})
    gelu = next(op for op in module.ops if op.name == "nn.gelu")
    channels = certified_bounds(module)[gelu.value.name].channels
    assert channels is not None
    weight = module.symbols["up.weight"] * module.symbols["norm.gamma"]
    for channel in range(12):
        for end, sign in zip(channels, (-1e6, 1e6), strict=True):
            row = sign * weight[channel].reshape(1, 1, 16)
            seen = arguments(module, {"x": row})[gelu][0, 0, channel]
            assert seen == pytest.approx(end[channel], rel=1e-6)


def test_scores_are_within_a_few_times_of_what_inputs_can_reach() -> None:
    module, arrays = small()
    softmax = next(op for op in module.ops if op.name == "nn.softmax")
    low, high, _ = certified_bounds(module)[softmax.value.name]
    x = arguments(module, arrays)[softmax]
    assert high < 4 * x.max() and low > 4 * x.min()


@pytest.mark.parametrize("causal", [False, True])
def test_ranges_hold_for_rows_of_any_scores_and_any_mask(causal: bool) -> None:
    module, arrays = small(causal)
    known = next(r for r in calibrate(module, arrays, certified=True).ranges if r.width)
    assert known.basis == "certified" and known.shares == (1.0,) * 6
    rng, width = np.random.default_rng(5), known.width
    assert width is not None and known.log_sums is not None
    for visible in range(1, width + 1):
        corners = rng.choice([known.low, known.high], size=(50, visible))
        scores = np.vstack([corners, rng.uniform(known.low, known.high, size=(50, visible))])
        for halvings, (low, high) in enumerate(known.log_sums):
            temperature, hidden = 2.0**halvings, np.log(width / visible)
            warm = scores + temperature * hidden
            sums = np.log(np.exp(warm / temperature).sum(axis=1))
            assert low - 1e-9 <= sums.min() and sums.max() <= high + 1e-9
            assert known.scores_at(halvings)[0] <= warm.min()
            assert warm.max() <= known.scores_at(halvings)[1] + 1e-9


def test_every_polynomial_says_what_its_range_rests_on() -> None:
    module, arrays = small()

    def bases(approximated: Module) -> dict[str, list[str | None]]:
        found: dict[str, list[str | None]] = {}
        for op in Expand().run(approximated, Report()).ops:
            if op.name == "poly.chebyshev":
                found.setdefault(op.attributes["part"], []).append(op.attributes.get("basis"))
        return found

    setting = [(3, 4, 4, 0, 0, 5, 5, 5, 0)]
    measured, certified = (calibrate(module, arrays, certified=how) for how in (False, True))
    assert bases(apply_settings(module, setting, measured, WIDE)) == {
        "softmax": ["measured", "measured", "certified", "certified"], "gelu": ["measured"],
    }  # fmt: skip
    assert bases(apply_settings(module, setting, certified, WIDE)) == {
        "softmax": ["certified"] * 4, "gelu": ["certified"],
    }  # fmt: skip
    assert bases(apply_recipe(module, "is", measured)) == {
        "softmax": ["published", "published", *["certified"] * 4], "gelu": ["measured"],
    }  # fmt: skip


def test_certified_ranges_cost_levels() -> None:
    module, arrays = small()
    ranges = calibrate(module, arrays, certified=True).ranges
    assert levels_of_ranges(ranges) > levels_of_ranges([*map(as_seen, ranges)]) > 0


def test_what_no_polynomial_covers_is_named() -> None:
    module = Builder(SHAPES["vision"], 1).build()
    with pytest.raises(AtlasError) as caught:
        require_certified(module)
    told = str(caught.value)
    assert "nn.layer_norm" in told and "layer.0.norm1" in told and "--ranges measured" in told
    assert "1e-05" in told and "larger epsilon" in told and "4 other ops" in told


def test_scores_that_are_too_wide_are_refused() -> None:
    module, _ = small()
    require_certified(module)
    name = next(name for name in module.symbols if name.endswith("query.weight"))
    module.symbols[name] = module.symbols[name] * 100
    softmax = next(op for op in module.ops if op.name == "nn.softmax")
    low, high, _ = certified_bounds(module)[softmax.value.name]
    assert high - low > WIDEST_SCORES
    with pytest.raises(AtlasError, match="norm of its queries"):
        require_certified(module)
