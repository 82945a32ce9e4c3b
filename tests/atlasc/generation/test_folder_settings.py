"""Settings of generation in a folder: applied, said or refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import transformers

from atlasc.ir.errors import AtlasError
from atlasc.loading.generation.folder import HARMLESS, INSTEAD, settings_of
from atlasc.loading.generation.settings import Settings
from atlasc.loading.model_files.members import left_out
from atlasc.loading.models import load_model, model_of
from tests.atlasc.cli.command import ROOT
from tests.atlasc.generation.test_folders import FILE, folder_of, llama


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"num_beams": 4}, f"{FILE}: num_beams = 4: one text is written, token by token"),
        ({"guidance_scale": 1.5}, "guidance_scale = 1.5: the logits are taken without guidance"),
        ({"watermarking_config": {"bias": 2.0}}, "the text has no watermark"),
        ({"penalty_alpha": 0.6, "top_k": 4}, "no contrastive search"),
        ({"chat_format": "chatml"}, "chat_format = chatml: no setting of transformers"),
        ({"num_return_sequences": 3}, "num_return_sequences = 3"),
        ({"max_time": 3.0}, "the text has no limit of time"),
    ],
)
def test_what_no_client_applies_is_said(tmp_path: Path, facts: dict[str, Any], said: str) -> None:
    folder = folder_of(tmp_path, {"eos_token_id": 2, "use_cache": True, **facts})
    (note,) = load_model(folder).notes
    assert note[0] == "1 setting of the folder is not applied" and said in note[1]
    assert settings_of(folder).eos_token_id == (2,)


def test_everything_that_transformers_has_is_applied_harmless_or_said(tmp_path: Path) -> None:
    """No member of the pinned GenerationConfig is passed over in silence."""
    for name in transformers.GenerationConfig().to_dict():
        folder = tmp_path / name
        folder.mkdir()
        (folder / "config.json").write_text("{}")
        (folder / FILE).write_text(json.dumps({name: "a value of no meaning"}))
        notes = left_out(folder, None, (), None, True)
        known = name in Settings.model_fields or name in HARMLESS
        assert bool(notes) != known, name
        assert not notes or "no setting of transformers" not in notes[0][1], name


def test_a_module_in_memory_is_said_the_same() -> None:
    module = llama()
    module.generation_config.update(num_beams=4, top_k=3)
    (note,) = model_of(module).notes
    assert "generation_config.json: num_beams = 4: one text is written" in note[1]
    assert "top_k" not in note[1]


def test_code_of_a_folder_is_said_and_never_run(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, {})
    (folder / "custom_generate").mkdir()
    (folder / "custom_generate" / "generate.py").write_text("raise SystemExit('run')")
    (note,) = load_model(folder).notes
    assert "custom_generate: code of the folder, which is never run" in note[1]


@pytest.mark.parametrize(
    ("settings", "what", "why"),
    [
        ({"eos_token_id": "end"}, "the setting eos_token_id", "valid integer"),
        ({"eos_token_id": -1}, "the setting eos_token_id", "greater than or equal to 0"),
        ({"do_sample": "yes"}, "the setting do_sample", "valid boolean"),
        ({"do_sample": True, "temperature": 0.0}, "the setting temperature", "greater than 0"),
        ({"repetition_penalty": -1.0}, "the setting repetition_penalty", "greater than 0"),
        ({"bad_words_ids": [[]]}, "the setting bad_words_ids", "at least 1 item"),
        ({"top_p": 1.5}, "the setting top_p", "less than or equal to 1"),
        ({"stop_strings": ["end", ""]}, "the setting stop_strings", "at least 1 character"),
        ({"stop_strings": "x" * 257}, "the setting stop_strings", "at most 256 characters"),
        ({"stop_strings": ["x"] * 65}, "the setting stop_strings", "at most 64 items"),
        ({"stop_strings": [7]}, "the setting stop_strings", "valid string"),
        ({"max_new_tokens": 0}, "the setting max_new_tokens", "greater than or equal to 1"),
        (
            {"exponential_decay_length_penalty": [2, 1.5]},
            "the setting exponential_decay_length_penalty",
            "needs an eos_token_id",
        ),
        (
            {"forced_eos_token_id": [3, 4], "suppress_tokens": [3, 4, 5]},
            "the setting forced_eos_token_id",
            "suppress_tokens rules out each token",
        ),
    ],
)
def test_values_that_a_setting_cannot_have_are_refused_by_name(
    tmp_path: Path, settings: dict[str, Any], what: str, why: str
) -> None:
    folder = folder_of(tmp_path, settings)
    assert not load_model(folder).notes  # a program that writes no text reads none of them
    with pytest.raises(AtlasError, match=what) as caught:
        settings_of(folder)
    assert why in caught.value.why and FILE in caught.value.remedy


@pytest.mark.parametrize("text", ["no JSON", "[]", '{"top_k": 1, "top_k": 2}', '{"top_p": NaN}'])
def test_a_malformed_file_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_text(text)
    with pytest.raises(AtlasError, match="the settings of generation .* cannot be read"):
        settings_of(tmp_path)


def test_the_page_lists_every_setting() -> None:
    page = (ROOT / "docs" / "generation.md").read_text(encoding="utf-8")
    for name in (*Settings.model_fields, *HARMLESS, *INSTEAD):
        assert f"`{name}`" in page, name
    for why in (*HARMLESS.values(), *INSTEAD.values()):
        assert why in page, why
