"""prefill: logits at the last token, and keys and values of the prompt, are HuggingFace's."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from short_text import dedent, entry, poly, short

from atlasc.ir.errors import AtlasError
from atlasc.ir.interpreter import interpret
from atlasc.ir.text.parser import parse
from atlasc.ir.text.storage import print_module, stored_arrays
from atlasc.passes.framework.pass_base import run_passes
from atlasc.passes.generation.cut_head import HIDDEN, CutHead, head_of
from atlasc.passes.generation.decode_step import DecodeStep, attention_window
from atlasc.passes.generation.prefill import Prefill
from tests.passes.generation.small_decoders import TOKENS, VOCABULARY, made, window
from tests.passes.generation.test_decode_step import at

PROMPT = 7
IDS = np.random.default_rng(0).integers(2, VOCABULARY, TOKENS).tolist()
LAST_BLOCK = f"""{entry("mask", (1, 3), "public")}
    %a = poly.linear %x {{weight = @w}}
    %h = poly.reshape %a {{shape = [1, 3, 2, 3]}}
    %t = poly.transpose %h {{permutation = [0, 2, 1, 3]}}
    %s = poly.matmul %t, %t {{transpose_b = true}}
    %f = poly.mask_fill %s, %mask {{causal = true, fill = -1.0}}
    %o = poly.matmul %f, %t {{transpose_b = false}}
    %v = poly.transpose %o {{permutation = [0, 2, 1, 3]}}
    %m = poly.reshape %v {{shape = [1, 3, 6]}}
    %r = poly.add %m, %x
    %c = poly.add_constant %r {{value = @c}}
    %y = poly.linear %c {{weight = @w}}
    poly.output %y {{name = "y", factor = @c}}"""
SYMBOLS = {"w": np.eye(6), "c": np.full((1, 1, 6), 2.0)}


def prompt(tokens: int) -> dict[str, np.ndarray]:
    """The inputs of a prompt of the first tokens."""
    places = np.arange(TOKENS)[None]
    return {**at(tokens - 1, IDS[:tokens]), "attention_mask": (places < tokens).astype(np.int64)}


@pytest.mark.parametrize("kind", ["llama", "qwen3", "gpt2"])
@pytest.mark.parametrize("tokens", [1, PROMPT, TOKENS])
def test_a_prefill_is_what_huggingface_caches(kind: str, tokens: int) -> None:
    model = made(kind)
    prefill = run_passes(window(model), [Prefill()])
    found = interpret(prefill, prompt(tokens))
    with torch.no_grad():
        wanted = model(input_ids=torch.tensor([IDS[:tokens]]), use_cache=True)
    logits = found.pop("logits")
    np.testing.assert_allclose(logits, wanted.logits[:, -1].double(), rtol=0, atol=1e-5)
    assert set(found) == {f"{what}.{n}" for what in ("keys", "values") for n in range(2)}
    for number, layer in enumerate(wanted.past_key_values.layers):
        for kept, known in (("keys", layer.keys), ("values", layer.values)):
            rows = found[f"{kept}.{number}"]
            groups = rows.shape[1] // known.shape[1]  # grouped heads are kept as often as used
            known = known.double().repeat_interleave(groups, 1)
            np.testing.assert_allclose(rows[:, :, :tokens], known, rtol=0, atol=1e-5)
            assert not rows[:, :, tokens:].any()


def test_steps_go_on_after_a_prefill() -> None:
    whole = window(made("llama"))
    prefill, step = (run_passes(whole, [one]) for one in (Prefill(), DecodeStep()))
    kept = {op.attributes["name"]: np.zeros(op.attributes["shape"]) for op in step.inputs
            if op.attributes.get("state")}  # fmt: skip
    for position in range(PROMPT):
        kept = interpret(step, {**at(position, IDS), **kept})
        kept.pop("logits")
    other = interpret(prefill, prompt(PROMPT))
    other.pop("logits")
    for position in range(PROMPT, TOKENS):
        kept = interpret(step, {**at(position, IDS), **kept})
        other = interpret(step, {**at(position, IDS), **other})
        np.testing.assert_allclose(other.pop("logits"), kept.pop("logits"), rtol=0, atol=1e-12)


def test_a_window_looks_back_in_the_prefill_and_in_the_steps_after_it() -> None:
    model, ids = made("mistral"), IDS[:TOKENS]
    whole = window(model)
    prefill, step = (run_passes(whole, [one]) for one in (Prefill(), DecodeStep()))
    kept = interpret(prefill, prompt(PROMPT))
    found, back = [kept.pop("logits")], attention_window(whole)
    for position in range(PROMPT, TOKENS):
        kept = interpret(step, {**at(position, IDS, back), **kept})
        found.append(kept.pop("logits"))
    with torch.no_grad():
        wanted = model(input_ids=torch.tensor([ids])).logits[0, PROMPT - 1 :]
    np.testing.assert_allclose(np.concatenate(found), wanted.double(), rtol=0, atol=1e-5)


def test_what_follows_the_last_attention_is_computed_for_one_token() -> None:
    prefill = run_passes(poly(LAST_BLOCK, SYMBOLS, (1, 3, 6)), [Prefill()])
    text = short(prefill)
    assert text.endswith(
        dedent("""
        %0 = poly.mean %m, %position {axis = 1}
        %1 = poly.mean %x, %position {axis = 1}
        %r = poly.add %0, %1
        %c = poly.add_constant %r {value = @c.row}
        %y = poly.linear %c {weight = @w}
        poly.output %y {name = "y", factor = @c.row.1}""")
    )
    assert "%keys_0 = poly.at_tokens %t, %mask\npoly.output %keys_0" in text


def test_a_constant_of_each_token_is_computed_for_all() -> None:
    symbols = SYMBOLS | {"c": np.arange(18.0).reshape(1, 3, 6)}
    whole = poly(LAST_BLOCK.replace(", factor = @c", ""), symbols, (1, 3, 6))
    with pytest.raises(AtlasError, match="differs from token to token"):
        run_passes(whole, [Prefill()])
    prefill = run_passes(whole, [Prefill(first=2)])
    x = np.random.default_rng(0).normal(size=(1, 3, 6))
    given = {"x": x, "mask": np.array([[1, 1, 1]])}
    found = interpret(prefill, {**given, "position": np.array([[0, 0, 1]])})
    np.testing.assert_allclose(found["y"], interpret(whole, given)["y"][:, 2])
    output = poly(LAST_BLOCK.replace("value = @c", "value = 1.0"), symbols, (1, 3, 6))
    with pytest.raises(AtlasError, match=r"poly.output has a constant that differs"):
        run_passes(output, [Prefill(first=2)])


def test_the_text_of_a_prefill_is_read_back() -> None:
    prefill = run_passes(window(made("qwen3")), [Prefill()])
    again = parse(print_module(prefill), stored_arrays(prefill))
    assert print_module(again) == print_module(prefill)


def test_the_head_of_a_prefill_is_the_clients() -> None:
    whole = window(made("gpt2"))
    prefill, cut = run_passes(whole, [Prefill()]), run_passes(whole, [CutHead(), Prefill()])
    head, given = head_of(run_passes(whole, [DecodeStep()])), prompt(PROMPT)
    hidden = interpret(cut, given)[HIDDEN]
    found = interpret(head, {HIDDEN: hidden})
    np.testing.assert_allclose(found["logits"], interpret(prefill, given)["logits"], atol=1e-12)


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({"causal = true": "causal = false"}, "attention cannot be computed for one token"),
        ({"poly.output %y": "poly.output %t"}, "the output y has shape"),
    ],
)
def test_what_is_no_decoder_is_refused(changed: dict[str, str], what: str) -> None:
    text = LAST_BLOCK.replace(", factor = @c", "")
    for old, new in changed.items():
        text = text.replace(old, new)
    with pytest.raises(AtlasError, match=what):
        run_passes(poly(text, SYMBOLS, (1, 3, 6)), [Prefill()])
