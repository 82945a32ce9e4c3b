"""Does a compiled decoder go on writing as the model in the clear does?

    python -m benchmarks.fidelity.decoder                        # compiles examples/tiny_llama
    python -m benchmarks.fidelity.decoder --program build/llama  # one that exists
    python -m benchmarks.fidelity.decoder --prompts 4 --tokens 8 --json

Continues prompts from texts that the model never saw, with a run of the program for each token. The
runs are simulated with the errors of bootstraps (`noisy.py`). The program takes the likeliest token
and reads it again, so that errors may add up. At each step the model in the clear reads the same
tokens, and its probabilities are compared with the program's. Prints

    top-1           the share of the steps with the same likeliest token
    margin of flips the largest difference of the model's own two logits where they differ
    KL              divergence of the program's probabilities from the model's, in nats: mean, worst
    collapsed       sequences with a step that is not finite, or whose KL exceeds 1 nat
    unsafe          sequences whose last run the verdict calls unsafe
    perplexity      that the model gives to what the program wrote, and to what it would write
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from atlasc.api.progress import progress
from atlasc.bundle.folder import Bundle, load_bundle
from atlasc.cli.output import print_json, print_table
from atlasc.client.verdict import verdicts
from benchmarks.fidelity.noisy import NoisyProgram

sys.path.append(str(Path(__file__).resolve().parents[2] / "examples" / "tiny_llama"))
from corpus import MODEL, split

PROMPT = 16
"""Tokens of a prompt."""
COLLAPSED = 1.0
"""Nats: a step that is further from the model's probabilities writes another text."""
Logits = Callable[[np.ndarray, int], np.ndarray]
"""From token ids [N, tokens] and a length to the logits [N, vocabulary] of the next token."""


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    named = parser.add_argument
    named("--program", type=Path, help="a compiled examples/tiny_llama, instead of compiling")
    named("--prompts", type=int, default=64)
    named("--tokens", type=int, default=128, help="to write after each prompt")
    named("--texts", type=int, default=400, help="to calibrate on")
    named("--error", type=float, help="greatest error to pick [default: the compiler's]")
    named("--recipe", help="named settings instead of a search")
    named("--json", action="store_true", help="print JSON")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        if chosen.program is None:
            bundle = compiled(Path(scratch) / "program", chosen)
        else:
            bundle = load_bundle(chosen.program)
        found = measured(bundle, chosen.prompts, chosen.tokens)
    costs: Any = bundle.manifest.costs
    facts = {name: costs[name] for name in ("levels", "bootstraps")}
    record = {**facts, "error": bundle.manifest.settings["error"], **found}
    if chosen.json:
        print_json(record)
    else:
        print_table(("", "figure"), list(record.items()))


def compiled(place: Path, chosen: argparse.Namespace) -> Bundle:
    """The decoder, for a prompt and all tokens after it."""
    from atlasc.compilation.compile import compile_model
    from atlasc.compilation.options import CompileOptions

    options = CompileOptions(
        sequence_length=PROMPT + chosen.tokens,
        target="sim",
        max_error=chosen.error,
        recipe=chosen.recipe,
    )
    return compile_model(str(MODEL), split()[1][: chosen.texts], place, options, progress).bundle


def measured(bundle: Bundle, prompts: int, tokens: int) -> dict[str, Any]:
    """Figures of a program on so many prompts."""
    texts = bundle.load_inputs(split()[1][::-1][: 4 * prompts]).arrays
    ids, mask = texts["input_ids"], texts["attention_mask"]
    long = np.flatnonzero(mask.sum(axis=1) >= PROMPT)[:prompts]
    start = ids[long, :PROMPT]
    program, model = program_logits(bundle), model_logits()
    with progress("writing", tokens) as step:
        written, steps = continued(start, tokens, program, model, step)
    with progress("writing in the clear", tokens) as step:
        own, _ = continued(start, tokens, model, model, step)
    kept = np.ones_like(written)
    judged = verdicts(
        bundle.client, bundle.poly,
        padded({"input_ids": written, "attention_mask": kept}, ids.shape[1]),
    )  # fmt: skip
    return {
        **steps.summary(),
        "unsafe": sum(not one.safe for one in judged),
        "perplexity": perplexity(written, model),
        "perplexity in the clear": perplexity(own, model),
    }


def padded(arrays: dict[str, np.ndarray], length: int) -> dict[str, np.ndarray]:
    """Token ids and mask ``[N, tokens]``, filled with zeros up to the length of a program."""
    return {n: np.pad(a, ((0, 0), (0, length - a.shape[1]))) for n, a in arrays.items()}


def program_logits(bundle: Bundle) -> Logits:
    """Of a compiled decoder, with the errors of bootstraps."""
    noisy, length = NoisyProgram(bundle), bundle.manifest.sequence_length
    assert length is not None

    def logits(ids: np.ndarray, count: int) -> np.ndarray:
        arrays = {"input_ids": ids[:, :count], "attention_mask": np.ones_like(ids[:, :count])}
        (found,) = noisy.run_with_errors(noisy.prepare(padded(arrays, length))).values()
        return np.asarray(found[:, count - 1], dtype=np.float64)

    return logits


def model_logits() -> Logits:
    """Of the model as HuggingFace runs it."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32).eval()

    def logits(ids: np.ndarray, count: int) -> np.ndarray:
        with torch.no_grad():
            found = model(torch.from_numpy(ids[:, :count]), logits_to_keep=1).logits
        return np.asarray(found[:, -1].double().numpy())

    return logits


@dataclass(frozen=True)
class Steps:
    """Logits ``[tokens, N, vocabulary]`` of a program and of the model on the same tokens."""

    program: np.ndarray
    model: np.ndarray

    def divergences(self) -> np.ndarray:
        """Kullback-Leibler ``[tokens, N]`` of the program's probabilities from the model's, nats;
        infinite where a logit is not finite.
        """
        ours, theirs = log_probabilities(self.program), log_probabilities(self.model)
        found = (np.exp(theirs) * (theirs - ours)).sum(axis=-1)
        return np.where(np.isfinite(found), found, np.inf)

    def summary(self) -> dict[str, Any]:
        """Figures of all steps."""
        apart = self.program.argmax(axis=-1) != self.model.argmax(axis=-1)
        best = np.sort(self.model, axis=-1)
        divergences = self.divergences()
        collapsed = ~(divergences <= COLLAPSED).all(axis=0)
        return {
            "sequences": divergences.shape[1],
            "steps": divergences.size,
            "top-1": float(1 - apart.mean()),
            "margin of flips": float((best[..., -1] - best[..., -2])[apart].max(initial=0.0)),
            "KL": float(divergences.mean()),
            "KL, worst": float(divergences.max()),
            "collapsed": int(collapsed.sum()),
        }


def log_probabilities(logits: np.ndarray) -> np.ndarray:
    """Logarithms of the softmax over the last axis."""
    with np.errstate(all="ignore"):
        shifted = logits - logits.max(axis=-1, keepdims=True)
        total = np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return np.asarray(shifted - total)


def continued(
    start: np.ndarray,
    tokens: int,
    program: Logits,
    model: Logits,
    done: Callable[[int], None] = lambda count: None,
) -> tuple[np.ndarray, Steps]:
    """Token ids ``[N, prompt + tokens]`` that the program writes, the likeliest each time."""
    ids, ours, theirs = start, [], []
    for _ in range(tokens):
        ours.append(program(ids, ids.shape[1]))
        theirs.append(model(ids, ids.shape[1]))
        best = np.nan_to_num(ours[-1], nan=-np.inf).argmax(axis=-1)
        ids = np.concatenate([ids, best[:, None].astype(ids.dtype)], axis=1)
        done(1)
    return ids, Steps(np.stack(ours), np.stack(theirs))


def perplexity(ids: np.ndarray, model: Logits) -> float:
    """That the model gives to the tokens after the prompts."""
    losses = [
        -np.take_along_axis(log_probabilities(model(ids, at)), ids[:, at, None], axis=-1)
        for at in range(PROMPT, ids.shape[1])
    ]
    return float(np.exp(np.mean(losses)))


if __name__ == "__main__":
    main()
