"""Does a compiled decoder write on ciphertexts as the model in the clear does?

    python -m benchmarks.fidelity.encrypted --program build/window --journal build/windows

Compiles examples/tiny_llama for the engine `cpu`, at 128 bits, makes keys, and writes after prompts
that the compiler never saw. The likeliest token is taken each time. A window reads all tokens at
once, so that the model in the clear drafts a text, and one encrypted window says after each of its
tokens what the program writes there. A logit of a causal model depends on the tokens before it. So
up to the first other token the draft is what the program writes by itself. That token is taken, the
draft behind it is made anew, and another window reads it.

Prints the share of the tokens that are the model's (top-1, KL as in `decoder.py`), the same beside
the polynomials in the clear, and the seconds of a window. With `--journal` a run that was stopped
goes on with the same command, with new keys.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from atlasc.api.progress import progress
from atlasc.bundle.folder import Bundle, load_bundle
from atlasc.cli.output import print_json, print_table
from atlasc.run import session
from atlasc.targets import find_target
from benchmarks.fidelity.decoder import (
    MODEL,
    PROMPT,
    Logits,
    Steps,
    clear_model,
    model_steps,
    split,
    written_by,
)
from benchmarks.fidelity.journal import Journal

Window = Callable[[np.ndarray], dict[str, np.ndarray]]
"""From token ids [1, tokens] to the logits after each of them, ``[tokens, vocabulary]``: of the
encrypted `program` and of its `polynomials` in the clear."""


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    named = parser.add_argument
    named("--program", type=Path, help="the compiled window, or where to write it")
    named("--length", type=int, default=64, help="tokens of a window")
    named("--tokens", type=int, default=200, help="to write at least, in whole windows")
    named("--texts", type=int, default=60, help="to calibrate on")
    named("--target", default="cpu")
    named("--journal", type=Path, help="folder of finished windows, from which a run goes on")
    named("--json", action="store_true", help="print JSON")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        place = chosen.program or Path(scratch) / "program"
        bundle = load_bundle(place) if place.exists() else compiled(place, chosen)
        found = measured(bundle, chosen)
    if chosen.json:
        print_json(found)
    else:
        print_table(("", "figure"), list(found.items()))


def compiled(place: Path, chosen: argparse.Namespace) -> Bundle:
    """The window, with the logits of all its tokens."""
    from atlasc.compilation.compile import compile_model
    from atlasc.compilation.options import CompileOptions

    options = CompileOptions(
        sequence_length=chosen.length, target=chosen.target, recipe="is", batch=1
    )
    return compile_model(str(MODEL), split()[1][: chosen.texts], place, options, progress).bundle


def measured(bundle: Bundle, chosen: argparse.Namespace) -> dict[str, Any]:
    """Figures of so many texts."""
    length = bundle.manifest.sequence_length or 0
    texts = bundle.load_inputs(split()[1][::-1][: chosen.tokens]).arrays
    long = np.flatnonzero(texts["attention_mask"].sum(axis=1) >= PROMPT)
    starts = texts["input_ids"][long, :PROMPT][: -(-chosen.tokens // (length - PROMPT))]
    module = clear_model(MODEL)
    journal = Journal(chosen.journal, f"{bundle.identity}, encrypted")
    window = EncryptedWindow(bundle)
    written = [
        write(start[None], length, lambda ids: journal.once(ids, lambda: window(ids)), module)
        for start in starts
    ]
    program, polynomials, model = (
        np.concatenate(each)[:, None] for each in zip(*written, strict=True)
    )
    of_model, of_polynomials = Steps(program, model), Steps(program, polynomials).summary()
    return {
        "tokens": len(program),
        "top-1": of_model.summary()["top-1"],
        "top-1 beside the polynomials": of_polynomials["top-1"],
        **{name: of_model.summary()[name] for name in ("margin of flips", "KL", "KL, worst")},
        "largest error of a logit, by encryption": float(np.abs(program - polynomials).max()),
        "windows": len(window.seconds),
        "seconds of a window": float(np.mean(window.seconds)) if window.seconds else None,
        "predicted": bundle.manifest.costs.get("seconds"),
        "security, bits": bundle.parameters.security_bits,
    }


class EncryptedWindow:
    """Both roles in this process; keys are made for the first window.

    Attributes:
        seconds: that each window took the server.
    """

    def __init__(self, bundle: Bundle) -> None:
        self._bundle = bundle
        self._engine: Any = None
        self.seconds: list[float] = []

    def __call__(self, ids: np.ndarray) -> dict[str, np.ndarray]:
        """See `Window`."""
        bundle = self._bundle
        if self._engine is None:
            with progress("generating keys") as step:
                self._engine = find_target(bundle.target).make_engine(
                    bundle.program, bundle.parameters, step.report
                )
        inputs = bundle.load_inputs({"input_ids": ids, "attention_mask": np.ones_like(ids)})
        answer = session.run(bundle, inputs.arrays, steps=progress, engine=self._engine)
        self.seconds.append(answer.seconds["execute"])
        ((name, logits),) = answer.outputs.items()
        return {"program": logits[0], "polynomials": answer.expected[name][0]}


def write(
    start: np.ndarray, length: int, window: Window, module: Any
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Logits ``[length - prompt, vocabulary]`` of what a program writes behind a prompt: its own,
    those of its polynomials, and those of the model on the same tokens.

    Args:
        start: the prompt [1, prompt].
        length: of the text.
        window: of the program.
        module: the model as HuggingFace runs it.
    """
    import torch

    prompt = start.shape[1]
    logits: Logits = model_steps(module)
    ids, found = written_by(logits, start, length - prompt), {}
    known = prompt
    while known < length:
        found = window(ids)
        best = found["program"][prompt - 1 : -1].argmax(axis=-1).astype(ids.dtype)
        others = np.flatnonzero(best != ids[0, prompt:])
        known = length
        if len(others):
            first = int(others[0])
            known = prompt + first + 1
            own = np.concatenate([ids[0, : prompt + first], best[[first]]])[None]
            ids = written_by(logits, own, length - known)
    with torch.no_grad():
        model = module(torch.from_numpy(ids)).logits[0].float().numpy()
    each = (found["program"], found["polynomials"], model)
    program, polynomials, own_model = (one[prompt - 1 : length - 1] for one in each)
    return program, polynomials, own_model


if __name__ == "__main__":
    main()
