"""Scores of the next token: those of transformers, for random logits, texts and settings."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from transformers import GenerationConfig, GenerationMixin

from atlasc.api.generation import sampling_of
from atlasc.generation.processors import PROCESSORS, Text, processed
from atlasc.generation.sampling import Sampling
from atlasc.generation.warpers import WARPERS, probabilities, warped
from atlasc.ir.errors import AtlasError
from atlasc.loading.generation.folder import contradiction
from atlasc.loading.generation.settings import Settings

SIZE = 23
IDS = st.integers(0, SIZE - 1)
LISTS = st.lists(IDS, min_size=1, max_size=4)
PHRASES = st.lists(st.lists(IDS, min_size=1, max_size=3), min_size=1, max_size=4)
FACTORS = st.floats(0.3, 3)
OPEN = st.floats(0.02, 0.98)  # at 0 and 1 rounding decides
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "sequence_bias": st.lists(
        st.tuples(st.lists(IDS, min_size=1, max_size=3), st.floats(-5, 5, width=32)).map(list),
        min_size=1, max_size=4,
    ),
    "encoder_repetition_penalty": FACTORS,
    "repetition_penalty": FACTORS,
    "no_repeat_ngram_size": st.integers(1, 4),
    "encoder_no_repeat_ngram_size": st.integers(1, 4),
    "bad_words_ids": PHRASES,
    "min_length": st.integers(1, 12),
    "min_new_tokens": st.integers(1, 6),
    "forced_bos_token_id": IDS,
    "forced_eos_token_id": st.one_of(IDS, LISTS),
    "remove_invalid_values": st.just(True),
    "exponential_decay_length_penalty": st.tuples(st.integers(0, 4), st.floats(1, 2)),
    "suppress_tokens": LISTS,
    "begin_suppress_tokens": LISTS,
}  # fmt: skip
DRAWN: dict[str, st.SearchStrategy[Any]] = {
    "temperature": st.floats(0.1, 4), "top_h": OPEN, "top_k": st.integers(0, 30),
    "top_p": OPEN, "min_p": st.floats(0, 1), "typical_p": OPEN,
    "epsilon_cutoff": st.floats(1e-4, 0.3), "eta_cutoff": st.floats(1e-4, 0.3),
}  # fmt: skip


def settings_with(facts: dict[str, Any], ends: list[int]) -> Settings:
    """The settings of the values of a GenerationConfig."""
    last = facts.get("forced_eos_token_id", [])
    more = {"forced_eos_token_id": last if isinstance(last, list) else [last]}
    given = {"eos_token_id": ends, **facts, **more}
    return Settings.model_validate(given, strict=False)


def oracle(config: GenerationConfig, text: Text) -> Any:
    """The processors and warpers that ``model.generate`` makes, in its order."""
    config.max_length = text.limit
    ends = config.eos_token_id
    config._eos_token_tensor = torch.tensor(ends) if ends else None
    model = SimpleNamespace(
        config=SimpleNamespace(is_encoder_decoder=False),
        _merge_criteria_processor_list=lambda default, given: default,
    )
    prompt = torch.tensor(text.ids[: text.prompt])[None]
    if config.min_new_tokens is not None:  # as GenerationMixin._prepare_generated_length
        config.min_length = config.min_new_tokens + text.prompt
    make: Any = GenerationMixin._get_logits_processor
    return make(model, config, text.prompt, encoder_input_ids=prompt, device="cpu")


def compared(facts: dict[str, Any], text: Text, ends: list[int], logits: np.ndarray) -> None:
    config = GenerationConfig(**{"top_k": 0} | facts, eos_token_id=ends or None)
    wanted = oracle(config, text)(torch.tensor(text.ids)[None], torch.tensor(logits)[None])
    settings = settings_with({"top_k": 0} | facts, ends)
    found = processed(settings, text, logits)
    if settings.do_sample:
        found = warped(settings, found)
    np.testing.assert_allclose(found, wanted[0].numpy(), rtol=2e-6)
    assert found.dtype == np.float32


@st.composite
def texts(draw: st.DrawFn) -> tuple[Text, list[int], np.ndarray]:
    """A text of few different tokens, end tokens, and logits."""
    ids = draw(st.lists(st.integers(0, 4), min_size=1, max_size=9))
    prompt = draw(st.integers(1, len(ids)))
    limit = len(ids) + draw(st.integers(1, 3))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    logits = random.normal(size=SIZE).astype(np.float32) * np.float32(4)
    ends = draw(st.lists(IDS, min_size=1, max_size=3, unique=True))
    return Text(np.array(ids), prompt, limit), ends, logits


@pytest.mark.parametrize("name", VALUES)
@given(text=texts(), data=st.data())
def test_each_setting_is_that_of_transformers(name: str, text: Any, data: st.DataObject) -> None:
    known, ends, logits = text
    compared({name: data.draw(VALUES[name])}, known, ends, logits)


@pytest.mark.parametrize("name", DRAWN)
@given(text=texts(), data=st.data())
def test_each_setting_of_a_draw_is_that_of_transformers(
    name: str, text: Any, data: st.DataObject
) -> None:
    """Also where some tokens are ruled out before."""
    known, ends, logits = text
    ruled = data.draw(st.lists(IDS, max_size=SIZE - 2, unique=True))
    facts = {"do_sample": True, name: data.draw(DRAWN[name])}
    compared(facts | ({"suppress_tokens": ruled} if ruled else {}), known, ends, logits)


@given(text=texts(), data=st.data())
def test_all_settings_together_have_the_order_of_transformers(
    text: Any, data: st.DataObject
) -> None:
    known, ends, logits = text
    picked = data.draw(st.lists(st.sampled_from([*VALUES, *DRAWN]), unique=True, max_size=6))
    facts = {name: data.draw((VALUES | DRAWN)[name]) for name in picked}
    settings = settings_with(facts, ends)
    assume(contradiction(settings) is None)  # transformers refuses these too
    scores = processed(settings, known, logits)
    left = scores[np.isfinite(scores)]
    assume(len(np.unique(left)) == len(left))  # the order of equal scores is nobody's
    config = GenerationConfig(**facts, eos_token_id=ends)
    raw = oracle(config, known)(torch.tensor(known.ids)[None], torch.tensor(logits)[None])
    if torch.isfinite(raw).any() and not torch.isnan(raw).any():
        compared(facts | {"do_sample": bool(set(DRAWN) & set(picked))}, known, ends, logits)


@given(text=texts())
def test_an_end_that_no_setting_names_changes_nothing(text: Any) -> None:
    known, _, logits = text
    compared({"min_length": 99, "bad_words_ids": [[3]]}, known, [], logits)


def test_every_setting_is_compared() -> None:
    compared_names = {*VALUES, *DRAWN}
    functions = {one.__name__ for one in (*PROCESSORS, *WARPERS)}
    assert functions | {"min_new_tokens"} == compared_names
    left = {"eos_token_id", "stop_strings", "max_new_tokens", "max_length", "do_sample"}
    assert compared_names | left == set(Settings.model_fields)


def test_invalid_numbers_are_removed_as_transformers_does() -> None:
    logits = np.array([np.nan, np.inf, -np.inf, 1.5], np.float32)
    text = Text(np.array([1]), 1)
    wanted = oracle(GenerationConfig(remove_invalid_values=True), text)
    found = processed(Settings(remove_invalid_values=True), text, logits)
    exact = wanted(torch.tensor([[1]]), torch.tensor(logits)[None])[0].numpy()
    np.testing.assert_array_equal(found, exact)


@given(text=texts(), data=st.data())
def test_draws_have_the_probabilities_of_transformers(text: Any, data: st.DataObject) -> None:
    """The tokens that may be drawn, and how likely each is."""
    known, ends, logits = text
    picked = data.draw(st.lists(st.sampled_from([*DRAWN]), unique=True, min_size=1))
    facts = {"top_k": 50} | {name: data.draw(DRAWN[name]) for name in picked}
    config = GenerationConfig(do_sample=True, eos_token_id=ends, **facts)
    scores = oracle(config, known)(torch.tensor(known.ids)[None], torch.tensor(logits)[None])
    wanted = scores.softmax(-1)[0].numpy()
    settings = settings_with(facts | {"do_sample": True}, ends)
    found = probabilities(warped(settings, processed(settings, known, logits)))
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-7)
    np.testing.assert_array_equal(found > 0, wanted > 0)


@pytest.mark.parametrize("temperature", [1e-6, 1e-20, 1e-45, 1e-300])
def test_the_coldest_draws_take_the_likeliest_token(temperature: float) -> None:
    logits = np.array([-30.0, 29.9, 30.0, 0.0])
    settings = Settings(do_sample=True, temperature=temperature)
    assert Sampling(seed=1).choose(logits, Text(np.array([1]), 1), settings) == 2


def test_what_the_user_says_goes_before_the_folder() -> None:
    folder = Settings(do_sample=True, temperature=0.6, top_p=0.9, repetition_penalty=1.1)
    assert Sampling().over(folder) == folder
    assert not Sampling(temperature=0).over(folder).do_sample
    hot = Sampling(temperature=2, top_k=3).over(folder)
    assert (hot.temperature, hot.top_k, hot.top_p) == (2, 3, 0.9)
    assert Sampling(temperature=2).over(Settings()).do_sample
    assert sampling_of(top_k=3, top_p=0.5, seed=1, draws=True) == Sampling(
        top_k=3, top_p=0.5, seed=1
    )
    with pytest.raises(AtlasError, match="need a temperature"):
        sampling_of(temperature=0.0, top_p=0.5, draws=True)
    with pytest.raises(AtlasError, match="cannot be chosen"):
        sampling_of(temperature=1.0, top_p=1.5)
    assert Sampling().begun(folder).seed is not None and Sampling().begun().seed is None


def test_settings_that_leave_no_token_are_refused_by_name() -> None:
    every = Settings(suppress_tokens=tuple(range(SIZE)))
    text = Text(np.array([1]), 1)
    with pytest.raises(AtlasError, match="leave no token at place 1") as caught:
        Sampling().choose(np.zeros(SIZE), text, every)
    assert "suppress_tokens" in caught.value.why
    with pytest.raises(AtlasError, match="eos_token_id has the id 23, which is no token"):
        Sampling().choose(np.zeros(SIZE), text, Settings(eos_token_id=(1, SIZE)))
