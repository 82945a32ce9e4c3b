"""Members of a folder's configuration files: applied, without effect on an answer, or else said.

The libraries transformers and sentence-transformers read more files than a model's ``forward``
needs. One rule holds for each member of these files: atlasc applies it, or :data:`HARMLESS` gives
the reason why no answer depends on it, or a note names it. The members of ``config.json`` that the
model's own class declares are applied, because the library's own code builds and runs the model;
`declared` has those of `tokenizer_config.json` (`declared.py`). Unknown members of the files of
image processors are refused.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from atlasc.ir.errors import counted, named, printable
from atlasc.ir.files import MIB, read_json
from atlasc.loading.generation.folder import GENERATION, unapplied
from atlasc.loading.model_files import declared

MAX_FILE = MIB
SENTENCES, TRANSFORMER = "config_sentence_transformers.json", "sentence_bert_config.json"
MODULES, STEP = "modules.json", "N_Module/config.json"
ENCODER = "CrossEncoder"
APPLIED: Mapping[str, tuple[str, ...]] = {
    SENTENCES: ("prompts", "default_prompt_name", "truncate_dim", "activation_fn", "model_type"),
    TRANSFORMER: ("max_seq_length", "do_lower_case", "transformer_task"),
    MODULES: ("path", "type"),
    STEP: (
        "pooling_mode", "include_prompt", "in_features", "out_features", "bias",
        "activation_function", "use_residual", "dimension", "module_input_name",
        "module_output_name", "pooling_mode_cls_token", "pooling_mode_mean_tokens",
        "pooling_mode_max_tokens", "pooling_mode_mean_sqrt_len_tokens",
        "pooling_mode_weightedmean_tokens", "pooling_mode_lasttoken",
    ),
}  # fmt: skip
"""File -> members that atlasc applies; values that it cannot apply have notes of their own."""
HARMLESS: Mapping[str, Mapping[str, str]] = {
    SENTENCES: {
        "__version__": "names the versions that wrote the folder",
        "requirements": "names versions of packages",
        "similarity_fn_name": "compares two embeddings, after they were computed",
        "keep_in_fp32_modules": "chooses a precision; atlasc computes in float32",
    },
    TRANSFORMER: {"unpad_inputs": "is for speed"},
    MODULES: {"idx": "orders the list", "name": "names a part"},
    STEP: {
        "embedding_dimension": "is the width that the weights have",
        "word_embedding_dimension": "is the width that the weights have",
    },
}
"""File -> members without effect on an answer, and why."""
PLAIN: Mapping[str, Mapping[str, tuple[Any, ...]]] = {
    TRANSFORMER: {
        "module_output_name": ("token_embeddings", "scores"),
        "modality_config": tuple(
            {"text": {"method": "forward", "method_output_name": name}}
            for name in ("last_hidden_state", "logits")
        ),
    },
}
"""File -> member -> values that say what atlasc does anyway."""


def left_out(
    directory: Path, root: Path | None, steps: tuple[Path, ...], config: Any, writes_text: bool
) -> list[tuple[str, str]]:
    """One note on all members that are neither applied nor harmless; empty if there is none.

    Args:
        directory: folder of the model.
        root: folder of its list of modules; None for a folder of another library.
        steps: folders of the modules that are computed.
        config: config of the model.
        writes_text: whether the settings of generation concern the model.

    Raises:
        AtlasError: a file is malformed.
    """
    found: list[str] = []
    if root is not None:
        for name, folder in ((SENTENCES, root), (TRANSFORMER, directory)):
            found += _unknown(name, name, settings(folder / name))
        for module in read_json(root / MODULES, list[dict[str, Any]], "modules", MAX_FILE):
            found += _unknown(MODULES, MODULES, module)
        for path in steps:
            found += _unknown(STEP, f"{path.name}/config.json", settings(path / "config.json"))
    if writes_text:
        found += unapplied(directory)
    # Without a file of their own, the settings of generation are those of config.json.
    ignored = writes_text and os.path.isfile(directory / GENERATION)
    found += [_shown(*one) for one in declared.unknown_of_config(directory, config, ignored)]
    found += [_shown(*one) for one in declared.unknown_of_tokenizer(directory)]
    tasks = getattr(config, "task_specific_params", None)
    if tasks:
        found.append(f"config.json: task_specific_params of {named([*map(str, tasks)])}")
    if (directory / "config_setfit.json").exists():
        found.append("config_setfit.json: the head of SetFit (model_head.pkl)")
    return note_of(found)


def note_of(found: list[str]) -> list[tuple[str, str]]:
    """One note on the settings of a folder that are not applied; empty if there are none."""
    if not found:
        return []
    count = counted(len(found), "setting of the folder is", "settings of the folder are")
    return [
        (
            f"{count} not applied",
            "  which: " + "\n         ".join(found) + "\n"
            "  why: the folder's library applies them outside of the model "
            "(docs/model-files.md#settings)",
        )
    ]


def _unknown(kind: str, shown: str, facts: Mapping[str, Any]) -> Iterator[str]:
    known, plain = {*APPLIED[kind], *HARMLESS[kind]}, PLAIN.get(kind, {})
    for name, value in facts.items():
        if name not in known and value not in (None, {}, [], *plain.get(name, ())):
            yield _shown(shown, name, value)


def _shown(file: str, name: str, value: Any) -> str:
    return f"{file}: {printable(str(name))[:40]} = {printable(str(value))[:40]}"


def settings(path: Path) -> dict[str, Any]:
    """The members of a file; none if it does not exist, or if no file can be called so."""
    there = os.path.isfile(path)  # of a name that is too long, pathlib raises an OSError
    return read_json(path, dict[str, Any], "settings", MAX_FILE) if there else {}


def activation_of(directory: Path, config: Any) -> str | None:
    """The class that ends a CrossEncoder of sentence-transformers; None for another model.

    The library has written its name in three places, one after the other. It reads the newest one
    beside a list of modules alone, and takes its default for a class that is not torch's.
    """
    facts = settings(directory / SENTENCES)
    known = getattr(config, "sentence_transformers", None)
    older = getattr(config, "sbert_ce_default_activation_function", None)
    is_one = facts.get("model_type") == ENCODER or isinstance(known, dict) or older is not None
    if not is_one:
        return None
    newest = facts.get("activation_fn") if (directory / MODULES).is_file() else None
    given = str(newest or (known or {}).get("activation_fn") or older)
    if not given.startswith("torch."):
        return "Sigmoid" if getattr(config, "num_labels", None) == 1 else "Identity"
    place, _, name = given.rpartition(".")
    return name if place.startswith("torch.nn") else given
