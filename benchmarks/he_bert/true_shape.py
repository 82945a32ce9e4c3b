"""What the stages would take on the true shape: predicted from the lowered program, nothing run.

The model is BERT-base with two classes on 128 tokens. It has no weights: the program is lowered
from the configuration, with nominal ranges. Real magnitudes can ask for more bootstraps.
"""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from atlasc.compilation.options import InspectOptions
from atlasc.compilation.single_stages import Inspection, inspect
from atlasc.compilation.steps import Steps

TOKENS, VOCABULARY = 128, 28996
KEYS = ("rotation_keys", "other_keys", "bootstrap_keys")
"""Parts of the memory that are evaluation keys."""


def configuration() -> dict[str, Any]:
    """Of google-bert/bert-base-cased with a head of two classes."""
    return {
        "architectures": ["BertForSequenceClassification"],
        "model_type": "bert",
        "hidden_size": 768,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "intermediate_size": 3072,
        "max_position_embeddings": 512,
        "vocab_size": VOCABULARY,
        "id2label": {"0": "not_equivalent", "1": "equivalent"},
        "label2id": {"not_equivalent": 0, "equivalent": 1},
    }


def predicted(target: str, recipe: str, steps: Steps) -> list[tuple[str, str]]:
    """Figures with their names; every one is computed, none is measured.

    Raises:
        AtlasError: the target predicts nothing, or there is no such recipe.
    """
    with TemporaryDirectory() as folder:
        place = Path(folder) / "config.json"
        place.write_text(json.dumps(configuration()), encoding="utf-8")
        options = InspectOptions(sequence_length=TOKENS, target=target, recipe=recipe)
        found = inspect(folder, options, steps)
    return rows_of(found)


def rows_of(found: Inspection) -> list[tuple[str, str]]:
    """The figures of a lowered program."""
    costs, memory = found.summary, found.summary["memory"]
    return [
        ("key generation, seconds", f"{costs['key_seconds']:.0f}"),
        ("evaluation keys, GiB", f"{sum(memory[name] for name in KEYS) / 2**30:.1f}"),
        ("computation of one pair, seconds", f"{costs['seconds']:.0f}"),
        ("memory of the computation, GiB", f"{costs['memory_bytes'] / 2**30:.1f}"),
        ("depth of the blocks; bootstraps", f"{costs['depth']}; {costs['bootstraps']}"),
        ("prices measured on", str(costs["machine"])),
    ]
