"""Small lowered programs that use every kernel, and the numbers of the Python simulation."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
from packed import expanded, folded, run_packed
from small_transformers import Builder, Shape, approximate, inputs_for

from atlasc.client.checks import MASK
from atlasc.ir.module import Module, Value
from atlasc.passes.framework.pass_base import run_passes
from atlasc.passes.lowering.gather_sums import GatherSums
from atlasc.passes.lowering.pack import Pack
from atlasc.passes.lowering.packing.geometry import Packing, least_slots
from atlasc.passes.lowering.place_bootstraps import PlaceBootstraps
from atlasc.passes.lowering.rotation_keys import RotationKeys
from atlasc.passes.lowering.select_early import SelectEarly
from atlasc.program.kernels.context import layout_of
from atlasc.program.kernels.scores import score_layout
from atlasc.program.rotation_plan import rotation_reach
from atlasc.targets.bootstrap_needs import BootstrapNeeds
from atlasc.targets.sim import SimEngine

LEVELS = 14
SCALED_BY = 3.0
PLACED = PlaceBootstraps(LEVELS, True, 2, lowest=3)
"""Bootstraps that an engine's own algorithm can do, which begins at level 3."""


@dataclass(frozen=True)
class SmallParameters:
    """Parameters that no library has: as few slots as a test needs."""

    slots: int
    max_level: int = LEVELS
    bootstrap_level: int | None = LEVELS
    bootstrap_batch: int = 2
    bootstrap_errors: tuple[float, float] = (0.0, 0.0)
    in_runtime = False
    narrow = 2
    family, cost_table = "none", None
    log_ring_degree, special_primes = 4, 1
    moduli = SimpleNamespace(primes=(0,) * (LEVELS + 2))
    needs = BootstrapNeeds()

    def special_at(self, level: int) -> int:
        return self.special_primes

    def residues(self, level: int) -> int:
        return level + 1

    def digits(self, level: int) -> int:
        return level + 1

    def circuit(self, period: int) -> tuple[()]:
        return ()


@dataclass(frozen=True)
class Case:
    """A program and what goes in.

    Attributes:
        program: lowered, with its rotations planned.
        parameters: what it is lowered for.
        inputs: tensors by name, public ones too.
    """

    program: Module
    parameters: SmallParameters
    inputs: dict[str, np.ndarray]

    def expected(self) -> dict[str, np.ndarray]:
        """The Python simulation's outputs."""
        p = self.parameters
        engine = SimEngine(
            p.slots,
            p.max_level,
            p.bootstrap_level,
            bootstrap_batch=p.bootstrap_batch,
            rotation_keys=rotation_reach(self.program, p.max_level),
        )
        return run_packed(self.program, self.inputs, engine)


SHAPES = {
    "encoder": Shape(pre_norm=False, batch=3, mask=True, layers=2, classes=0),
    "decoder": Shape(rms=True, causal=True, heads=3, width=6, tokens=7, classes=0, batch=2),
    "wide": Shape(heads=5, width=3, tokens=9, mask=True, causal=True),
    "long": Shape(heads=2, width=2, tokens=13, mask=True, causal=True),
    "pooled": Shape(heads=5, width=3, tokens=9, batch=3, mask=True, mean=True),
    "one_token": Shape(batch=2, tokens=1, heads=2, width=3),
    "classifier": Shape(heads=5, width=3, tokens=13, hidden=39, mask=True),
    "normed": Shape(
        rms=True,
        causal=True,
        mask=True,
        heads=3,
        width=4,
        tokens=5,
        batch=2,
        classes=0,
        bias="hqk",
        key_norm="heads",
    ),
    "slopes": Shape(heads=3, width=2, tokens=6, batch=2, mask=True, classes=0, bias="slopes"),
    "last_token": Shape(rms=True, causal=True, heads=3, width=2, tokens=9, token=8, batch=2),
}

EARLY = ("one_token", "classifier", "last_token")
"""Of these the last block is computed for the token that the classifier reads."""
LOW = {f"{name}_low": name for name in ("decoder", "wide", "classifier", "normed")}
"""The same shapes with features in the low slot bits."""


def transformer(name: str) -> Case:
    """A random Transformer with bootstraps, two ciphertexts in one, and gathered sums."""
    like = LOW.get(name, name)
    shape = SHAPES[like]
    module, inputs = Builder(shape, 7).build(), inputs_for(shape, 8)
    approximate(module, inputs)
    poly = expanded(module)
    inputs["embedded"] = inputs.pop("x")
    _name_mask(poly, inputs)
    poly = folded(poly, inputs)
    parameters = SmallParameters(least_slots(poly))
    steps = [SelectEarly()] if like in EARLY else []
    steps += [Pack(parameters.slots, name in LOW), GatherSums(), PLACED]
    program = run_passes(poly, [*steps, RotationKeys()])
    program.name = name
    return Case(program, parameters, inputs)


def _name_mask(poly: Module, inputs: dict[str, np.ndarray]) -> None:
    """A client sends no public input of another name."""
    for op in poly.inputs:
        if op.attributes["side"] == "public":
            inputs[MASK] = inputs.pop(op.attributes["name"])
            op.attributes["name"] = MASK


def gathered() -> Case:
    """Sums of five heads, in three ciphertexts, in one and back."""
    packing, bench = Packing(3, 2, 1, 1, 2), Bench("gathered")
    x = bench.input("x", packing, np.random.default_rng(3).normal(size=(2, 3, 15)))
    sums = bench.add("rotate_sum", x, axes=["d"])
    one = bench.add("gather", sums)
    back = bench.add("spread", bench.add("square", one), layout=layout_of(sums))
    return bench.case(bench.add("mul", x, back))


def elementwise() -> Case:
    """Constants of every kind, polynomials by channel, selections."""
    packing, bench = Packing(3, 2, 1, 1, 2), Bench("elementwise")
    random = np.random.default_rng(4)
    x = bench.input("x", packing, random.uniform(-0.5, 0.5, size=(2, 3, 11)))
    y = bench.add("add_plain", x, value=bench.constant(0.1 * random.normal(size=(3, 11))))
    y = bench.add("mul_plain", y, value=bench.constant(random.normal(size=(2, 1, 11))))
    y = bench.add("mul_plain", y, value=0.5, zero_padding=True)
    coefficients = random.normal(size=(11, 6)) / 6
    coefficients[:, 3] = 0.0
    y = bench.add("chebyshev", y, coefficients=bench.constant(coefficients))
    y = bench.add("chebyshev", y, coefficients=[0.5, 0.0, 0.25])
    y = bench.add("sub", bench.add("double", x, times=2), y)
    y = bench.add("select", y, layout_axis="t", index=2)
    y = bench.add("add_plain", y, value=bench.constant(random.normal(size=11)), only_first=True)
    weight, bias = random.normal(size=(9, 11)), random.normal(size=9)
    layout = packing.like(layout_of(y), 9)
    arrays = {"weight": bench.constant(weight), "bias": bench.constant(bias), "layout": layout}
    flags = {"baby_steps": 3, "only_first": True, "copy_padding": True}
    return bench.case(bench.add("linear_transform", y, **arrays, **flags))


def grown() -> Case:
    """A sum that grows back the features that it was taken over, and attention without a mask."""
    packing, bench = Packing(4, 2, 1, 0, 2), Bench("grown")
    random = np.random.default_rng(5)
    x = bench.input("x", packing, random.normal(size=(1, 4, 8)))
    total = bench.add("rotate_sum", bench.add("square", x), axes=["d", "g"])
    value, layout = bench.constant(random.normal(size=8)), layout_of(x)
    y = bench.add("mul_plain", total, value=value, layout=layout)
    scores = score_layout(layout_of(x), 2)
    p = bench.add("ct_matmul_qk", y, x, fill=-1.0, layout=scores)
    p = bench.add("mask_zero", p, value=2.0)
    low = bench.add("drop", x, level=bench.level(p))
    return bench.case(bench.add("ct_matmul_pv", p, low, layout=layout))


def scaled() -> Case:
    """One product by a number, of a thousand slots."""
    packing, bench = Packing(16, 4, 0, 1, 5), Bench("scaled")
    x = bench.input("x", packing, np.random.default_rng(6).normal(size=(2, 32, 15)))
    return bench.case(bench.add("mul_plain", x, value=SCALED_BY), factor=1.0)


def residual() -> Case:
    """Two layers of a residual network, and a classifier."""
    packing, bench = Packing(2, 1, 1, 0, 1), Bench("residual")
    random = np.random.default_rng(0)
    x = bench.input("x", packing, random.normal(size=(1, 2, 4)))
    layout = layout_of(x)
    for layer in range(2):
        weight = bench.module.constant(f"layer.{layer}.weight", random.normal(size=(4, 4)))
        attributes = {"weight": weight, "baby_steps": 2, "paired": True, "layout": layout}
        place = f"encoder.layer.{layer}"
        y = bench.module.add("ckks.linear_transform", [x], attributes, f"{place}.dense")
        y = bench.module.add("ckks.square", [y], {"part": "activation"}, f"{place}.activation")
        x = bench.module.add("ckks.drop", [x], {"level": bench.level(y)}, place)
        x = bench.module.add("ckks.add", [x, y], {}, place)
    coefficients = [0.5, 0.25, 0.125]
    x = bench.module.add("ckks.chebyshev", [x], {"coefficients": coefficients}, "classifier")
    return bench.case(x)


class Bench:
    """A ckks module under construction, and its inputs."""

    def __init__(self, name: str) -> None:
        self.module, self.inputs = Module(name, "ckks"), dict[str, np.ndarray]()
        self.slots = 0

    def input(self, name: str, packing: Packing, tensor: np.ndarray) -> Value:
        self.inputs[name], self.slots = tensor, packing.hidden(1, 1, 1).slots
        attributes: dict[str, Any] = {
            "name": name,
            "layout": packing.hidden(*tensor.shape),
            "shape": list(tensor.shape),
            "level": LEVELS,
        }
        return self.module.add("ckks.input", [], {**attributes, "centred": True, "factor": 0.5})

    def constant(self, array: np.ndarray) -> Any:
        return self.module.constant("constant", array)

    def level(self, value: Value) -> int:
        return value.ciphertext.level

    def add(self, op: str, *operands: Value, **attributes: Any) -> Value:
        """An op on operands, brought to one level."""
        level = min(map(self.level, operands))
        lowered = [
            value
            if self.level(value) == level
            else self.module.add("ckks.drop", [value], {"level": level})
            for value in operands
        ]
        return self.module.add(f"ckks.{op}", lowered, attributes)

    def case(self, result: Value, factor: float = 3.0) -> Case:
        layout = layout_of(result)
        features = min(layout.extent("g") * layout.extent("d"), 15)
        shape = [n for axis, n in layout.extents if axis in "bt"] + [features]
        attributes = {"name": "y", "shape": shape, "factor": factor}
        shift = self.constant(np.linspace(-1.0, 1.0, features))
        self.module.add("ckks.output", [result], {**attributes, "shift": shift})
        self.module.attributes |= {"slots": self.slots}
        program = run_passes(self.module, [RotationKeys()])
        return Case(program, SmallParameters(self.slots), self.inputs)


CASES: dict[str, Any] = {
    "gathered": gathered,
    "elementwise": elementwise,
    "grown": grown,
    "residual": residual,
    "scaled": scaled,
}
NAMES = (*SHAPES, *LOW, *CASES)


def small_program(name: str) -> Case:
    """The program of one of ``NAMES``."""
    return CASES[name]() if name in CASES else transformer(name)
