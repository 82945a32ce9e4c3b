"""The true shape: BERT-base with two classes on 128 tokens.

`predicted` runs nothing and has no weights: the program is lowered from the configuration, with
nominal ranges. Real magnitudes can ask for more bootstraps. `write` makes a model with random
weights, on which the stages can be measured; its answers mean nothing.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from atlasc.bundle.sent import size_text
from atlasc.compilation.single_stages import Inspection, inspect
from atlasc.compilation.stage_options import InspectOptions
from atlasc.progress import Steps
from benchmarks.he_bert import small_model

TOKENS, VOCABULARY = 128, 28996
KEYS = ("rotation_keys", "other_keys", "bootstrap_keys")
"""Parts of the memory that are evaluation keys."""
JOINED = 6
"""Sentences of the small model that are one here, so that a pair fills most of the tokens."""
CALIBRATION_PAIRS, TEST_PAIRS = 40, 4
SHARPER = 8
"""Factor of the random queries, so that attention attends: by the entropy of its weights, a token
looks at 22 to 32 of 103 tokens. Without the factor it looks at all of them alike, which is easier.
"""


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
    costs, memory, sent = found.summary, found.summary["memory"], found.sent
    exact = [] if sent is None else [
        (f"{what}, exact", size_text(size)) for what, size in asdict(sent.bytes).items()
    ]  # fmt: skip
    return [
        ("key generation, seconds", f"{costs['key_seconds']:.0f}"),
        ("evaluation keys, GiB", f"{sum(memory[name] for name in KEYS) / 2**30:.1f}"),
        ("computation of one pair, seconds", f"{costs['seconds']:.0f}"),
        ("memory of the computation, GiB", f"{costs['memory_bytes'] / 2**30:.1f}"),
        ("depth of the blocks; bootstraps", f"{costs['depth']}; {costs['bootstraps']}"),
        ("prices measured on", str(costs["machine"])),
        *exact,
    ]


def write(folder: Path, layers: int = 0) -> None:
    """Write `model/`, with random weights, `calibration.jsonl` and `test.jsonl`.

    Args:
        folder: where they go.
        layers: number of layers; 0: those of the true shape.
    """
    import torch
    from transformers import BertConfig, BertForSequenceClassification

    count = CALIBRATION_PAIRS + TEST_PAIRS
    short = small_model.pairs(JOINED * count)
    rows = [joined(short[start::count]) for start in range(count)]
    torch.manual_seed(small_model.SEED)
    fewer = {"num_hidden_layers": layers} if layers else {}
    config = BertConfig(**configuration() | fewer)
    model = BertForSequenceClassification(config)
    for layer in model.bert.encoder.layer:
        layer.attention.self.query.weight.data *= SHARPER
    model.save_pretrained(folder / "model")
    texts = [text for row in rows for text in (row.first, row.second)]
    small_model.build_tokenizer(texts).save_pretrained(folder / "model")
    small_model.write_pairs(folder / "calibration.jsonl", rows[:CALIBRATION_PAIRS])
    small_model.write_pairs(folder / "test.jsonl", rows[CALIBRATION_PAIRS:])


def joined(rows: Sequence[small_model.Pair]) -> small_model.Pair:
    """A pair of the first and of the second sentences of some pairs."""
    first, second = (" ".join(texts) for texts in zip(*((r.first, r.second) for r in rows)))
    return small_model.Pair(first, second, rows[0].label)
