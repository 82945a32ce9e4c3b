"""Folders of sentence-transformers: what follows the Transformer, and how their texts are read.

Such a folder lists its modules in `modules.json`: the Transformer, a pooling of its tokens, and
perhaps linear layers and a normalisation. Where every module is known, they become one model with
the answer of the library's ``encode``. Otherwise the program computes the Transformer alone, and a
note names the steps that are left to the client. The library itself is not needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from atlasc.ir.errors import AtlasError, counted, named
from atlasc.ir.files import read_json
from atlasc.loading.model_files.members import ENCODER, MAX_FILE, MODULES, SENTENCES, settings

LIBRARY = "sentence_transformers"
TRANSFORMER = "Transformer"
PAGE = "docs/model-files.md#sentence-embeddings"
EMBEDDING = "sentence_embedding"
POOLINGS = {
    "cls_token": "cls",
    "mean_tokens": "mean",
    "max_tokens": "max",
    "mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "weightedmean_tokens": "weightedmean",
    "lasttoken": "lasttoken",
}
"""The end of a member of a pooling's old settings -> its name in the new ones, in the library's
order."""
COMPUTED = ("cls", "mean", "lasttoken")
"""Poolings with a rule in the frontend."""
ACTIVATIONS = ("Identity", "Tanh", "ReLU", "GELU", "SiLU", "Sigmoid")
"""Classes of ``torch.nn`` that may end a linear layer; no other name is looked up."""
_PLACES = ("module_input_name", "module_output_name")


@dataclass(frozen=True)
class Step:
    """One module after the Transformer.

    Attributes:
        kind: of the module.
        path: folder of its weights.
        poolings: of a pooling, the vectors that are joined.
        activation: of a linear layer, a class of ``torch.nn``.
    """

    kind: Literal["Pooling", "Dense", "LayerNorm", "Normalize"]
    path: Path
    poolings: tuple[str, ...] = ()
    activation: str = "Tanh"


@dataclass(frozen=True)
class Sentences:
    """What a folder says beside its Transformer.

    Attributes:
        steps: the modules after the Transformer; None if one of them is not computed.
        root: folder of the list of modules.
        prompt: what is written before each text; empty if there is no default.
        width: numbers of an embedding that are kept; None for all.
        lower_case: whether texts are read in lower case.
        most_tokens: of a text, which the library cuts; None if the folder gives no number.
        notes: what is left to the user, as pairs of a headline and details.
    """

    steps: tuple[Step, ...] | None
    root: Path
    prompt: str = ""
    width: int | None = None
    lower_case: bool = False
    most_tokens: int | None = None
    notes: tuple[tuple[str, str], ...] = ()


def sentences_of(directory: Path) -> Sentences | None:
    """What a folder of sentence-transformers says; None for another folder.

    The modules are listed in the directory or in its parent. Raises AtlasError if a file is
    malformed.
    """
    root = next((one for one in (directory, directory.parent) if _lists(one, directory)), None)
    if root is None:
        return None
    modules = [module for module in _modules(root) if not _is_transformer(module)]
    own = settings(directory / "sentence_bert_config.json")
    steps = _steps(root, modules, own)
    most, lower = own.get("max_seq_length"), own.get("do_lower_case") is True
    left = [_described(root, module) for module in modules] if steps is None else []
    facts = settings(root / SENTENCES)
    prompt, notes = _prompt(facts, root / SENTENCES)
    width = facts.get("truncate_dim")
    if width is not None and (type(width) is not int or width < 1):
        raise AtlasError(f"truncate_dim is {width!r}, not a size", where=str(root / SENTENCES))
    after = steps is None or any(step.kind == "Normalize" for step in steps)
    if left:
        notes.append(
            (
                "the program computes the embeddings of tokens, not of sentences",
                f"  why: this folder of sentence-transformers has further steps, which atlasc does "
                f"not compute: {', '.join(left)}\n"
                f"  what to do: compute these steps from the decrypted answer ({PAGE})",
            )
        )
    if width is not None and after and facts.get("model_type") != ENCODER:
        notes.append(
            (
                f"the program computes whole embeddings; truncate_dim is {width}",
                "  why: the client cuts them after the normalisation, which needs all numbers\n"
                f"  what to do: take the first {width} numbers of each embedding",
            )
        )
    known = most if type(most) is int and most > 0 else None
    kept = None if after else width
    return Sentences(steps, root, prompt, kept, lower, known, tuple(notes))


def _prompt(facts: dict[str, Any], path: Path) -> tuple[str, list[tuple[str, str]]]:
    """The default prompt, and a note on which prompts there are."""
    every, name = facts.get("prompts") or {}, facts.get("default_prompt_name")
    if not isinstance(every, dict) or (name is not None and not isinstance(every.get(name), str)):
        raise AtlasError(
            f"the default prompt {name!r} is not among the prompts",
            where=str(path),
            remedy="copy the file again, or delete default_prompt_name",
        )
    prompts = {str(key): text for key, text in every.items() if isinstance(text, str) and text}
    if not prompts:
        return "", []
    shown = named([f"{key}: {text[:40]!r}" for key, text in prompts.items()])
    if name is None:
        what = f"the model has {counted(len(prompts), 'prompt', 'prompts')}, none is the default"
        details = "what to do: write the prompt before each text, if you use the model so"
        return "", [(what, f"  which: {shown}\n  {details}")]
    what = f"the prompt {name!r} is written before each text"
    return every[name], [(what, f"  which: {shown}\n  why: it is the folder's default")]


def _steps(
    root: Path, modules: list[dict[str, Any]], own: dict[str, Any]
) -> tuple[Step, ...] | None:
    """The modules after the Transformer; None if their result is not that of known steps."""
    found = [_step(root, module) for module in modules]
    steps = tuple(step for step in found if step is not None)
    kinds = [step.kind for step in steps]
    task = own.get("transformer_task", "feature-extraction")
    in_order = kinds[:1] == ["Pooling"] and "Pooling" not in kinds[1:]
    if len(steps) < len(found) or not in_order or task != "feature-extraction":
        return None
    return None if "Normalize" in kinds[:-1] else steps


def _step(root: Path, module: dict[str, Any]) -> Step | None:
    """A module as a step; None if it is not known, or has settings that are not."""
    kind, name = _kind(module), str(module.get("path", ""))
    own = str(module.get("type", "")).startswith(f"{LIBRARY}.")
    if not own or Path(name).name != name or name in ("", ".", ".."):
        return None
    path = root / name
    facts = settings(path / "config.json")
    plain = all(facts.get(key, EMBEDDING) in (EMBEDDING, None) for key in _PLACES)
    if kind == "Pooling":
        poolings = _poolings(facts)
        known = set(poolings) <= set(COMPUTED) and facts.get("include_prompt", True) is True
        return Step("Pooling", path, poolings) if known else None
    if kind == "Dense" and plain and not facts.get("use_residual", False):
        activation = _activation(facts)
        return Step("Dense", path, activation=activation) if activation in ACTIVATIONS else None
    if kind == "LayerNorm":
        return Step("LayerNorm", path)
    return Step("Normalize", path) if kind == "Normalize" and plain else None


def _poolings(facts: dict[str, Any]) -> tuple[str, ...]:
    """The modes of a pooling, as the library reads its old and its new settings."""
    given = facts.get("pooling_mode")
    if given is not None:
        return tuple(map(str, given)) if isinstance(given, list) else (str(given),)
    old = [new for end, new in POOLINGS.items() if facts.get(f"pooling_mode_{end}") is True]
    return tuple(old) or ("mean",)


def _activation(facts: dict[str, Any]) -> str:
    """The class of an activation; an unknown place of it counts as unknown."""
    given = facts.get("activation_function", "torch.nn.modules.activation.Tanh")
    place, _, name = str(given).rpartition(".")
    return name if place.startswith("torch.nn") else "unknown"


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
    facts = settings(root / path / "config.json") if inside else {}
    if kind == "Pooling":
        return f"Pooling ({', '.join(_poolings(facts))})"
    if kind == "Dense":
        activation = str(facts.get("activation_function", "")).rpartition(".")[2]
        sizes = f"{facts.get('in_features', '?')} to {facts.get('out_features', '?')}"
        return f"Dense ({sizes}{', ' + activation if activation else ''})"
    return kind
