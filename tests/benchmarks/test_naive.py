"""The naive program that the compiler's is measured against gives the right numbers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_transformers import Builder, Shape, approximate, inputs_for

from atlasc.analyses.observed import with_magnitudes
from atlasc.ir.errors import AtlasError
from atlasc.ir.interpreter import interpret
from atlasc.ir.module import Module
from atlasc.passes.approximation.expand import Expand
from atlasc.passes.framework.pass_base import run_passes
from atlasc.passes.pipeline import client_module
from atlasc.program.counting_engine import CountingEngine
from atlasc.program.engine import Engine
from atlasc.targets.sim import SimEngine
from atlasc_comparisons.desilo.parameters import DesiloParameters
from benchmarks.peers.measure import desilo_engines, run_all
from benchmarks.peers.mlp import Mlp
from benchmarks.peers.naive import Naive
from benchmarks.peers.programs import NaiveProgram, OurProgram, Program

LEVELS = 14
SHAPE = Shape(tokens=6, heads=3, width=4, hidden=40, pre_norm=False, mask=True, classes=0)


def small_layer(shape: Shape) -> tuple[Module, dict[str, np.ndarray]]:
    """The unfolded polynomials of a small Transformer, and its inputs."""
    module = Builder(shape, 1).build()
    inputs = inputs_for(shape, 2)
    approximate(module, inputs)
    poly = run_passes(module, [Expand()])
    inputs = {**inputs, **interpret(client_module(module), inputs)}
    return with_magnitudes(poly, inputs), inputs


@pytest.mark.parametrize("slots", [64, 256], ids=["two ciphertexts", "one"])
@pytest.mark.parametrize(
    "shape",
    [
        SHAPE,
        replace(SHAPE, tokens=8, mask=False, causal=True, pre_norm=True),
        replace(SHAPE, width=2, heads=5, tokens=3, mask=False),
    ],
    ids=["masked", "causal, pre-norm", "padded rows and heads"],
)
def test_naive_program_equals_the_polynomials(shape: Shape, slots: int) -> None:
    poly, inputs = small_layer(shape)
    engine = SimEngine(slots, LEVELS, LEVELS)
    program = Naive(poly, engine)
    (blocks,) = program.run(inputs).values()
    (expected,) = interpret(poly, inputs).values()
    assert program.decrypt(blocks, shape.features) == pytest.approx(expected[0], abs=1e-9)


def test_the_count_is_that_of_a_run() -> None:
    poly, inputs = small_layer(SHAPE)
    bootstraps = 0

    class Watched(SimEngine):
        def bootstrap(self, ciphertext):  # type: ignore[no-untyped-def]
            nonlocal bootstraps
            bootstraps += 1
            return super().bootstrap(ciphertext)

    Naive(poly, Watched(64, LEVELS, LEVELS)).run(inputs)
    counting = CountingEngine(64, LEVELS, LEVELS)
    Naive(poly, counting).run({})
    total = counting.total()
    lazy = CountingEngine(64, LEVELS, LEVELS)
    Naive(poly, lazy, lazy=True).run({})
    assert total.count("rescale") > lazy.total().count("rescale")
    assert total.ciphertext_products == lazy.total().ciphertext_products
    assert total.bootstraps == bootstraps > 0
    assert total.count("hoist") == total.count("rotate_hoisted") == 0


def test_heads_of_other_widths_are_refused() -> None:
    poly, _ = small_layer(replace(SHAPE, width=3))
    with pytest.raises(AtlasError, match="power of two"):
        Naive(poly, SimEngine(256, LEVELS, LEVELS))


@pytest.mark.encrypted
def test_an_mlp_on_ciphertexts(tmp_path: Path) -> None:
    """Naive and compiled, one after the other on one key set; a second run finds both done."""
    mlp = Mlp(features=8, hidden=12, degree=7)
    layer = mlp.layer(rows=4)
    ours = OurProgram(layer)
    programs: list[Program] = [NaiveProgram(layer, DesiloParameters(14, 1)), ours]
    ours.parameters = programs[0].parameters
    results = tmp_path / "results.json"
    done = run_all(programs, results, desilo_engines(programs))
    for found in done.values():
        assert found["error"] < 1e-5 * found["largest"]
        assert found["peak_memory"] > 0
    assert programs[0].levels == ours.levels + 1  # the domain map of the activation

    def refuse(program: Program) -> Engine[Any]:
        raise AssertionError(f"{program.name} is run again")

    assert run_all(programs, results, refuse) == done
