"""What is recorded of bootstrapped values: which poly value their slots hold, and its bound."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st
from packed import folded, run_packed
from small_transformers import SHAPES, Builder, Shape, approximate, inputs_for

from atlasc.analyses.bounds import ROOM, greatest_errors
from atlasc.ir.errors import AtlasError
from atlasc.ir.interpreter import interpret
from atlasc.ir.module import Module, Op
from atlasc.ir.text.parser import parse
from atlasc.ir.text.storage import print_module
from atlasc.passes.framework.pass_base import run_passes
from atlasc.passes.lowering.gather_sums import GatherSums
from atlasc.passes.lowering.packing.geometry import least_slots
from atlasc.passes.lowering.packing.packer import is_alone
from atlasc.passes.lowering.place_bootstraps import PlaceBootstraps
from atlasc.passes.lowering.select_early import SelectEarly
from atlasc.passes.pipeline import Lowered, lower_nn
from atlasc.targets.sim import SimEngine
from atlasc_comparisons.desilo.parameters import BOOTSTRAPPED
from tests.passes.lowering.test_transformers import (
    LEVELS,
    packed_program,
    shapes,
    usable_program,
)


@given(shapes(), st.integers(0, 999), st.booleans(), st.booleans(), st.floats(0.5, 1.0))
def test_slots_hold_the_elements_of_the_recorded_value(
    shape: Shape, seed: int, gathered: bool, early: bool, share: float
) -> None:
    """On calibration inputs and on others the greatest slot that a bootstrap meets is the greatest
    element of the poly value, or a constant of the padding.
    """
    poly, inputs = usable_program(shape, seed)
    poly = folded(poly, inputs)
    slots = 2 * least_slots(poly)
    steps = [*([GatherSums()] if gathered else []), PlaceBootstraps(LEVELS, True, 2)]
    poly = run_passes(poly, [SelectEarly()]) if early else poly
    program = run_passes(packed_program(poly, slots, early=False, low=False), steps)
    inputs = {**inputs, "embedded": share * inputs["embedded"]}
    in_slots, in_values = dict[str, float](), dict[str, float]()

    engine = SimEngine(slots, LEVELS, LEVELS, bootstrap_batch=2, bootstrap_range=np.inf)

    def in_program(op: Op, ciphertexts: list[Any]) -> None:
        if op.name != "ckks.public_input":
            in_slots[op.value.name] = max(np.abs(engine.decrypt(c)).max() for c in ciphertexts)

    def in_poly(op: Op, result: np.ndarray) -> None:
        in_values[op.value.name] = np.abs(result).max()

    with np.errstate(all="ignore"):
        try:
            run_packed(program, inputs, engine, in_program)
        except AtlasError as error:  # a norm of one feature, whose slots are all padding
            assume("a polynomial was evaluated outside its range" not in error.remedy)
            raise
        interpret(poly, inputs, observe=in_poly)

    for op in program.ops:
        if op.name == "ckks.bootstrap":
            source = op.operands[0]
            held, magnitude = source.op.attributes["holds"], source.op.attributes["magnitude"]
            assert not is_alone(source)
            # The magnitude may be that of a constant: of the padding, or what hides keys.
            wanted = [in_values[held], max(in_values[held], magnitude)]
            assert np.isclose(in_slots[source.name], wanted, rtol=1e-6, atol=1e-9).any()


def lowered(shape: Shape) -> tuple[Lowered, dict[str, np.ndarray]]:
    module, inputs = Builder(shape, 3).build(), inputs_for(shape, 4)
    approximate(module, inputs)
    return lower_nn(module, lambda levels, slots: BOOTSTRAPPED, inputs), inputs


def bounds(module: Module) -> dict[str, float]:
    ops = (op for op in module.ops if "bound" in op.attributes)
    return {op.value.name: op.attributes["bound"] for op in ops}


def test_the_poly_module_tells_which_values_are_bootstrapped() -> None:
    """Also after it was written to a file and read again."""
    made, _ = lowered(SHAPES["encoder"])
    held = {
        op.operands[0].op.attributes["holds"]
        for op in made.program.ops
        if op.name == "ckks.bootstrap"
    }
    assert held
    found = bounds(made.poly)
    assert set(found) == held
    assert all(0.9 < bound <= 1 for bound in found.values())
    assert bounds(parse(print_module(made.poly), made.poly.symbols)) == found
    magnitudes = {o.value.name: o.attributes["magnitude"] for o in made.poly.ops if o.result}
    assert all(magnitudes[name] <= bound for name, bound in found.items())


def test_a_bound_leaves_room_for_the_errors_of_the_engine() -> None:
    """The greatest error among all slots of a value, on the simulator with noise."""
    made, inputs = lowered(SHAPES["encoder"])
    program, parameters, found = made.program, BOOTSTRAPPED, bounds(made.poly)
    inputs["embedded"] = inputs["x"]
    sources = {op.operands[0].op for op in program.ops if op.name == "ckks.bootstrap"}
    runs: list[dict[str, np.ndarray]] = []
    for noise in (None, parameters.noise_model()):
        runs.append({})
        engine = SimEngine(*parameters.shape, noise=noise)

        def keep(
            op: Op,
            ciphertexts: list[Any],
            run: dict[str, np.ndarray] = runs[-1],
            engine: SimEngine = engine,
        ) -> None:
            if op in sources:
                run[op.attributes["holds"]] = np.stack([engine.decrypt(c) for c in ciphertexts])

        run_packed(program, inputs, engine, keep)
    exact, noisy = runs
    assert set(exact) == set(found)
    seen = {name: np.abs(noisy[name] - exact[name]).max() for name in found}
    assert max(seen.values()) > 1e-5
    assert all(seen[name] <= 1 + 1e-6 - bound for name, bound in found.items())
    # Not far more than it takes: a bound that is too low refuses good inputs.
    assert all(1 - bound <= 10 * ROOM * seen[name] + 1e-4 for name, bound in found.items())


def test_without_errors_the_bound_is_the_range() -> None:
    made, inputs = lowered(SHAPES["vision"])
    inputs["embedded"] = inputs["x"]
    names = set(bounds(made.poly))
    errors = greatest_errors(made.poly, names, inputs, 0.0, 0.0)
    assert set(errors) == names
    assert max(errors.values(), default=0.0) == 0.0
