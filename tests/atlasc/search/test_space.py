"""The space of settings."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from atlasc.ir.errors import AtlasError
from atlasc.polynomials.parametrisation import PAPER, WIDE
from atlasc.search.points import SearchSpace

LOWER, UPPER = PAPER.lower, PAPER.upper
VECTORS = st.integers(1, 3).flatmap(
    lambda layers: st.tuples(*[st.integers(a, b) for a, b in zip(LOWER, UPPER)] * layers)
)


def test_a_layer_has_as_many_choices_as_the_paper_says() -> None:
    ranges = [range(low, high + 1) for low, high in zip(LOWER[:5], UPPER[:5])]
    softmax = {PAPER.canonical((*p, 1, 1, 1))[:5] for p in itertools.product(*ranges)}
    norms_and_activation = np.prod([high - low + 1 for low, high in zip(LOWER, UPPER)][5:])
    assert len(softmax) * norms_and_activation == 19_607 * 81 * 9 == 14_293_503


@given(VECTORS)
def test_decoding_is_canonical_and_encoding_its_inverse(vector: tuple[int, ...]) -> None:
    space = SearchSpace(len(vector) // 8)
    settings = space.decode(vector)
    assert space.decode(space.encode(settings)) == settings
    for layer, given_layer in zip(settings, np.reshape(vector, (-1, 8))):
        iterations = layer[:5]
        count = iterations.index(0) if 0 in iterations else 5
        assert count >= 1
        assert not any(iterations[count:])
        assert iterations[:count] == tuple(given_layer[:count])
        assert layer[5:] == tuple(given_layer[5:])


def test_a_value_out_of_bounds_is_named() -> None:
    vector = np.tile((5, 5, 5, 5, 7, 9, 9, 9), 2)
    vector[8] = 0
    with pytest.raises(AtlasError, match="p1 of layer 1 cannot be 0"):
        SearchSpace(2).decode(vector)
    with pytest.raises(AtlasError, match="16 integers, not 8"):
        SearchSpace(2).decode(vector[:8])


def test_random_vectors_fill_the_bounds() -> None:
    vectors = SearchSpace(2).random(2000, np.random.default_rng(0))
    assert vectors.shape == (2000, 16)
    assert vectors.min(axis=0).tolist() == list(LOWER) * 2
    assert vectors.max(axis=0).tolist() == list(UPPER) * 2


@given(st.tuples(*[st.integers(a, b) for a, b in zip(WIDE.lower, WIDE.upper)] * 2))
def test_a_wider_space_decodes_alike(vector: tuple[int, ...]) -> None:
    space = SearchSpace(2, WIDE)
    settings = space.decode(vector)
    assert [len(layer) for layer in settings] == [9, 9]
    assert space.decode(space.encode(settings)) == settings


@given(st.integers(1, 7), st.integers(1, 9), st.integers(0, 2**32))
def test_blocks_that_share_integers_have_them_once(layers: int, sharing: int, seed: int) -> None:
    space = SearchSpace(layers, WIDE, sharing)
    vectors = space.random(3, np.random.default_rng(seed))
    assert vectors.shape == (3, 9 * math.ceil(layers / sharing))
    for vector in vectors:
        settings = space.decode(vector)
        assert len(settings) == layers
        assert all(layer == settings[at - at % sharing] for at, layer in enumerate(settings))
        assert space.decode(space.encode(settings)) == settings


def test_a_shared_value_out_of_bounds_is_that_of_its_first_block() -> None:
    space = SearchSpace(5, PAPER, 2)
    vector = space.shared((5, 5, 5, 5, 7, 9, 9, 9))
    vector[8] = 0
    with pytest.raises(AtlasError, match="p1 of layer 2 cannot be 0"):
        space.decode(vector)
    with pytest.raises(AtlasError, match="24 integers, not 8"):
        space.decode(vector[:8])
    with pytest.raises(AtlasError, match="at least 1 block"):
        SearchSpace(5, PAPER, 0)
