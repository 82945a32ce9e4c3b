"""decode-step: the step of a decoder, token by token, is what HuggingFace computes with its own
cache of keys and values.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from short_text import ATTENTION, entry, poly
from transformers import Qwen3Config, Qwen3ForCausalLM

from atlasc.ir.errors import AtlasError
from atlasc.ir.interpreter import Interpreter, interpret
from atlasc.ir.module import Module
from atlasc.ir.text.parser import parse
from atlasc.ir.text.storage import print_module, stored_arrays
from atlasc.passes.framework.pass_base import run_passes
from atlasc.passes.frontend.trace import ShapeSpec, trace
from atlasc.passes.generation.decode_step import DecodeStep, attention_window
from tests.passes.generation.small_decoders import NAMES, TOKENS, VOCABULARY, made, window


def states(step: Module) -> dict[str, np.ndarray]:
    """Empty keys and values."""
    kept = [op.attributes for op in step.inputs if op.attributes.get("state")]
    return {one["name"]: np.zeros(one["shape"]) for one in kept}


def at(position: int, ids: list[int], back: int | None = None) -> dict[str, np.ndarray]:
    """The inputs of the step of a token, whose attention looks back so many tokens."""
    places = np.arange(TOKENS)[None]
    seen = (places <= position) & (places > position - (back or TOKENS))
    padded = np.zeros((1, TOKENS), np.int64)
    padded[0, : len(ids)] = ids
    return {
        "input_ids": padded,
        "position": (places == position).astype(np.int64),
        "attention_mask": seen.astype(np.int64),
    }


@pytest.mark.parametrize("kind", ["llama", "qwen3", "gpt2", "mistral"])
def test_steps_are_cached_decoding(kind: str) -> None:
    model = made(kind)
    whole = window(model)
    step, back = run_passes(whole, [DecodeStep()]), attention_window(whole)
    assert back == (5 if kind == "mistral" else None)
    run, kept = Interpreter(step), states(step)
    ids, cache = np.random.default_rng(0).integers(2, VOCABULARY, TOKENS).tolist(), None
    for position in range(TOKENS):
        with torch.no_grad():
            new = torch.tensor([ids[position : position + 1]])
            wanted = model(input_ids=new, past_key_values=cache, use_cache=True)
        cache = wanted.past_key_values
        kept = run.run({**at(position, ids, back), **kept})
        logits = kept.pop("logits")
        np.testing.assert_allclose(logits, wanted.logits[:, 0].double(), rtol=0, atol=1e-5)
        assert {array.shape for array in kept.values()} == {(1, 4, TOKENS, 4)}


def test_the_text_of_a_step_is_read_back() -> None:
    step = run_passes(window(made("llama")), [DecodeStep()])
    again = parse(print_module(step), stored_arrays(step))
    assert print_module(again) == print_module(step)
    given = {**at(0, [3]), **states(step)}
    first, second = Interpreter(step).run(given), Interpreter(again).run(given)
    assert all((first[name] == second[name]).all() for name in first)


@pytest.mark.parametrize("changed", [{"use_sliding_window": True}, {}])
def test_several_windows_and_a_missing_mask_are_refused(changed: dict) -> None:
    """Of two layers, one has a window and the other one sees all tokens."""
    window_of = {"sliding_window": 4, "max_window_layers": 1} if changed else {}
    config = Qwen3Config(
        hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=4, vocab_size=VOCABULARY, **changed, **window_of, **NAMES,
    )  # fmt: skip
    names = ["input_ids", "attention_mask"] if changed else ["input_ids"]
    model = Qwen3ForCausalLM(config).eval()
    traced = trace(model, {name: ShapeSpec((1, TOKENS)) for name in names}, name="decoder")
    with pytest.raises(AtlasError, match="attention cannot be computed for one token") as caught:
        run_passes(traced, [DecodeStep()])
    assert ("differently far" if changed else "without a public mask") in caught.value.why
    if changed:
        with pytest.raises(AtlasError, match="attention cannot be computed for one token"):
            attention_window(traced)


def test_a_mean_of_the_tokens_is_refused() -> None:
    module = poly("""%m = poly.mean %x {axis = 1}\npoly.output %m {name = "m"}""", None, (1, 3, 6))
    with pytest.raises(AtlasError, match="poly.mean cannot be computed for one token"):
        run_passes(module, [DecodeStep()])


MASKED = f"{entry('mask', (1, 3), 'public')}\n{ATTENTION.replace('_fill %s', '_fill %s, %mask')}"


def test_attention_that_sees_later_tokens_is_refused() -> None:
    run_passes(poly(MASKED, None, (1, 3, 6)), [DecodeStep()])
    for other in ("causal = false, ", ""):
        module = poly(MASKED.replace("causal = true, ", other), None, (1, 3, 6))
        with pytest.raises(AtlasError, match="attention cannot be computed for one token"):
            run_passes(module, [DecodeStep()])


def test_a_constant_of_all_tokens_loses_their_axis() -> None:
    text = f"""{MASKED}
        %a = poly.add_constant %x {{value = @all}}
        poly.output %a {{name = "a", factor = @all}}"""
    step = run_passes(poly(text, {"all": np.full((1, 1, 6), 2.0)}, (1, 3, 6)), [DecodeStep()])
    rows = {name: array.shape for name, array in step.symbols.items()}
    assert set(rows.values()) == {(1, 6)}
    given = {**at(1, [3]), **states(step), "x": np.arange(6.0)[None]}
    found = interpret(step, {**given, "mask": np.array([[1, 1, 0]]), "position": [[0, 1, 0]]})
    np.testing.assert_array_equal(found["a"], 2 * (np.arange(6.0)[None] + 2))


def test_a_constant_of_one_token_is_refused() -> None:
    module = poly(
        """%a = poly.add_constant %x {value = @places}
        poly.output %a {name = "a"}""",
        {"places": np.arange(18.0).reshape(3, 6)},
        (1, 3, 6),
    )
    with pytest.raises(AtlasError, match="differs from token to token"):
        run_passes(module, [DecodeStep()])


def test_a_step_of_later_tokens_has_their_constant() -> None:
    """Factors of tokens that stand out differ at the first tokens alone."""
    text = f"""{MASKED}
        %a = poly.scale %x {{factor = @tokens}}
        %heads = poly.reshape %a {{shape = [1, 3, 2, 3]}}
        %moved = poly.transpose %heads {{permutation = [0, 2, 1, 3]}}
        %b = poly.scale %moved {{factor = @heads}}
        poly.output %a {{name = "a"}}
        poly.output %b {{name = "b"}}"""
    tokens = np.array([0.25, 3.0, 3.0])[:, None]
    module = poly(text, {"tokens": tokens, "heads": tokens + np.zeros((1, 3, 3))}, (1, 3, 6))
    with pytest.raises(AtlasError, match="differs from token to token") as raised:
        run_passes(module, [DecodeStep()])
    assert "decode-step{first=1}" in raised.value.remedy
    step = run_passes(module, [DecodeStep(first=1)])
    given = {**at(1, [3]), **states(step), "x": np.arange(6.0)[None]}
    found = interpret(step, {**given, "mask": np.array([[1, 1, 0]]), "position": [[0, 1, 0]]})
    np.testing.assert_array_equal(found["a"], 3 * np.arange(6.0)[None])
    np.testing.assert_array_equal(found["b"], 9 * np.arange(6.0).reshape(1, 2, 1, 3))
    for first in (-1, 3):
        with pytest.raises(AtlasError, match=f"cannot begin at token {first}"):
            run_passes(module, [DecodeStep(first=first)])


def test_a_model_without_attention_is_refused() -> None:
    module = poly("""%a = poly.square %x\npoly.output %a {name = "a"}""", None, (1, 3, 6))
    with pytest.raises(AtlasError, match="no attention"):
        run_passes(module, [DecodeStep()])
