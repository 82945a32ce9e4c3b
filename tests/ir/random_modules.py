"""Hypothesis strategies: random modules of all three levels, with awkward attributes."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from atlasc.ir.layout import Field, Layout
from atlasc.ir.module import Module, Value
from atlasc.ir.types import CiphertextType
from atlasc.polynomials.algorithms.chebyshev import ActivationApproximation

TEXTS = st.text(max_size=12).filter(str.isprintable) | st.sampled_from(
    ['"', "\\", '\\"', "\\n", "//", "}", "%x", "é×σ", "\\\\", "", "encoder.layer.3"]
)
LOCATIONS = st.from_regex(r"[A-Za-z0-9_ .:/\[\]<>()@+,=\-$]{0,12}", fullmatch=True)
ENDS = st.from_regex(r"[A-Za-z0-9_]{1,4}([.\-/][A-Za-z0-9_]{1,4}){0,3}", fullmatch=True)
"""Names of inputs and outputs."""
NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True) | st.sampled_from(
    ["loc", "true", "false", "module", "x", "inf", "nan", "tensor"]
)
SYMBOL_NAMES = st.sampled_from(
    ["w", "a.b.0.weight", "0.weight", "parametrizations/weight:original 0", 'q"uote', "é", ""]
)
NUMBERS = (
    st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from([1e-5, 1.2345678901234567e-300, -0.0, 1e16, 5e-324, 0.1 + 0.2, 1e22])
)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
APPROXIMATIONS = st.integers(1, 5).flatmap(
    lambda degree: st.builds(
        ActivationApproximation,
        st.just(degree),
        st.none() | st.tuples(FLOATS, FLOATS).filter(lambda ends: ends[0] < ends[1]),
        st.none() | st.tuples(*[FLOATS] * (degree + 1)),
    )
)


def _array(draw: st.DrawFn, shape: tuple[int, ...]) -> np.ndarray:
    dtype = draw(st.sampled_from(["float64", "float32"]))
    return np.random.default_rng(draw(st.integers(0, 9))).normal(size=shape).astype(dtype)


@st.composite
def modules(draw: st.DrawFn) -> Module:
    """A module of any level that verifies."""
    level = draw(st.sampled_from(["nn", "poly", "ckks"]))
    module = Module(draw(SYMBOL_NAMES), level)
    for name in draw(st.lists(SYMBOL_NAMES, unique=True, max_size=4)):
        module.symbols[name] = np.zeros(draw(st.sampled_from([(), (3,), (2, 0), (1, 2, 3)])), "i8")
    plain = st.recursive(  # module attributes may not name symbols
        NUMBERS | st.booleans() | TEXTS, lambda inner: st.lists(inner, max_size=3), max_leaves=4
    )
    names = NAMES.filter(lambda name: name != "symbol")
    module.attributes = draw(st.dictionaries(names, plain, max_size=3))
    grow = _ckks if level == "ckks" else _tensors
    grow(draw, module)
    return module


def _common(draw: st.DrawFn, module: Module) -> tuple[dict[str, Any], str]:
    attributes: dict[str, Any] = {}
    if draw(st.booleans()):
        attributes["part"] = draw(TEXTS)
    if draw(st.booleans()):
        attributes["magnitude"] = draw(NUMBERS)
    return attributes, draw(LOCATIONS)


def _tensors(draw: st.DrawFn, module: Module) -> None:
    level = module.level
    shape = [draw(st.integers(1, 3)), draw(st.integers(1, 4)), draw(st.integers(1, 4))]
    entry = {"name": draw(ENDS), "shape": shape, "side": "server", "dtype": "f64"}
    x = module.add(f"{level}.input", [], entry, "", draw(TEXTS))
    kinds = ["linear", "add", "scale", "add_constant", "select", "mul"]
    kinds += ["gelu"] if level == "nn" else ["chebyshev", "square"]
    for kind in draw(st.lists(st.sampled_from(kinds), max_size=5)):
        attributes, location = _common(draw, module)
        operands: list[Value] = [x]
        last = x.tensor.shape[-1]
        if kind == "linear":
            weight = _array(draw, (draw(st.integers(1, 4)), last))
            attributes["weight"] = module.constant(draw(SYMBOL_NAMES), weight)
        elif kind == "scale":
            vector = module.constant("vector", _array(draw, (last,)))
            attributes["factor"] = draw(NUMBERS | st.just(vector))
        elif kind == "add_constant":
            attributes["value"] = draw(NUMBERS)
        elif kind == "select":
            if len(x.tensor.shape) < 3:
                continue
            attributes |= {"axis": 1, "index": 0}
        elif kind == "gelu":
            attributes["approximation"] = draw(APPROXIMATIONS)
        elif kind == "chebyshev":
            attributes["coefficients"] = draw(st.lists(NUMBERS, min_size=1, max_size=4))
            attributes["domain"] = [-1.5e-7, draw(st.integers(1, 4))]
        elif kind in ("add", "mul"):
            operands = [x, x]
        x = module.add(f"{level}.{kind}", operands, attributes, location)
    module.add(f"{level}.output", [x], {"name": draw(ENDS)})


def _ckks(draw: st.DrawFn, module: Module) -> None:
    d, g, b, t = (draw(st.integers(0, 3)) for _ in "dgbt")
    spill = draw(st.integers(0, 2))
    fields = (Field("d", d), Field("g", g), Field("b", b), Field("t", t))
    outer = (Field("g", spill, g),) if spill else ()
    bits = {"b": b, "t": t, "g": g + spill, "d": d}
    extents = {axis: draw(st.integers(1, 1 << n)) for axis, n in bits.items()}
    layout = Layout(fields, outer, tuple(extents.items()))
    shape = [extents["b"], extents["t"], extents["g"] * extents["d"]]
    entry: dict[str, Any] = {"name": draw(ENDS), "layout": layout, "shape": shape}
    if draw(st.booleans()):
        entry["level"] = 9
    x = module.add("ckks.input", [], entry, draw(LOCATIONS))
    for kind in draw(st.lists(st.sampled_from(["add", "square", "bootstrap", "sum"]), max_size=5)):
        attributes, location = _common(draw, module)
        if kind == "sum":
            attributes["axes"] = ["d", "g"]
            total = module.add("ckks.rotate_sum", [x], attributes, location)
            x = module.add("ckks.mul", [x, total])
        elif kind == "bootstrap":
            assert isinstance(x.type, CiphertextType)
            x = module.add("ckks.bootstrap", [x], {**attributes, "level": 14}, location)
        else:
            x = module.add(f"ckks.{kind}", [x, x] if kind == "add" else [x], attributes, location)
    module.add("ckks.output", [x], {"name": draw(ENDS), "shape": shape})
