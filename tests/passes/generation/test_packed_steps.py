"""Steps of a decoder as polynomials and packed: what the whole window gives at each token."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pytest
from packed import unpack_tensor
from short_text import entry, poly
from small_transformers import SHAPES, Builder, approximate, inputs_for

from atlasc.compilation.lowering import plan_keys
from atlasc.generation.server import first_states
from atlasc.ir.errors import AtlasError
from atlasc.ir.interpreter import Interpreter, encrypted_input, interpret, output
from atlasc.ir.module import Module, Op
from atlasc.ir.ops.rows import Cache
from atlasc.ir.rewriting import with_attributes
from atlasc.ir.text.parser import parse
from atlasc.ir.text.storage import print_module, stored_arrays
from atlasc.ir.verifier import verify
from atlasc.passes.framework.pass_base import run_passes
from atlasc.passes.generation.decode_step import DecodeStep, kept_values
from atlasc.passes.lowering.pack import Pack
from atlasc.passes.lowering.packing.geometry import least_slots
from atlasc.passes.lowering.place_bootstraps import PlaceBootstraps
from atlasc.passes.pipeline import levels_and_slots, to_poly
from atlasc.program.engine import Engine
from atlasc.program.execute import execute
from atlasc.program.kernels.context import ROWS, blocked, layout_of
from atlasc.program.key_plan import key_plan
from atlasc.runtime.interface import interface_of
from atlasc.targets.base import no_progress
from atlasc.targets.cpu.engine import CpuEngine
from atlasc.targets.cpu.parameters import CpuParameters
from atlasc.targets.noise import NoiseModel
from atlasc.targets.sim import SimEngine
from tests.passes.generation.small_decoders import TOKENS, VOCABULARY, made, window

LEVELS = 14
RANDOM = np.random.default_rng(0)
SPLIT = "{shape = [1, 5, 2, 2]}"
HEADS = "{permutation = [0, 2, 1, 3]}"
BLOCK = f"""%q = poly.linear %x {{weight = @q}}
    %qs = poly.reshape %q {SPLIT}
    %qh = poly.transpose %qs {HEADS}
    %qr = poly.rotary %qh {{cos = @cos, sin = @sin}}
    %k = poly.linear %x {{weight = @k}}
    %ks = poly.reshape %k {SPLIT}
    %kh = poly.transpose %ks {HEADS}
    %kr = poly.rotary %kh {{cos = @cos, sin = @sin}}
    %v = poly.linear %x {{weight = @v}}
    %vs = poly.reshape %v {SPLIT}
    %vh = poly.transpose %vs {HEADS}
    %s = poly.matmul %qr, %kr {{transpose_b = true}}
    %f = poly.mask_fill %s, %mask {{causal = true, fill = 0.5, log_keys = 0.3}}
    %e = poly.square %f
    %z = poly.mask_zero %e, %mask {{causal = true, value = 0.25}}
    %c = poly.matmul %z, %vh {{transpose_b = false}}
    %t = poly.transpose %c {HEADS}
    %m = poly.reshape %t {{shape = [1, 5, 4]}}
    %o = poly.linear %m {{weight = @o}}
    %a = poly.add %o, %x
    poly.output %a {{name = "y"}}"""


class Decoder(NamedTuple):
    """A small decoder.

    Attributes:
        step: poly module of a step.
        window: poly module of the window.
        rows: embedded tokens [batch, tokens, features].
        wanted: outputs of the whole window, [batch, tokens, features].
        kept: keys and values of the whole window by name, [batch, heads, tokens, width].
        mask: name of the mask of the decoder.
    """

    step: Module
    window: Module
    rows: np.ndarray
    wanted: np.ndarray
    kept: dict[str, np.ndarray]
    mask: str = "mask"

    def public(self, token: int) -> dict[str, np.ndarray]:
        """The public inputs of the step of a token."""
        batch, tokens, _ = self.rows.shape
        places = np.broadcast_to(np.arange(tokens), (batch, tokens))
        return {"position": 1.0 * (places == token), self.mask: 1.0 * (places <= token)}


@cache
def decoder(batch: int, heads: int, width: int = 4) -> Decoder:
    shape = replace(SHAPES["decoder"], batch=batch, heads=heads, width=width)
    module, inputs = Builder(shape, 0).build(), inputs_for(shape, 0)
    inputs["mask"] = np.ones((shape.batch, shape.tokens))
    return stepped(module, inputs, "mask")


@cache
def family(kind: str) -> Decoder:
    """A decoder of transformers."""
    ids = np.random.default_rng(0).integers(2, VOCABULARY, (1, TOKENS))
    inputs = {"input_ids": ids, "attention_mask": np.ones((1, TOKENS))}
    lengths = np.array([1, TOKENS // 2, TOKENS])[:, None]  # of prompts
    prompts = {"input_ids": ids.repeat(3, 0), "attention_mask": 1.0 * (np.arange(TOKENS) < lengths)}
    return stepped(window(made(kind)), inputs, "attention_mask", prompts)


def stepped(
    module: Module,
    inputs: dict[str, np.ndarray],
    mask: str,
    calibration: dict[str, np.ndarray] | None = None,
) -> Decoder:
    approximate(module, calibration or inputs)
    client, poly = to_poly(module, calibration or inputs)
    (embedded,) = interpret(client, inputs).values()
    (begin,) = (op for op in poly.inputs if op.attributes["side"] == "server")
    return of_window(poly, {**inputs, begin.attributes["name"]: embedded}, embedded, mask)


def of_window(poly: Module, inputs: dict[str, np.ndarray], rows: np.ndarray, mask: str) -> Decoder:
    kept, names = {}, {value: name for name, value in kept_values(poly).items()}

    def observe(op: Op, result: np.ndarray) -> None:
        if op.value in names:
            kept[names[op.value]] = result

    (wanted,) = interpret(poly, inputs, observe=observe).values()
    return Decoder(run_passes(poly, [DecodeStep()]), poly, rows, wanted, kept, mask)


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


@pytest.mark.parametrize(
    ("batch", "heads", "width", "more"),
    [(1, 2, 4, 1), (1, 2, 4, 4), (3, 3, 4, 1), (3, 3, 4, 8), (1, 3, 12, 1), (1, 3, 12, 64)],
)
def test_packed_steps_are_the_polynomials(batch: int, heads: int, width: int, more: int) -> None:
    """With keys in several ciphertexts and in two parts, heads that are wider than the context,
    padding heads, spare places of the batch, and bootstraps before and after the append.
    """
    found = decoder(batch, heads, width)
    slots = more * least_slots(found.step)
    program = run_passes(found.step, [Pack(slots), PlaceBootstraps(LEVELS, True, 2)])
    for begin in (0, 2):
        engine = SimEngine(slots, LEVELS, LEVELS, bootstrap_batch=2)
        check(found, program, engine, 1e-9, begin)


@pytest.mark.parametrize("kind", ["llama", "qwen3", "gpt2"])
def test_packed_steps_of_families_are_the_polynomials(kind: str) -> None:
    """Grouped heads and rotary embeddings, norms of single heads, learned positions."""
    found, slots = family(kind), 256
    program = run_passes(found.step, [Pack(slots), PlaceBootstraps(LEVELS, True, 2)])
    check(found, program, SimEngine(slots, LEVELS, LEVELS, bootstrap_batch=2), 1e-9)


def test_copies_share_the_polynomials_of_a_step() -> None:
    """Where products are dear: norms, softmax and activation, with and without errors."""
    found, slots = family("llama"), 256
    costs: dict[Any, float] = defaultdict(lambda: 0.1)
    costs |= {(kind, at): 9.0 for kind in ("mul", "square") for at in range(LEVELS + 1)}
    program = run_passes(found.step, [Pack(slots), PlaceBootstraps(LEVELS, True, 2, costs)])
    sums = [op for op in program.ops if op.name == "ckks.chebyshev"]
    assert {op.attributes["part"] for op in sums if "copies" in op.attributes} == {
        "rms_norm",
        "softmax",
        "silu",
    }
    check(found, program, SimEngine(slots, LEVELS, LEVELS, bootstrap_batch=2), 1e-9)
    noise = NoiseModel(rescale=1e-9, key_switch=1e-9, bootstrap=1e-7)
    noisy = SimEngine(slots, LEVELS, LEVELS, bootstrap_batch=2, noise=noise, seed=1)
    check(found, program, noisy, 1e-4)


def test_the_text_of_a_packed_step_is_read_back() -> None:
    found = decoder(1, 2)
    packed = run_passes(found.step, [Pack(64), PlaceBootstraps(LEVELS, True, 2)])
    again = parse(print_module(packed), stored_arrays(packed))
    assert print_module(again) == print_module(packed)


def test_the_row_of_a_token_is_one_ciphertext() -> None:
    """All values but keys and values are, also where these are four ciphertexts."""
    program = run_passes(decoder(1, 2).step, [Pack(16)])
    made = [op.result for op in program.ops if op.result is not None and op.result.encrypted]
    caches = [value for value in made if Cache.has(layout_of(value))]
    assert {layout_of(value).ciphertexts for value in caches} == {4}
    scores = [value for value in made if value.op.name == "ckks.row_scores"]
    others = [v for v in made if v not in caches and "s" not in dict(layout_of(v).extents)]
    assert scores and {layout_of(value).ciphertexts for value in others} == {1}


def test_steps_on_ciphertexts() -> None:
    """A block with squares in the place of other functions, which needs no bootstraps. Keys and
    values are several ciphertexts.
    """
    arrays = {name: 0.4 * RANDOM.normal(size=(4, 4)) for name in "qkvo"}
    arrays |= {"cos": RANDOM.normal(size=(5, 2)), "sin": RANDOM.normal(size=(5, 2))}
    window = poly(f"{entry('mask', (1, 5), 'public')}\n{BLOCK}", arrays, (1, 5, 4))
    rows, mask = RANDOM.normal(size=(1, 5, 4)), np.ones((1, 5))
    found = of_window(window, {"x": rows, "mask": mask}, rows, "mask")
    levels, slots = levels_and_slots(found.step)
    parameters = CpuParameters.choose(levels, slots)
    steps = [Pack(parameters.slots), PlaceBootstraps(levels, False)]
    program = plan_keys(run_passes(found.step, steps), parameters)
    engine = CpuEngine.fresh(parameters, key_plan(program), no_progress)
    check(found, program, engine, 1e-5)
    check(found, program, engine, 1e-5, begin=3)


def check(
    found: Decoder,
    program: Module,
    engine: Engine,
    tolerance: float,
    begin: int = 0,
    kept: dict[str, list] | None = None,
) -> None:
    """Every step on an engine is what the window gives at its token. Keys and values that are
    packed in the clear are those that the steps append; those of the tokens before ``begin`` are
    public, or the ciphertexts ``kept``.
    """
    batch, features = len(found.rows), found.wanted.shape[-1]
    kinds = {
        op.attributes["name"]: op.value.ciphertext
        for op in program.inputs
        if op.attributes.get("state")
    }
    (row,) = (op for op in program.inputs if not op.attributes.get("state"))
    (logits,) = (op for op in program.outputs if op.attributes["name"] not in kinds)
    layout, level = row.attributes["layout"], row.attributes["level"]
    public = {name: found.kept[name][:, :, :begin] for name in kinds} if begin else {}
    other = engine.encrypt(RANDOM.normal(size=engine.slots))
    states = {one.name: one for one in interface_of(program).inputs if one.state}
    kept = kept or first_states(engine, states, other, public)
    for token in range(begin, found.rows.shape[1]):
        tensor = encrypted_input(row.site({}), found.rows[:, token])
        packed = layout.pack(blocked(tensor, layout), repeat=ROWS)
        given = {row.attributes["name"]: [engine.encrypt(one, level) for one in packed], **kept}
        kept = execute(engine, program, given, found.public(token))
        for name, kind in kinds.items():
            appended = [engine.decrypt(one) for one in kept[name]]
            in_clear = Cache.of(kind.layout).pack(found.kept[name][:, :, : token + 1])
            assert_near(appended, in_clear, tolerance)
        made = np.stack([engine.decrypt(one) for one in kept.pop(logits.attributes["name"])])
        numbers = unpack_tensor(layout_of(logits.operands[0]), made, features)
        result = output(logits.site(program.symbols), numbers.reshape(batch, features))
        assert_near(result, found.wanted[:, token], tolerance)


def assert_near(found: Any, wanted: np.ndarray, tolerance: float) -> None:
    """Relative to the greatest number where that is above one: noise of products grows with it."""
    atol = tolerance * max(1.0, np.abs(wanted).max())
    np.testing.assert_allclose(found, wanted, rtol=0, atol=atol)


@pytest.mark.parametrize("wrong", [(0, 0, 3, 0), (0, 0, 0, 1), (0, 1, 0, 0)])
def test_rows_of_the_first_tokens_are_some_of_the_state(wrong: tuple[int, ...]) -> None:
    """At both levels, where they are read back from the text."""
    step = decoder(1, 2).step
    batch, heads, tokens, width = next(one["shape"] for one in states(step))
    right = prefixed(step, "keys.0", np.ones((batch, heads, tokens - 2, width)))
    packed = run_passes(right, [Pack(64)])
    for module in (right, packed):
        verify(parse(print_module(module), stored_arrays(module)))
        (name,) = {
            op.attributes["prefix"].name for op in module.inputs if "prefix" in op.attributes
        }
        shape = np.add((batch, heads, tokens - 2, width), wrong)
        module.symbols[name] = np.ones(shape)
        with pytest.raises(AtlasError, match="prefix has shape"):
            verify(module)


def prefixed(module: Module, name: str, rows: np.ndarray) -> Module:
    """A step whose state of this name begins with rows."""
    symbol = module.constant("rows", rows)

    def attributes(op: Op) -> dict:
        begins = op.attributes.get("state") and op.attributes["name"] == name
        return {**op.attributes, **({"prefix": symbol} if begins else {})}

    return with_attributes(module, attributes)
