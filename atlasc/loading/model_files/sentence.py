"""Folders of sentence-transformers: the steps after the Transformer, which a program leaves out.

Such a folder lists its modules in `modules.json`: the Transformer, a pooling of its tokens, and
perhaps linear layers and a normalisation. A program computes only the Transformer. The other steps
are cheap in the clear: the client computes them from the decrypted answer. A note names them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from atlasc.ir.files import MIB, read_json

MODULES = "modules.json"
MAX_FILE = MIB
TRANSFORMER = "Transformer"
PAGE = "docs/model-files.md#sentence-embeddings"


def left_to_the_client(directory: Path) -> list[tuple[str, str]]:
    """Notes on the modules that follow the Transformer; [] if there are none.

    They are listed in the directory or in its parent. Raises AtlasError if a file is malformed.
    """
    root = next((one for one in (directory, directory.parent) if _lists(one, directory)), None)
    if root is None:
        return []
    steps = [_described(root, module) for module in _modules(root) if not _is_transformer(module)]
    settings = _settings(directory / "sentence_bert_config.json")
    steps += ["texts in lower case (before the tokenizer)"] * bool(settings.get("do_lower_case"))
    prompt = _settings(root / "config_sentence_transformers.json").get("default_prompt_name")
    steps += [f"the prompt {prompt!r} before each text"] * (prompt is not None)
    if not steps:
        return []
    return [
        (
            "the program computes the embeddings of tokens, not of sentences",
            f"  why: this folder of sentence-transformers has further steps, which atlasc does not "
            f"compute: {', '.join(steps)}\n"
            f"  what to do: compute these steps from the decrypted answer ({PAGE})",
        )
    ]


def _modules(root: Path) -> list[dict[str, Any]]:
    return read_json(root / MODULES, list[dict[str, Any]], "the list of modules", MAX_FILE)


def _lists(root: Path, directory: Path) -> bool:
    """Whether ``root`` has a list of modules with ``directory`` in it."""
    if not (root / MODULES).is_file():
        return False
    return root == directory or any(one.get("path") == directory.name for one in _modules(root))


def _kind(module: dict[str, Any]) -> str:
    return str(module.get("type", "an unknown step")).rpartition(".")[2]


def _is_transformer(module: dict[str, Any]) -> bool:
    return _kind(module) == TRANSFORMER


def _described(root: Path, module: dict[str, Any]) -> str:
    """A module in words: its kind, and the modes of a pooling or the sizes of a linear layer."""
    kind, path = _kind(module), str(module.get("path", ""))
    inside = Path(path).name == path and path not in ("", ".", "..")
    facts = _settings(root / path / "config.json") if inside else {}
    if kind == "Pooling":
        modes = [
            name.removeprefix("pooling_mode_")
            for name, on in facts.items()
            if name.startswith("pooling_mode_") and on is True
        ]
        given = facts.get("pooling_mode")
        modes = modes or ([given] if isinstance(given, str) else [])
        return f"Pooling ({', '.join(modes) or 'mean_tokens'})"
    if kind == "Dense":
        activation = str(facts.get("activation_function", "")).rpartition(".")[2]
        sizes = f"{facts.get('in_features', '?')} to {facts.get('out_features', '?')}"
        return f"Dense ({sizes}{', ' + activation if activation else ''})"
    return kind


def _settings(path: Path) -> dict[str, Any]:
    return read_json(path, dict[str, Any], "settings", MAX_FILE) if path.is_file() else {}
