"""A small BERT that tells whether two sentences have the same topic: a stand-in for MRPC.

The sentences are made of word lists, five topics with their own things, deeds and places. The two
sentences of a pair share no rule but their topic. Nothing is downloaded.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from transformers import BertForSequenceClassification, PreTrainedTokenizerFast

TOKENS, VOCABULARY = 32, 512
EPOCHS, BATCH, LEARNING_RATE, SEED = 6, 32, 1e-3, 0
INITIAL = 0.08
"""Standard deviation of the first weights: with BERT's 0.02 this small one hardly learns."""
TRAINING_PAIRS, TEST_PAIRS, CALIBRATION_PAIRS = 4000, 408, 300
TOPICS = (
    ("cook baker onion soup bread pan spoon pepper", "boils fries peels tastes stirs bakes",
     "kitchen oven stove pantry"),
    ("sailor captain anchor sail mast harbour wave boat", "drifts steers floats rows sinks moors",
     "sea bay pier lagoon"),
    ("farmer tractor barley cow hay plough orchard goat", "grazes ploughs harvests sows milks mows",
     "field barn meadow stable"),
    ("pianist violin choir melody drum singer flute chord", "plays hums sings tunes echoes "
     "rehearses", "stage hall studio opera"),
    ("nurse surgeon patient fever bandage doctor pill wound", "heals examines bleeds rests coughs "
     "recovers", "clinic ward hospital surgery"),
)  # fmt: skip
"""Of each topic the things, the deeds and the places."""
WHEN = ["today", "yesterday", "often", "slowly", "again", "quietly", "early", "late"]
BETWEEN = ("and the", "near the", "with the", "before the")


class Pair(NamedTuple):
    """Two sentences.

    Attributes:
        label: 1 where both have the same topic, else 0.
    """

    first: str
    second: str
    label: int


def sentence(topic: int, chosen: random.Random) -> str:
    """Some words of a topic, among words that all topics share."""
    things, deeds, places = (words.split() for words in TOPICS[topic])
    one, other = chosen.sample(things, 2)
    start = f"the {one} {chosen.choice(BETWEEN)} {other}" if chosen.random() < 0.5 else f"the {one}"
    words = f"{start} {chosen.choice(deeds)} in the {chosen.choice(places)}"
    return f"{words} {chosen.choice(WHEN)}" if chosen.random() < 0.5 else words


def pairs(count: int, seed: int = SEED) -> list[Pair]:
    """Distinct pairs, half of them of the same topic."""
    chosen = random.Random(seed)
    found: dict[Pair, None] = {}
    while len(found) < count:
        label = chosen.randrange(2)
        first, other = chosen.sample(range(len(TOPICS)), 2)
        second = first if label else other
        found[Pair(sentence(first, chosen), sentence(second, chosen), label)] = None
    return list(found)


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
    inputs = ["input_ids", "token_type_ids", "attention_mask"]  # without the second no segments
    return PreTrainedTokenizerFast(tokenizer_object=pieces, model_input_names=inputs, **names)


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
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        initializer_range=INITIAL,
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
    every = pairs(TEST_PAIRS + TRAINING_PAIRS)
    test, training = every[:TEST_PAIRS], every[TEST_PAIRS:]
    calibration = training[:CALIBRATION_PAIRS]
    tokenizer = build_tokenizer([text for pair in training for text in (pair.first, pair.second)])
    model = build_model()
    train(model, tokenizer, training, epochs)
    model.save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    write_pairs(folder / "calibration.jsonl", calibration)
    write_pairs(folder / "test.jsonl", test)


def write_pairs(path: Path, rows: Sequence[Pair]) -> None:
    """Pairs with their labels, a JSON object a line."""
    records = [
        {"sentence1": row.first, "sentence2": row.second, "label": row.label} for row in rows
    ]
    lines = "".join(f"{json.dumps(record)}\n" for record in records)
    path.write_text(lines, encoding="utf-8")
