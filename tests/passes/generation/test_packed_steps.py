"""Steps of a decoder as polynomials and packed: what the whole window gives at each token."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import NamedTuple

import numpy as np
import pytest
from packed import unpack_tensor
from small_transformers import SHAPES, Builder, approximate, inputs_for

from atlasc.ir.interpreter import Interpreter, encrypted_input, interpret, output
from atlasc.ir.module import Module
from atlasc.passes.framework.pass_base import run_passes
from atlasc.passes.generation.decode_step import DecodeStep
from atlasc.passes.lowering.pack import Pack
from atlasc.passes.lowering.packing.geometry import least_slots
from atlasc.passes.lowering.place_bootstraps import PlaceBootstraps
from atlasc.passes.pipeline import to_poly
from atlasc.program.execute import execute
from atlasc.program.kernels.context import ROWS, blocked, layout_of
from atlasc.targets.sim import SimEngine

LEVELS = 14


class Decoder(NamedTuple):
    """A small decoder.

    Attributes:
        step: poly module of a step.
        rows: embedded tokens [batch, tokens, features].
        wanted: outputs of the whole window, [batch, tokens, features].
    """

    step: Module
    rows: np.ndarray
    wanted: np.ndarray

    def public(self, token: int) -> dict[str, np.ndarray]:
        """The public inputs of the step of a token."""
        batch, tokens, _ = self.rows.shape
        places = np.broadcast_to(np.arange(tokens), (batch, tokens))
        return {"position": 1.0 * (places == token), "mask": 1.0 * (places <= token)}


@cache
def decoder(batch: int, heads: int) -> Decoder:
    shape = replace(SHAPES["decoder"], batch=batch, heads=heads)
    module, inputs = Builder(shape, 0).build(), inputs_for(shape, 0)
    inputs["mask"] = np.ones((shape.batch, shape.tokens))
    approximate(module, inputs)
    client, poly = to_poly(module, inputs)
    embedded = interpret(client, inputs)
    wanted = interpret(poly, {**inputs, **embedded})["y"]
    return Decoder(run_passes(poly, [DecodeStep()]), embedded["embedded"], wanted)


def states(module: Module) -> list[dict]:
    return [dict(op.attributes) for op in module.inputs if op.attributes.get("state")]


@pytest.mark.parametrize(("batch", "heads"), [(1, 2), (3, 3)])
def test_polynomial_steps_are_the_window(batch: int, heads: int) -> None:
    found = decoder(batch, heads)
    run = Interpreter(found.step)
    kept = {one["name"]: np.zeros(one["shape"]) for one in states(found.step)}
    for token in range(found.rows.shape[1]):
        kept = run.run({"embedded": found.rows[:, token], **found.public(token), **kept})
        np.testing.assert_allclose(kept.pop("y"), found.wanted[:, token], rtol=0, atol=1e-12)


@pytest.mark.parametrize("low", [False, True], ids=["tokens low", "features low"])
@pytest.mark.parametrize(("batch", "heads", "more"), [(1, 2, 1), (1, 2, 4), (3, 3, 1), (3, 3, 8)])
def test_packed_steps_are_the_polynomials(batch: int, heads: int, more: int, low: bool) -> None:
    """With several ciphertexts of keys, padding heads, spare places of the batch, and bootstraps
    before and after the append.
    """
    found = decoder(batch, heads)
    slots = more * least_slots(found.step)
    program = run_passes(found.step, [Pack(slots, low), PlaceBootstraps(LEVELS, True, 2)])
    engine = SimEngine(slots, LEVELS, LEVELS, bootstrap_batch=2)
    (row,) = (op for op in program.inputs if not op.attributes.get("state"))
    (logits,) = (op for op in program.outputs if op.attributes["name"] == "y")
    layout, level = row.attributes["layout"], row.attributes["level"]
    kept = {
        one["name"]: [
            engine.encrypt(np.zeros(slots), one["level"]) for _ in range(one["layout"].ciphertexts)
        ]
        for one in states(program)
    }
    for token in range(found.rows.shape[1]):
        tensor = encrypted_input(row.site({}), found.rows[:, token])
        packed = layout.pack(blocked(tensor, layout), repeat=ROWS)
        embedded = [engine.encrypt(one, level) for one in packed]
        kept = execute(engine, program, {"embedded": embedded, **kept}, found.public(token))
        made = np.stack([engine.decrypt(one) for one in kept.pop("y")])
        features = found.wanted.shape[-1]
        numbers = unpack_tensor(layout_of(logits.operands[0]), made, features)
        result = output(logits.site(program.symbols), numbers.reshape(batch, features))
        np.testing.assert_allclose(result, found.wanted[:, token], rtol=0, atol=1e-9)
