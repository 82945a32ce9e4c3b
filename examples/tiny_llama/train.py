"""Train a small LLaMA on the texts that Python ships.

    python examples/tiny_llama/train.py [--output DIRECTORY]

Writes a HuggingFace directory (`model/`) with the weights in float16 and the tokenizer. Nothing is
downloaded.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from torch import Tensor, nn
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    get_cosine_schedule_with_warmup,
)

sys.path.append(str(Path(__file__).resolve().parent))
from corpus import MODEL, split

SEED = 0
VOCABULARY = 1024
PAD, BEGIN, END = "<pad>", "<s>", "</s>"  # ids 0, 1 and 2, as LlamaConfig has them
CONTEXT = 256
EPOCHS = 12
BATCH = 4
LEARNING_RATE = 4e-3
WARM_UP = 0.05
WEIGHT_DECAY = 0.1
DROPOUT = 0.1
CLIP = 1.0
REPORT = 100


def build_tokenizer(texts: Sequence[str], vocabulary: int = VOCABULARY) -> PreTrainedTokenizerFast:
    """Byte-level BPE; it puts the begin token before a text."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[PAD, BEGIN, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(texts, trainer)
    begin = [(BEGIN, bpe.token_to_id(BEGIN))]
    bpe.post_processor = processors.TemplateProcessing(f"{BEGIN} $A", special_tokens=begin)
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        pad_token=PAD,
        bos_token=BEGIN,
        eos_token=END,
        model_max_length=CONTEXT,
        padding_side="right",
    )


def build_model(vocabulary: int = VOCABULARY) -> LlamaForCausalLM:
    """Three decoder layers, 128 features, 4 heads; output weights are the embeddings."""
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
    return LlamaForCausalLM(config)


def encode(tokenizer: PreTrainedTokenizerFast, paragraphs: Sequence[str]) -> list[list[int]]:
    """Token ids of paragraphs, each between the begin and the end token."""
    encoded = tokenizer(list(paragraphs), verbose=False)["input_ids"]
    return [[*ids, tokenizer.eos_token_id] for ids in encoded]


def windows(stream: Tensor, generator: torch.Generator) -> Tensor:
    """The stream in windows [N, CONTEXT + 1] in a random order, cut at a random offset."""
    offset = int(torch.randint(CONTEXT, (), generator=generator))
    cut = stream[offset:].unfold(0, CONTEXT + 1, CONTEXT)
    return cut[torch.randperm(len(cut), generator=generator)]


def dropout(module: nn.Module, inputs: object, output: Tensor) -> Tensor:
    """A forward hook: LLaMA itself drops nothing that enters the sum of the layers."""
    return nn.functional.dropout(output, DROPOUT, module.training)


def train(model: LlamaForCausalLM, stream: Tensor, epochs: int) -> None:
    """AdamW with a warm-up and a cosine; prints loss and time with progress.

    Args:
        model: changed in place.
        stream: ids [N] of all texts.
        epochs: passes over the stream.
    """
    generator = torch.Generator().manual_seed(SEED)
    steps = epochs * -(-(len(stream) // CONTEXT) // BATCH)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.95), weight_decay=WEIGHT_DECAY
    )
    schedule = get_cosine_schedule_with_warmup(optimizer, int(WARM_UP * steps), steps)
    dropped = [
        module.register_forward_hook(dropout)
        for name, module in model.named_modules()
        if name.endswith(("embed_tokens", "o_proj", "down_proj"))
    ]
    started, step, total = time.perf_counter(), 0, 0.0
    model.train()
    for _ in range(epochs):
        for batch in windows(stream, generator).split(BATCH):
            loss = nn.functional.cross_entropy(
                model(input_ids=batch[:, :-1], use_cache=False).logits.flatten(0, 1),
                batch[:, 1:].flatten(),
            )
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), CLIP)
            optimizer.step()
            schedule.step()
            step, total = step + 1, total + loss.item()
            if step % REPORT == 0:
                spent = f"{time.perf_counter() - started:6.1f} s"
                print(f"step {step:5d}/{steps}  loss {total / REPORT:.4f}  {spent}", flush=True)
                total = 0.0
    model.eval()
    for hook in dropped:
        hook.remove()


@torch.no_grad()
def surprise(model: LlamaForCausalLM, paragraphs: Sequence[Sequence[int]]) -> Tensor:
    """-log p of every token but the first of each paragraph [N], in nats; each stands alone."""
    rows = [torch.tensor(ids[: CONTEXT + 1]) for ids in paragraphs]
    found = []
    for start in range(0, len(rows), 16):
        # A token sees those before it alone, so what comes after a paragraph needs no mask.
        tokens = nn.utils.rnn.pad_sequence(rows[start : start + 16], True, padding_value=-1)
        logits = model(input_ids=tokens[:, :-1].clamp_min(0), use_cache=False).logits
        losses = nn.functional.cross_entropy(
            logits.flatten(0, 1), tokens[:, 1:].flatten(), reduction="none", ignore_index=-1
        )
        found.append(losses[tokens[:, 1:].flatten() >= 0])
    return torch.cat(found)


def build(texts: Sequence[str], held_out: Sequence[str], output: Path, epochs: int) -> None:
    """Tokenizer and model of the texts, measured on the held-out ones and saved."""
    torch.manual_seed(SEED)
    tokenizer = build_tokenizer(texts)
    model = build_model(len(tokenizer))
    stream = torch.tensor([token for ids in encode(tokenizer, texts) for token in ids])
    print(f"{model.num_parameters():,} parameters, {len(stream):,} tokens to train on")
    train(model, stream, epochs)
    model = model.half()  # what is saved is what is measured
    losses = surprise(model.float(), encode(tokenizer, held_out))
    bits = losses.sum().item() / math.log(2) / sum(map(len, held_out))
    print(
        f"held out: {len(held_out)} paragraphs, {len(losses):,} tokens, loss {losses.mean():.4f}, "
        f"perplexity {losses.mean().exp():.2f}, {bits:.3f} bits a character"
    )
    model.half().save_pretrained(output)
    tokenizer.save_pretrained(output)


def main() -> None:
    """Train, print the perplexity on held-out text, and save."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=MODEL)
    output: Path = parser.parse_args().output
    started = time.perf_counter()
    torch.set_num_threads(1)  # the sums, and so the weights, do not depend on the machine's cores
    build(*split(), output, EPOCHS)
    print(f"saved to {output} after {time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
