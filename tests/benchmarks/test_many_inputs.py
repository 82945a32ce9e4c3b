"""A layer in the packing of many inputs is right, and counted as it is written."""

from __future__ import annotations

import pytest

from benchmarks.bert_base import many_inputs
from benchmarks.bert_base.many_inputs import Shape, attention_counts, linear_seconds


@pytest.mark.parametrize("seed", [0, 1])
def test_a_layer_on_the_simulator_is_that_of_numpy(seed: int) -> None:
    assert many_inputs.check(seed) < 1e-6


def test_attention_is_counted_as_the_page_says() -> None:
    tokens, size, heads, babies = 16, 6, 2, 4
    counts = attention_counts(Shape(tokens, size * heads, heads, 1), 64, 8, babies)
    turns = counts.count("rotate", "rotate_hoisted")
    giants = tokens // babies
    scores = size * (babies - 1 + giants - 1) + babies * (giants - 1)
    values = babies * (giants - 1) + size * (babies - 1 + giants - 1)
    assert turns == heads * (scores + values)
    # A sum of products for each shift, and for each feature and giant step.
    assert counts.count("mul") == heads * (tokens + size * giants)
    assert counts.count("mul", "mul_lazy") == heads * (2 * tokens * size)


def test_residues_of_more_bits_take_more_chunks() -> None:
    seconds = [linear_seconds(many_inputs.BERT, 1 << 15, 10, bits, 1e12) for bits in (40, 41, 60)]
    assert seconds[0] * 1.5 == pytest.approx(seconds[1]) == pytest.approx(seconds[2])
