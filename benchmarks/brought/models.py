"""The four models: a Transformer of its own classes, a DistilBERT, an ALBERT and a BERT, trained
here in seconds to a minute each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors
from torch import nn
from transformers import (
    AlbertConfig,
    AlbertForSequenceClassification,
    BertConfig,
    BertForSequenceClassification,
    DistilBertConfig,
    DistilBertForSequenceClassification,
    PreTrainedTokenizerFast,
)

from atlasc.api.progress import progress
from benchmarks.brought import sources
from benchmarks.brought.sources import Rows

WIDTH = 64
BATCH = 64
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]


class Brought(NamedTuple):
    """A trained model as its user holds it.

    Attributes:
        module: the torch module, in evaluation mode.
        tokenizer: its tokenizer; None for arrays.
        names: of the classes.
        rows: ``rows(count, seed, shifted=...)``, labelled inputs of its two sources.
        length: tokens of a text; None for arrays.
    """

    module: nn.Module
    tokenizer: Any
    names: Sequence[str]
    rows: Callable[..., Rows]
    length: int | None

    def answers(self, rows: Rows) -> np.ndarray:
        """The module's own logits [inputs, classes], each input alone."""
        with torch.no_grad():
            return np.concatenate([np.asarray(self._logits([one])) for one in rows.inputs])

    def _logits(self, inputs: Any) -> torch.Tensor:
        if self.tokenizer is None:
            return self.module(torch.from_numpy(np.asarray(inputs)))
        encoded = self.tokenizer(
            list(inputs), padding=True, truncation=True, max_length=self.length, return_tensors="pt"
        )
        kept = {name: encoded[name] for name in ("input_ids", "attention_mask")}
        return self.module(**kept).logits

    def train(self, steps: int, label: str, rate: float = 1e-3) -> Brought:
        """This model after so many steps on fresh inputs of its first source."""
        self.module.train()
        optimiser = torch.optim.AdamW(self.module.parameters(), rate, weight_decay=0.01)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, rate, total_steps=steps)
        with progress(f"training {label}", steps) as step:
            for number in range(steps):
                inputs, labels = self.rows(BATCH, 1000 + number)
                loss = nn.functional.cross_entropy(self._logits(inputs), torch.from_numpy(labels))
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
                schedule.step()
                step(note=f"loss {loss.item():.3f}")
        self.module.eval()
        return self


class Attention(nn.Module):
    """Attention written by hand, as in many models of satellites."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, h: torch.Tensor) -> torch.Tensor:
        """Attend from every token to every token of hidden states [batch, tokens, width]."""
        b, n, d = h.shape
        q, k, v = self.qkv(h).view(b, n, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        weights = (q @ k.transpose(-1, -2) / (d // self.heads) ** 0.5).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).reshape(b, n, d))


class Block(nn.Module):
    """Attention and a layer of GELU, each behind a norm."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.mlp = nn.Sequential(
            nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )

    def forward(self, h: torch.Tensor) -> torch.Tensor:
        """Add attention and the layer of GELU to hidden states [batch, tokens, width]."""
        h = h + self.attention(self.first(h))
        return h + self.mlp(self.second(h))


class SeriesTransformer(nn.Module):
    """Classes of a series of channels: one token for each month, and the mean of all."""

    def __init__(self, width: int = 32, heads: int = 4, blocks: int = 2) -> None:
        super().__init__()
        self.embed = nn.Linear(sources.CHANNELS, width)
        self.months = nn.Parameter(0.1 * torch.randn(sources.MONTHS, width))
        self.blocks = nn.ModuleList([Block(width, heads) for _ in range(blocks)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, len(sources.WATERS))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the logits [batch, classes] of series [batch, months, channels]."""
        h = self.embed(x) + self.months
        for block in self.blocks:
            h = block(h)
        return self.head(self.norm(h).mean(1))


def tokenizer_of(rows: Rows, pattern: str) -> PreTrainedTokenizerFast:
    """[CLS], the pieces of a text that a pattern finds, [SEP]."""
    pieces = pre_tokenizers.Split(Regex(pattern), "removed", invert=True)
    words = sorted({word for text in rows.inputs for word, _ in pieces.pre_tokenize_str(str(text))})
    numbers = {word: number for number, word in enumerate([*SPECIAL, *words])}
    made = Tokenizer(models.WordLevel(numbers, unk_token="[UNK]"))
    made.normalizer, made.pre_tokenizer = normalizers.NFC(), pieces
    ends = [(token, numbers[token]) for token in ("[CLS]", "[SEP]")]
    made.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", special_tokens=ends)
    return PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]",
        sep_token="[SEP]",
    )  # fmt: skip


def lakes() -> Brought:
    """A Transformer of its own classes, on series of channels."""
    torch.manual_seed(1)
    made = Brought(SeriesTransformer(), None, sources.WATERS, sources.waters, None)
    return made.train(300, "lakes")


def distilbert() -> Brought:
    """A DistilBERT of reviews."""
    torch.manual_seed(2)
    both = [text for shifted in (False, True)
            for text in sources.reviews(2000, 0, shifted=shifted).inputs]  # fmt: skip
    tokenizer = tokenizer_of(Rows(both, np.zeros(0)), r"\w+")
    config = DistilBertConfig(
        vocab_size=len(tokenizer), max_position_embeddings=32, dim=WIDTH, hidden_dim=2 * WIDTH,
        n_heads=4, n_layers=3, num_labels=2, dropout=0.0, attention_dropout=0.0,
        seq_classif_dropout=0.0,
    )  # fmt: skip
    module = DistilBertForSequenceClassification(config)
    made = Brought(module, tokenizer, ("LABEL_0", "LABEL_1"), sources.reviews, 32)
    return made.train(500, "distilbert")


def albert() -> Brought:
    """An ALBERT of reactions."""
    torch.manual_seed(3)
    tokenizer = tokenizer_of(sources.reactions(500, 0, shifted=True), ".")
    config = AlbertConfig(
        vocab_size=len(tokenizer), embedding_size=32, hidden_size=WIDTH, num_hidden_layers=4,
        num_attention_heads=4, intermediate_size=2 * WIDTH, max_position_embeddings=80,
        id2label=dict(enumerate(sources.REACTIONS)), classifier_dropout_prob=0.0,
    )  # fmt: skip
    module = AlbertForSequenceClassification(config)
    names = tuple(sources.REACTIONS)
    return Brought(module, tokenizer, names, sources.reactions, 80).train(400, "albert")


def bert() -> Brought:
    """A BERT of antibodies."""
    torch.manual_seed(4)
    tokenizer = tokenizer_of(sources.antibodies(500, 0), ".")
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=WIDTH, num_hidden_layers=3, num_attention_heads=4,
        intermediate_size=2 * WIDTH, max_position_embeddings=48,
        id2label=dict(enumerate(sources.CHAINS)), hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    names = tuple(sources.CHAINS)
    module = BertForSequenceClassification(config)
    return Brought(module, tokenizer, names, sources.antibodies, 48).train(400, "bert")


MODELS: dict[str, Callable[[], Brought]] = {
    make.__name__: make for make in (lakes, distilbert, albert, bert)
}
