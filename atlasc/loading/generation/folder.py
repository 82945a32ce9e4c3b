"""Settings of generation in a model's folder: read, refused by name, or said.

`model.generate` of transformers takes them from ``generation_config.json``. Without this file it
takes them from ``config.json``, or there from the config of the part that writes text.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from atlasc.ir.errors import AtlasError, printable
from atlasc.ir.files import parse_json, read_json
from atlasc.loading.generation.settings import MAX_SETTINGS, MAX_VALUES, Settings

GENERATION, CONFIG = "generation_config.json", "config.json"
CUSTOM = "custom_generate"
"""Folder of a model with code of its own in place of ``model.generate``."""
PARTS = ("decoder", "generator", "text_config")
"""Members of config.json with the config of the part that writes text."""
FILE, BATCH = "says where the file comes from", "is for texts of several rows"
SPEED, BEAMS = "is for speed or memory", "counts only for several beams"
OUTPUTS, ASSISTED = "adds outputs beside the tokens", "counts only beside an assistant model"
HARMLESS: Mapping[str, str] = {
    "_from_model_config": FILE, "transformers_version": FILE, "_commit_hash": FILE,
    "use_cache": SPEED, "cache_implementation": SPEED, "cache_config": SPEED,
    "max_cache_len": SPEED, "compile_config": SPEED, "disable_compile": SPEED,
    "low_memory": SPEED, "prefill_chunk_size": SPEED, "continuous_batching_config": SPEED,
    "prompt_lookup_num_tokens": SPEED, "max_matching_ngram_size": SPEED, "use_mtp": SPEED,
    "assistant_early_exit": SPEED,
    "early_stopping": BEAMS, "length_penalty": BEAMS, "diversity_penalty": BEAMS,
    "num_assistant_tokens": ASSISTED, "num_assistant_tokens_schedule": ASSISTED,
    "assistant_confidence_threshold": ASSISTED, "assistant_lookbehind": ASSISTED,
    "target_lookbehind": ASSISTED, "assistant_ensemble_weight": ASSISTED,
    "speculation_type": ASSISTED,
    "output_attentions": OUTPUTS, "output_hidden_states": OUTPUTS, "output_scores": OUTPUTS,
    "output_logits": OUTPUTS, "return_dict_in_generate": OUTPUTS,
    "pad_token_id": BATCH,
    "bos_token_id": "begins a text without a prompt, and a prompt has a token or more",
    "decoder_start_token_id": "is for encoder-decoders",
    "renormalize_logits": "changes no choice: scores of all tokens change by one number",
}  # fmt: skip
"""Setting -> why no text depends on it."""
ONE_BEAM = "one text is written, token by token"
INSTEAD: Mapping[str, str] = {
    "num_beams": ONE_BEAM, "num_beam_groups": ONE_BEAM, "num_return_sequences": ONE_BEAM,
    "constraints": ONE_BEAM, "force_words_ids": ONE_BEAM,
    "penalty_alpha": "no contrastive search: tokens are chosen by their logits alone",
    "dola_layers": "tokens are chosen by the logits of the last layer alone",
    "guidance_scale": "the logits are taken without guidance",
    "watermarking_config": "the text has no watermark",
    "max_time": "the text has no limit of time",
    "token_healing": "the prompt is taken as it is",
    "is_assistant": "the text is that of a model by itself",
}  # fmt: skip
"""Setting that no client applies -> what happens instead."""
PLAIN: Mapping[str, tuple[Any, ...]] = {
    "num_beams": (1,), "num_beam_groups": (1,), "num_return_sequences": (1,),
    "guidance_scale": (1,), "penalty_alpha": (0,), "token_healing": (False,),
    "is_assistant": (False,),
}  # fmt: skip
"""Setting -> values that say what happens anyway."""
LISTS = ("eos_token_id", "forced_eos_token_id", "stop_strings")
"""Settings that are one value or a list of values."""


def folder_settings(directory: Path) -> dict[str, Any]:
    """The settings of a folder as they are written, of the file that transformers takes them from;
    of config.json those that :class:`Settings` or a table above has.

    Raises:
        AtlasError: the file is malformed.
    """
    if os.path.isfile(directory / GENERATION):
        return _members(directory / GENERATION)
    facts = _members(directory / CONFIG)
    part: Any = next((facts[name] for name in PARTS if facts.get(name)), None)
    known = {*Settings.model_fields, *INSTEAD}
    places = (part if isinstance(part, dict) else {}, facts)
    return {n: v for one in places for n, v in one.items() if n in known and v is not None}


def settings_of(directory: Path) -> Settings:
    """The settings of a folder that change a text.

    Raises:
        AtlasError: the file is malformed; a setting has a value that it cannot have, or needs
            another one.
    """
    found = folder_settings(directory)
    facts = {n: v for n, v in found.items() if n in Settings.model_fields and v not in (None, [])}
    for name in LISTS:
        if name in facts and not isinstance(facts[name], list):
            facts[name] = [facts[name]]
    if not facts.get("do_sample") and facts.get("temperature") == 0:
        del facts["temperature"]  # an older way to write that no token is drawn
    own = os.path.isfile(directory / GENERATION)
    place = directory / (GENERATION if own else CONFIG)
    remedy = f"correct it, or delete it in {place.name}"
    try:
        settings = parse_json(json.dumps(facts), Settings, MAX_VALUES)
    except ValueError as error:
        name, _, why = str(error).partition(": ")
        fault = (name.partition(".")[0], why or name)
    else:
        if (found_fault := contradiction(settings)) is None:
            return settings
        fault = found_fault
    raise AtlasError(
        f"the setting {fault[0]} of {place.name} cannot be applied",
        where=str(place), why=fault[1], remedy=remedy,
    ) from None  # fmt: skip


def contradiction(settings: Settings) -> tuple[str, str] | None:
    """A setting that others make impossible, and why; None if there is none."""
    if settings.exponential_decay_length_penalty and not settings.eos_token_id:
        return (
            "exponential_decay_length_penalty",
            "it needs an eos_token_id, whose scores it raises",
        )
    first = settings.forced_bos_token_id
    forced = {
        "forced_bos_token_id": () if first is None else (first,),
        "forced_eos_token_id": settings.forced_eos_token_id,
    }
    for name, ids in forced.items():
        if ids and set(ids) <= set(settings.suppress_tokens):
            return name, "suppress_tokens rules out each token that it forces"
    return None


def unapplied(directory: Path) -> Iterator[str]:
    """Settings that no client applies, each with what happens instead.

    Raises:
        AtlasError: the file is malformed.
    """
    place = GENERATION if os.path.isfile(directory / GENERATION) else CONFIG
    for name, value in folder_settings(directory).items():
        known = name in Settings.model_fields or name in HARMLESS
        if known or value in (None, {}, [], *PLAIN.get(name, ())):
            continue
        instead = INSTEAD.get(name, "no setting of transformers has this name")
        shown = f"{printable(str(name))[:40]} = {printable(str(value))[:40]}"
        yield f"{place}: {shown}: {instead}"
    if (directory / CUSTOM).is_dir():
        yield f"{CUSTOM}: code of the folder, which is never run; {ONE_BEAM}"


def _members(path: Path) -> dict[str, Any]:
    if not os.path.isfile(path):
        return {}
    what = "the settings" if path.name == CONFIG else "the settings of generation"
    limit, values = MAX_SETTINGS, MAX_VALUES
    return read_json(path, dict[str, Any], what, limit, values=values)
