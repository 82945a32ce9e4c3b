"""Prefills packed: their keys and values are those that packed steps append, token by token."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from packed import pack_tensor, unpack_tensor
from short_text import entry, poly

from atlasc.compilation.lowering import plan_keys
from atlasc.ir.errors import AtlasError
from atlasc.ir.interpreter import encrypted_input, output
from atlasc.ir.layout import Layout
from atlasc.ir.module import Module
from atlasc.ir.ops.rows import Cache
from atlasc.ir.text.parser import parse
from atlasc.ir.text.storage import print_module, stored_arrays
from atlasc.passes.framework.pass_base import run_passes
from atlasc.passes.generation.prefill import Prefill, for_step
from atlasc.passes.lowering.pack import Pack
from atlasc.passes.lowering.packing.geometry import least_slots
from atlasc.passes.lowering.place_bootstraps import PlaceBootstraps
from atlasc.passes.lowering.rotation_keys import with_key_levels
from atlasc.passes.pipeline import levels_and_slots
from atlasc.program.engine import Engine
from atlasc.program.execute import execute
from atlasc.program.kernels.context import layout_of
from atlasc.program.key_plan import KeyPlan, key_plan
from atlasc.targets.base import no_progress
from atlasc.targets.cpu.engine import CpuEngine
from atlasc.targets.cpu.parameters import CpuParameters
from atlasc.targets.sim import SimEngine
from tests.passes.generation.test_packed_steps import (
    BLOCK,
    LEVELS,
    RANDOM,
    Decoder,
    check,
    decoder,
    family,
    of_window,
    states,
)


def programs(found: Decoder, slots: int, low: bool, levels: int, bootstrap: bool) -> list[Module]:
    """The packed prefill, and the packed step after it."""
    place = PlaceBootstraps(levels, bootstrap, 2 if bootstrap else 1)
    step = run_passes(found.step, [Pack(slots), place])
    prefill = for_step(run_passes(found.window, [Prefill()]), step)
    return [run_passes(prefill, [Pack(slots, low), place]), step]


def prefilled(found: Decoder, program: Module, engine: Engine, tokens: int) -> tuple[dict, dict]:
    """Keys and values of the first tokens, and the outputs at the last of them."""
    batch, window, _ = found.rows.shape
    places = np.broadcast_to(np.arange(window), (batch, window))
    public = {"position": 1.0 * (places == tokens - 1), found.mask: 1.0 * (places < tokens)}
    (given,) = (op for op in program.inputs if op.name == "ckks.input")
    tensor = encrypted_input(given.site({}), found.rows)  # behind the prompt: other tokens
    packed = pack_tensor(given.attributes["layout"], tensor)
    level, name = given.attributes["level"], given.attributes["name"]
    encrypted = {name: [engine.encrypt(one, level) for one in packed]}
    results = execute(engine, program, encrypted, public)
    (logits,) = (op for op in program.outputs if not Cache.has(layout_of(op.operands[0])))
    made = np.stack([engine.decrypt(one) for one in results.pop(logits.attributes["name"])])
    features = found.wanted.shape[-1]
    numbers = unpack_tensor(layout_of(logits.operands[0]), made, features)
    return results, output(logits.site(program.symbols), numbers.reshape(batch, features))


def check_prefill(found: Decoder, both: list[Module], engine: Engine, tolerance: float) -> None:
    """The prefill of some tokens gives what their steps would; steps go on after it."""
    prefill, step = both
    kinds = {op["name"]: op for op in states(step)}
    window = found.rows.shape[1]
    for tokens in {1, window // 2, window}:
        kept, logits = prefilled(found, prefill, engine, tokens)
        np.testing.assert_allclose(logits, found.wanted[:, tokens - 1], rtol=0, atol=tolerance)
        assert kept.keys() == kinds.keys()
        for name, kind in kinds.items():
            assert {engine.level(one) for one in kept[name]} == {kind["level"]}
            in_clear = Cache.of(kind["layout"]).pack(found.kept[name][:, :, :tokens])
            slots = [engine.decrypt(one) for one in kept[name]]
            np.testing.assert_allclose(slots, in_clear, rtol=0, atol=tolerance)
        if 1 < tokens < window:
            check(found, step, engine, tolerance, tokens, kept)


@pytest.mark.parametrize("low", [False, True])
@pytest.mark.parametrize(
    ("batch", "heads", "width", "more"),
    [
        (1, 2, 4, 1),
        (1, 2, 4, 4),
        (3, 3, 4, 1),
        (3, 3, 4, 8),
        (1, 3, 12, 1),
        (1, 3, 12, 64),
        (1, 9, 2, 1),
    ],
)
def test_packed_prefills_are_steps(
    batch: int, heads: int, width: int, more: int, low: bool
) -> None:
    """With a window in several ciphertexts, keys in several and in two parts, padding heads, spare
    places of the batch, and bootstraps.
    """
    found = decoder(batch, heads, width)
    slots = more * max(least_slots(found.step), least_slots(found.window))
    both = programs(found, slots, low, LEVELS, True)
    check_prefill(found, both, SimEngine(slots, LEVELS, LEVELS, bootstrap_batch=2), 1e-9)


@pytest.mark.parametrize("kind", ["llama", "qwen3", "gpt2"])
def test_packed_prefills_of_families_are_steps(kind: str) -> None:
    """Grouped heads and rotary embeddings, norms of single heads, learned positions."""
    found, slots = family(kind), 256
    both = programs(found, slots, False, LEVELS, True)
    check_prefill(found, both, SimEngine(slots, LEVELS, LEVELS, bootstrap_batch=2), 1e-9)


@pytest.mark.deep("ciphertexts")
def test_a_prefill_on_ciphertexts() -> None:
    """A block with squares in the place of other functions, which needs no bootstraps."""
    arrays = {name: 0.4 * RANDOM.normal(size=(4, 4)) for name in "qkvo"}
    arrays |= {"cos": RANDOM.normal(size=(5, 2)), "sin": RANDOM.normal(size=(5, 2))}
    window = poly(f"{entry('mask', (1, 5), 'public')}\n{BLOCK}", arrays, (1, 5, 4))
    rows, mask = RANDOM.normal(size=(1, 5, 4)), np.ones((1, 5))
    found = of_window(window, {"x": rows, "mask": mask}, rows, "mask")
    prefill = run_passes(window, [Prefill()])
    levels = max(levels_and_slots(one)[0] for one in (prefill, found.step)) + 2
    parameters = CpuParameters.choose(levels, 512)
    both = programs(found, parameters.slots, True, levels, False)
    both = [plan_keys(one, parameters) for one in both]
    keys = key_plan(both[0]).union(key_plan(both[1]))
    both = [with_key_levels(one, keys) for one in both]
    check_prefill(found, both, CpuEngine.fresh(parameters, keys, no_progress), 1e-5)


def test_one_key_set_serves_two_programs(tmp_path: Path) -> None:
    """Each server loads its own keys, which have the levels of the set."""

    def program(plan: KeyPlan) -> Module:
        return replace(Module("m", "ckks"), attributes=plan.attributes())

    plans = [KeyPlan({1: 2, 5: 1}, 2), KeyPlan({1: 1, 7: 4}, 4, 3)]
    keys, parameters = plans[0].union(plans[1]), CpuParameters.choose(4, 512)
    assert keys == plans[1].union(plans[0]) == KeyPlan({1: 2, 5: 1, 7: 4}, 4, 3)
    for role in ("client", "server"):
        (tmp_path / role).mkdir(mode=0o700)
    CpuEngine.generate_to(parameters, keys, tmp_path, no_progress)
    named = [key_plan(with_key_levels(program(plan), keys)) for plan in plans]
    assert named == [KeyPlan({1: 2, 5: 1}, 4), KeyPlan({1: 2, 7: 4}, 4, 3)]
    for plan in named:
        CpuEngine.load("server", tmp_path / "server", parameters, plan)
    with pytest.raises(AtlasError, match="a key that does not reach its level"):
        CpuEngine.load("server", tmp_path / "server", parameters, plans[1])


def test_the_text_of_a_packed_prefill_is_read_back() -> None:
    prefill, _ = programs(decoder(1, 2), 64, True, LEVELS, True)
    again = parse(print_module(prefill), stored_arrays(prefill))
    assert print_module(again) == print_module(prefill)


def test_a_window_without_keys_and_values_is_refused() -> None:
    found = decoder(1, 2)
    step = run_passes(found.step, [Pack(64), PlaceBootstraps(LEVELS, True, 2)])
    with pytest.raises(AtlasError, match="does not give keys.0"):
        for_step(found.window, step)


def test_heads_that_no_ciphertext_holds_are_refused() -> None:
    found = decoder(1, 9)
    slots = least_slots(found.window)
    with pytest.raises(AtlasError, match="9 heads .* need 2.6 slots") as refused:
        run_passes(run_passes(found.window, [Prefill()]), [Pack(slots)])
    assert "the heads of one token" in refused.value.why


@pytest.mark.parametrize(("axis", "extent"), [("t", 4), ("g", 1)])
def test_keys_of_other_tokens_or_heads_than_the_window_are_refused(axis: str, extent: int) -> None:
    prefill, _ = programs(decoder(1, 2), 64, True, LEVELS, True)
    op = next(op for op in prefill.ops if op.name == "ckks.at_tokens")
    layout = op.attributes["layout"]
    extents = tuple((one, extent if one == axis else n) for one, n in layout.extents)
    wrong = Layout(layout.fields, layout.outer, extents)
    with pytest.raises(AtlasError, match="has no rows of"):
        prefill.add(op.name, op.operands, {**op.attributes, "layout": wrong})


def test_keys_leave_at_the_level_of_the_step() -> None:
    prefill, _ = programs(decoder(1, 2), 64, True, LEVELS, True)
    output = next(op for op in prefill.outputs if "level" in op.attributes)
    wrong = {**output.attributes, "level": output.attributes["level"] + 1}
    with pytest.raises(AtlasError, match="its ciphertexts are at level"):
        prefill.add(output.name, output.operands, wrong)
