"""A program with a real bootstrap at N = 2^16, compiled by the whole pipeline. 16 GB, minutes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tiny_model import BATCH, approximate, export_model

if TYPE_CHECKING:
    from atlasc_comparisons.desilo.keys import KeySet

pytestmark = [pytest.mark.encrypted, pytest.mark.bootstrap]

LARGEST_ERROR = 1e-3
"""The noise of one bootstrap is 3e-5 at worst; what comes after it stretches that a little."""


def engine_for(keys: KeySet, rotations: dict[int, int]) -> Any:
    """An engine with the shared keys and those rotation keys that a program needs beside them."""
    from atlasc_comparisons.desilo.engine import DesiloEngine
    from atlasc_comparisons.desilo.library import library_engine

    library, slots = library_engine(keys.parameters), keys.parameters.slots
    made = {
        f"rotation_{amount}": library.create_fixed_rotation_key(keys.secret, slots - amount, level)
        for amount, level in rotations.items()
        if amount not in keys.plan.rotations
    }
    plan = replace(keys.plan, rotations={**rotations, **keys.plan.rotations})
    return DesiloEngine(replace(keys, plan=plan, keys={**keys.keys, **made}))


def test_a_bootstrapped_program_equals_its_polynomials(
    tmp_path: Path, bootstrap_keys: KeySet
) -> None:
    from atlasc.client.program import client_program
    from atlasc.client.verdict import verdicts
    from atlasc.compilation.prepare import calibrate_source, trace_model
    from atlasc.compilation.source import load_source
    from atlasc.passes.pipeline import lower_nn
    from atlasc.program.execute import execute
    from atlasc.program.key_plan import key_plan
    from atlasc.run import session
    from atlasc.run.session import simulate
    from atlasc_comparisons.desilo.parameters import BOOTSTRAPPED

    archive, data = tmp_path / "tiny.pt2", tmp_path / "images.npz"
    export_model(archive)
    pixels = np.random.default_rng(0).random((24, 1, 8, 8)).astype(np.float32)
    np.savez(data, pixel_values=pixels)
    source = load_source(str(archive), data)
    module = trace_model(source.model, BATCH)
    approximate(module, calibrate_source(module, source, margin=0.3), deep=True)
    lowered = lower_nn(module, lambda levels, slots: BOOTSTRAPPED, source.inputs.arrays)
    program = lowered.program
    placed = [op for op in program.ops if op.name == "ckks.bootstrap"]
    assert 1 <= len(placed) <= 2

    client = client_program(lowered.client, program)
    query = {"pixel_values": pixels[:BATCH]}
    assert not any(verdict.excesses for verdict in verdicts(client, lowered.poly, query))
    expected = simulate(client, lowered.poly, query)

    engine = engine_for(bootstrap_keys, key_plan(program).rotations)
    packed = client.query(query)
    encrypted = session.encrypt_all(engine, packed)
    refreshed = []

    def observe(op: Any, ciphertexts: list[Any]) -> None:
        if op.name == "ckks.bootstrap":
            refreshed.append(engine.level(ciphertexts[0]))

    results = execute(engine, program, encrypted, packed.public, observe=observe)
    assert refreshed == [op.attributes["level"] for op in placed]
    slots = session.decrypt_all(engine, results)
    outputs = client.answers(slots, BATCH).outputs
    assert set(outputs) == set(expected)
    for name, values in outputs.items():
        assert values.shape == (BATCH, 3)
        assert np.abs(values - expected[name]).max() <= LARGEST_ERROR
        assert np.ptp(values) > 100 * LARGEST_ERROR
