"""Arrays of one number stay one number, and counting equal ops once changes no count."""

from __future__ import annotations

import numpy as np
import pytest

from atlasc.calibration.calibrate import nominal_calibration
from atlasc.ir.arrays.lazy import elementwise, is_uniform
from atlasc.ir.module import Module
from atlasc.passes.approximation.approximate import apply_recipe
from atlasc.passes.pipeline import Lowered, lower_nn
from atlasc.program.costs import program_costs
from atlasc.program.counting_engine import CountingEngine
from atlasc.program.execute import execute


class Set:
    """A parameter set that bootstraps."""

    slots, max_level, bootstrap_level, bootstrap_batch = 1024, 14, 14, 2
    bootstrap_from = 0
    bootstrap_errors = (0.0, 0.0)
    landings = 0
    lanes = 1
    most_sums = 32
    fewer_keys = False
    narrow = 0


def encoder(layers: int, uniform: bool) -> Module:
    """Blocks of a linear layer with a residual, a norm and a GELU, 8 features wide."""
    module = Module("encoder", "nn")
    generator = np.random.default_rng(0)

    def array(name: str, shape: tuple[int, ...]):  # type: ignore[no-untyped-def]
        values = generator.normal(size=shape).astype(np.float32)
        one = np.broadcast_to(np.float32(0.5), shape)
        return module.constant(name, one if uniform else values)

    x = module.add("nn.input", [], {
        "name": "x", "shape": [1, 4, 8], "side": "client", "dtype": "f64",
    })  # fmt: skip
    x = module.add("nn.encrypt", [x])
    for layer in range(layers):
        where = f"layers.{layer}"
        weights = {"weight": array("w", (8, 8)), "bias": array("b", (8,))}
        y = module.add("nn.linear", [x], weights, f"{where}.dense")
        y = module.add("nn.gelu", [y], {}, f"{where}.act")
        y = module.add("nn.add", [x, y], {}, where)
        norm = {"gamma": array("gamma", (8,)), "beta": array("beta", (8,)), "epsilon": 1e-5}
        x = module.add("nn.layer_norm", [y], norm, f"{where}.norm")
    module.add("nn.output", [x], {"name": "y"})
    return module


def lowered(layers: int, uniform: bool) -> Lowered:
    module = encoder(layers, uniform)
    module = apply_recipe(module, "is", nominal_calibration(module))
    return lower_nn(module, lambda levels, slots: Set())


def test_elementwise() -> None:
    one, other = np.broadcast_to(2.0, (3, 4)), np.broadcast_to(3.0, (4,))
    product = elementwise(np.multiply, one, other)
    assert is_uniform(product)
    np.testing.assert_array_equal(product, np.full((3, 4), 6.0))
    mixed = elementwise(np.subtract, one, np.arange(4.0))
    assert not is_uniform(mixed)
    np.testing.assert_array_equal(mixed, np.full((3, 4), 2.0) - np.arange(4.0))


def test_shapes_alone_cost_what_weights_cost() -> None:
    real, bare = lowered(3, uniform=False), lowered(3, uniform=True)
    counts = [program_costs(part.program) for part in (real, bare)]
    assert counts[0].total == counts[1].total
    assert counts[0].path == counts[1].path
    weights = [array for array in bare.program.symbols.values() if array.shape == (8, 8)]
    assert weights
    assert all(is_uniform(array) for array in weights)


@pytest.mark.parametrize("layers", [1, 4])
def test_counting_equal_ops_once_changes_no_count(layers: int) -> None:
    program = lowered(layers, uniform=False).program
    found = program_costs(program)
    engine = CountingEngine(Set.slots, Set.max_level, Set.bootstrap_level, Set.bootstrap_batch)
    (entry,) = program.inputs
    ciphertexts = entry.attributes["layout"].ciphertexts
    level = entry.attributes["level"]
    fresh = [engine.encrypt(None, level) for _ in range(ciphertexts)]
    execute(engine, program, {entry.attributes["name"]: fresh})
    expected = engine.total()
    del expected.primitives["encrypt", level]  # the client's
    assert found.total == expected
    assert found.total.bootstraps > 0
