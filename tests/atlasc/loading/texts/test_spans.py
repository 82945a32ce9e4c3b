"""The span that answers a question: its tokens by trying all, its characters by the tokenizer."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st
from text_models import SIZES, text_model, tokenizer_of

import atlasc
from atlasc.loading.data import inputs_of
from atlasc.loading.texts.spans import LONGEST, Span, best_span, spans_of
from atlasc.loading.texts.tokenizer import ProgramTokenizer, prompted

TEXT = "the cat sat on the mat"
PAIRS = [("a cat", TEXT), ("the mat", "a cat  sat on a mat"), ("cat", "mat")]


@given(st.integers(1, 50), st.integers(0, 1000))
def test_no_span_has_a_greater_sum(tokens: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    start, end = random.normal(size=(2, tokens))
    allowed = random.random(tokens) < 0.7
    allowed[random.integers(tokens)] = True
    first, last = best_span(start, end, allowed)
    every = [
        (start[i] + end[j], i, j)
        for i in range(tokens)
        for j in range(i, min(tokens, i + LONGEST))
        if allowed[i] and allowed[j]
    ]
    assert (start[first] + end[last], first, last) == max(every)


def _plain(family: str) -> ProgramTokenizer:
    return prompted(tokenizer_of(family), "")


@pytest.mark.parametrize("family", ["bert", "roberta"])
@pytest.mark.parametrize("side", ["right", "left"])
def test_the_span_is_a_part_of_the_text(family: str, side: str) -> None:
    model = text_model(family, padding_side=side)
    inputs = inputs_of(PAIRS, model, 14)
    ids = inputs.arrays["input_ids"]
    assert inputs.words == tuple(PAIRS)
    sat, mat = (model.encode([word])["input_ids"][0][1] for word in ("sat", "mat"))
    outputs = {"start_logits": (ids == sat) * 9.0, "end_logits": (ids == mat) * 9.0}
    found = spans_of(_plain(family), inputs.words, inputs.arrays, outputs)
    assert found is not None
    assert found[0] == Span(8, 22, "sat on the mat", 18.0)
    assert found[1] == Span(7, 19, "sat on a mat", 18.0)
    assert found[2] == Span(0, 3, "mat", 9.0)  # the question is no part of the text
    outputs["start_logits"][0] = np.nan
    assert spans_of(_plain(family), inputs.words, inputs.arrays, outputs)[0] is None  # type: ignore[index]


def test_other_answers_have_no_spans() -> None:
    model = text_model("bert")
    pairs, single = inputs_of(PAIRS, model, 14), inputs_of([TEXT], model, 14)
    ends = {name: np.zeros((3, 14)) for name in ("start_logits", "end_logits")}
    assert spans_of(_plain("bert"), pairs.words, pairs.arrays, {"logits": ends}) is None
    assert spans_of(_plain("bert"), single.words, single.arrays, ends) is None
    swapped = tuple((text, question) for question, text in PAIRS)
    found = spans_of(_plain("bert"), swapped, pairs.arrays, ends)
    assert found == (None, None, None)  # the tokens are those of other texts


def test_a_compiled_model_answers_with_the_span_of_huggingface() -> None:
    torch.manual_seed(0)
    module = transformers.BertForQuestionAnswering(transformers.BertConfig(**SIZES)).eval()
    for parameter in module.parameters():
        if parameter.ndim > 1:
            parameter.data = 0.3 * torch.randn_like(parameter)
    tokenizer = tokenizer_of("bert")
    program = atlasc.compile(
        module,
        PAIRS * 4,
        tokenizer=tokenizer,
        target="sim",
        recipe="is",
        sequence_length=14,
        max_error=1e9,
    )
    answers = program.run(PAIRS)
    assert set(answers.outputs) == {"start_logits", "end_logits"}
    for span, (question, text) in zip(answers.shown(), PAIRS, strict=True):
        given = tokenizer(question, text, return_tensors="pt", return_offsets_mapping=True)
        offsets = given.pop("offset_mapping")[0].numpy()
        with torch.no_grad():
            logits = module(**given)
        allowed = np.array([part == 1 for part in given.sequence_ids()])
        first, last = best_span(
            logits.start_logits[0].numpy(), logits.end_logits[0].numpy(), allowed
        )
        assert isinstance(span, Span)
        assert (span.start, span.end) == (offsets[first][0], offsets[last][1])
        assert span.text == text[span.start : span.end]
