"""cut-head: the client's head on the cut program's output is the whole program."""

from __future__ import annotations

import numpy as np
import pytest
from short_text import dedent, module_of, poly, short

from atlasc.ir.errors import AtlasError
from atlasc.ir.interpreter import interpret
from atlasc.ir.verifier import verify
from atlasc.passes.framework.pass_base import run_passes
from atlasc.passes.generation.cut_head import HIDDEN, CutHead, head_of, is_tied
from atlasc.passes.generation.decode_step import DecodeStep
from tests.passes.generation.test_decode_step import (
    TOKENS,
    VOCABULARY,
    at,
    made,
    states,
    window,
)

RANDOM = np.random.default_rng(0)
SYMBOLS = {"w": RANDOM.normal(size=(6, 6)), "head": RANDOM.normal(size=(9, 6)), "b": np.ones(9)}
CAPPED = """%ids = nn.input {name = "ids", shape = [1, 3], side = "client", dtype = "i64"}
    %t = nn.embedding %ids {table = @head}
    %x = nn.encrypt %t
    %h = nn.linear %x {weight = @w}
    %l = nn.linear %h {weight = @head, bias = @b}
    %s = nn.scale %l {factor = 0.25}
    %c = nn.tanh %s
    %y = nn.scale %c {factor = 4.0}
    nn.output %y {name = "logits"}"""


def test_a_head_with_a_soft_cap_goes_to_the_client() -> None:
    module = module_of("nn", CAPPED, SYMBOLS)
    cut, head = run_passes(module, [CutHead()]), head_of(module)
    verify(head)
    assert short(cut) == dedent("""
        %t = nn.embedding %ids {table = @head}
        %x = nn.encrypt %t
        %h = nn.linear %x {weight = @w}
        nn.output %h {name = "hidden"}""")
    assert short(head, inputs=True) == dedent("""
        %hidden = nn.input {name = "hidden", shape = [1, 3, 6], side = "client", dtype = "f64"}
        %l = nn.linear %hidden {weight = @head, bias = @b}
        %s = nn.scale %l {factor = 0.25}
        %c = nn.tanh %s
        %y = nn.scale %c {factor = 4.0}
        nn.output %y {name = "logits"}""")
    given = {"ids": np.array([[3, 1, 8]])}
    found = interpret(head, interpret(cut, given))
    np.testing.assert_array_equal(found["logits"], interpret(module, given)["logits"])
    assert set(cut.symbols) == {"w", "head"}
    assert is_tied(module)
    assert not is_tied(module_of("nn", CAPPED.replace("table = @head", "table = @w"), SYMBOLS))


def test_the_head_of_polynomials_is_cut_with_its_map_of_the_output() -> None:
    module = poly(
        """%h = poly.square %x
        %l = poly.linear %h {weight = @head}
        poly.output %l {name = "logits", factor = 2.0}""",
        SYMBOLS,
        (1, 3, 6),
    )
    assert short(run_passes(module, [CutHead()])) == dedent("""
        %h = poly.square %x
        poly.output %h {name = "hidden"}""")


@pytest.mark.parametrize(
    ("tail", "why"),
    [
        ('nn.output %h {name = "a"}', "the outputs logits, a"),
        ('nn.output %l {name = "a"}', "the outputs logits, a"),
    ],
)
def test_several_outputs_are_refused(tail: str, why: str) -> None:
    with pytest.raises(AtlasError, match="the head cannot run on the client") as refused:
        run_passes(module_of("nn", f"{CAPPED}\n{tail}", SYMBOLS), [CutHead()])
    assert why in refused.value.why


def test_an_output_without_a_head_is_refused_by_name() -> None:
    other = CAPPED.replace("nn.tanh %s", "nn.add %s, %s")
    with pytest.raises(AtlasError, match="the head cannot run on the client") as refused:
        head_of(module_of("nn", other, SYMBOLS))
    assert "the output is made by nn.add" in refused.value.why


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_steps_that_are_cut_give_the_same_logits(kind: str) -> None:
    whole = window(made(kind))
    step = run_passes(whole, [DecodeStep()])
    cut, head = run_passes(whole, [CutHead(), DecodeStep()]), head_of(step)
    assert is_tied(whole) == (kind == "gpt2")
    kept = other = states(step)
    ids = RANDOM.integers(2, VOCABULARY, TOKENS).tolist()
    for position in range(3):
        given = at(position, ids)
        kept = interpret(step, {**given, **kept})
        other = interpret(cut, {**given, **other})
        found = interpret(head, {HIDDEN: other.pop(HIDDEN)})
        np.testing.assert_array_equal(found["logits"], kept.pop("logits"))
