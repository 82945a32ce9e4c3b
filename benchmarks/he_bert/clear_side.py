"""What the harness itself does in the clear: pairs, inputs, and the model's own classes.

    python -m benchmarks.he_bert.clear_side dataset|input|model SIZE COUNT SOURCE

It runs in the harness's folder, as the stages do. SOURCE is a folder with `model/` and `test.jsonl`
(pairs with labels).
"""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.he_bert.stages import Places, read_lines, write_lines

LABELS = "test_labels.txt"
SAMPLES = "dataset_samples.jsonl"
MOST_TOKENS = 128
"""Tokens of a pair in the harness."""


def dataset(places: Places, source: Path, count: int) -> None:
    """All pairs of the source that have a label."""
    del count
    write_lines(places.pairs.parents[1] / SAMPLES, read_lines(source / "test.jsonl"))


def inputs(places: Places, source: Path, count: int) -> None:
    """The first ``count`` pairs, and their labels in a file of their own."""
    del source
    rows = read_lines(places.pairs.parents[1] / SAMPLES)[:count]
    names = ("sentence1", "sentence2")
    write_lines(
        places.pairs,
        [{"target_idx": i} | {name: row[name] for name in names} for i, row in enumerate(rows)],
    )
    write_classes(places.pairs.with_name(LABELS), [row["label"] for row in rows])


def model(places: Places, source: Path, count: int) -> None:
    """The classes that the model itself gives, one pair at a time, cut where the harness cuts."""
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    del count
    tokenizer = AutoTokenizer.from_pretrained(source / "model")
    clear = AutoModelForSequenceClassification.from_pretrained(source / "model").eval()
    longest = min(MOST_TOKENS, clear.config.max_position_embeddings)
    classes = []
    for row in read_lines(places.pairs):
        read = tokenizer(row["sentence1"], row["sentence2"], truncation=True, max_length=longest,
                         return_tensors="pt")  # fmt: skip
        with torch.no_grad():
            classes.append(int(clear(**read).logits.argmax()))
    write_classes(clear_classes(places), classes)


def clear_classes(places: Places) -> Path:
    """The file of the model's own classes."""
    return places.predictions.with_name("harness_model_predictions.txt")


def write_classes(path: Path, classes: list[int]) -> None:
    """A class number a line."""
    path.write_text("".join(f"{one}\n" for one in classes), encoding="utf-8")


if __name__ == "__main__":
    step = {"dataset": dataset, "input": inputs, "model": model}[sys.argv[1]]
    step(Places.of(int(sys.argv[2])), Path(sys.argv[4]), int(sys.argv[3]))
