"""A small BERT that tells whether the second sentence repeats the first: a stand-in for MRPC.

The sentences are those of Python's own documentation. In half of the pairs the second sentence is
the first one with words left out and moved. Training takes about a minute; nothing is downloaded.
"""

from __future__ import annotations

import json
import random
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "examples" / "minilm"))

if TYPE_CHECKING:
    from transformers import BertForSequenceClassification, PreTrainedTokenizerFast

TOKENS, VOCABULARY = 64, 2048
EPOCHS, BATCH, LEARNING_RATE, SEED = 12, 32, 1e-3, 0
TEST_PAIRS, CALIBRATION_PAIRS = 408, 300
LEFT_OUT, MOVED = 0.15, 0.15
"""Shares of the words of a sentence that is repeated."""


class Pair(NamedTuple):
    """Two sentences.

    Attributes:
        label: 1 where the second one repeats the first, else 0.
    """

    first: str
    second: str
    label: int

    def record(self, index: int) -> dict[str, Any]:
        """As the harness writes a pair, without its label."""
        return {"target_idx": index, "sentence1": self.first, "sentence2": self.second}


def sentences() -> list[str]:
    """Distinct sentences of 6 to 20 words."""
    from texts import docstrings, prose, topics

    found: dict[str, None] = {}
    for document in (*topics(), *docstrings()):
        for paragraph in prose(document):
            for sentence in re.split(r"(?<=[.!?]) +", paragraph):
                if 6 <= len(sentence.split()) <= 20:
                    found[sentence] = None
    return list(found)


def repeated(sentence: str, generator: random.Random) -> str:
    """The sentence, with some words left out and some moved to the place after the next."""
    words = [word for word in sentence.split() if generator.random() > LEFT_OUT]
    for place in range(len(words) - 1):
        if generator.random() < MOVED:
            words[place], words[place + 1] = words[place + 1], words[place]
    return " ".join(words) or sentence


def pairs(every: Sequence[str], seed: int = SEED) -> list[Pair]:
    """A pair for each sentence; the other sentences of unlike pairs are neighbours of the first."""
    generator = random.Random(seed)
    made = []
    for place, sentence in enumerate(every):
        label = generator.randrange(2)
        other = every[(place + generator.randrange(1, 5)) % len(every)]
        second = repeated(sentence if label else other, generator)
        made.append(Pair(sentence, second, label))
    generator.shuffle(made)
    return made


def build_tokenizer(texts: Sequence[str]) -> PreTrainedTokenizerFast:
    """WordPiece with BERT's special tokens and segments, trained on the texts."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    pieces = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    pieces.normalizer = normalizers.BertNormalizer()
    pieces.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    pieces.train_from_iterator(
        texts, trainers.WordPieceTrainer(vocab_size=VOCABULARY, special_tokens=special)
    )
    pieces.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(token, pieces.token_to_id(token)) for token in ("[CLS]", "[SEP]")],
    )
    names = {f"{token.strip('[]').lower()}_token": token for token in special}
    return PreTrainedTokenizerFast(tokenizer_object=pieces, **names)


def build_model() -> BertForSequenceClassification:
    """Two layers, 128 features, 4 heads, two classes."""
    import torch
    from transformers import BertConfig, BertForSequenceClassification

    torch.manual_seed(SEED)
    config = BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=256,
        max_position_embeddings=TOKENS,
        num_labels=2,
    )
    return BertForSequenceClassification(config)


def encoded(tokenizer: PreTrainedTokenizerFast, rows: Sequence[Pair]) -> Any:
    """Tensors of the model's inputs."""
    first, second = [row.first for row in rows], [row.second for row in rows]
    return tokenizer(first, second, padding="max_length", truncation=True, max_length=TOKENS,
                     return_tensors="pt")  # fmt: skip


def train(
    model: BertForSequenceClassification,
    tokenizer: PreTrainedTokenizerFast,
    rows: Sequence[Pair],
    epochs: int = EPOCHS,
) -> None:
    """Train the model in place; prints the loss of each epoch."""
    import torch

    inputs, labels = encoded(tokenizer, rows), torch.tensor([row.label for row in rows])
    steps = epochs * -(-len(rows) // BATCH)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, total_steps=steps)
    model.train()
    for epoch in range(epochs):
        total = 0.0
        for part in torch.randperm(len(rows)).split(BATCH):
            one = {name: array[part] for name, array in inputs.items()}
            loss = model(**one, labels=labels[part]).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            total += float(loss.detach()) * len(part)
        print(f"epoch {epoch + 1} of {epochs}: loss {total / len(rows):.3f}", flush=True)
    model.eval()


def write(folder: Path, epochs: int = EPOCHS) -> None:
    """Train, and write `model/`, `calibration.jsonl` and `test.jsonl` (pairs with labels)."""
    every = pairs(sentences())
    test, calibration = every[:TEST_PAIRS], every[TEST_PAIRS:][:CALIBRATION_PAIRS]
    training = every[TEST_PAIRS:]
    tokenizer = build_tokenizer([text for pair in training for text in (pair.first, pair.second)])
    model = build_model()
    train(model, tokenizer, training, epochs)
    model.save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    for name, rows in (("calibration", calibration), ("test", test)):
        records = [
            {"sentence1": row.first, "sentence2": row.second, "label": row.label} for row in rows
        ]
        lines = "".join(f"{json.dumps(record)}\n" for record in records)
        (folder / f"{name}.jsonl").write_text(lines, encoding="utf-8")
