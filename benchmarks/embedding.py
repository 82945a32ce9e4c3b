r"""A sentence's embedding from encrypted tokens, beside the model's own: cosine, seconds, memory.

    MODEL=$(python examples/minilm/texts.py texts.txt)
    atlasc search "$MODEL" --data texts.txt --sequence-length 64 --space wide --cost latency \
        --outputs last_hidden_state -o front
    atlasc compile "$MODEL" --data texts.txt --sequence-length 64 --front front --max-error 0.001 \
        --outputs last_hidden_state --target 'desilo{key-memory=1G}' -o build/minilm
    python examples/minilm/texts.py unseen.txt --count 20 --skip 400
    python -m benchmarks.embedding build/minilm --input unseen.txt [--index 0] [--json FILE]

The embedding is the mean of the hidden states of a text's tokens. All roles run in one process, so
that its peak memory includes the secret key and the model in the clear. Where keygen, encrypt,
execute and decrypt were run one after the other, `--answer FILE` compares what decrypt wrote.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from atlasc.api.progress import progress
from atlasc.bundle.folder import Bundle, load_bundle
from atlasc.cli.output import print_table
from atlasc.cli.results import show_timing
from atlasc.program.costs import program_costs
from atlasc.report.summary import costs_summary
from atlasc.run import session
from atlasc.run.session import simulate
from atlasc.targets import find_target
from atlasc.targets.machine import OtherWork
from benchmarks.peers.measure import peak_memory, reset_peak_memory

sys.path.append(str(Path(__file__).resolve().parents[1] / "examples" / "minilm"))


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("bundle", type=Path, help="all-MiniLM-L6-v2, compiled")
    parser.add_argument("--input", type=Path, required=True, help="texts, a line each")
    parser.add_argument("--index", type=int, default=0, help="the text")
    parser.add_argument("--target", help="another one than it was compiled for")
    parser.add_argument("--answer", type=Path, help=".npz file of atlasc decrypt: run nothing")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if warning := find_target("desilo").cost_warning():
        print(warning)
    bundle = load_bundle(arguments.bundle)
    inputs = bundle.load_inputs(arguments.input).take([arguments.index])
    print(f"the text: {arguments.input.read_text(encoding='utf-8').splitlines()[arguments.index]}")
    expected = simulate(bundle.client, bundle.poly, inputs.arrays)
    (polynomials,) = expected.values()
    found: dict[str, Any] = {}
    if arguments.answer is None:
        hidden, found = measure(bundle, inputs.arrays, arguments.target, expected)
    else:
        with np.load(arguments.answer) as answers:
            (hidden,) = answers.values()
    found = {**accuracy(hidden, polynomials, inputs.arrays), **found}
    rows = [(name, value) for name, value in found.items() if not isinstance(value, dict)]
    print_table(("figure", "value"), rows)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(found, indent=1) + "\n")


def measure(
    bundle: Bundle,
    arrays: dict[str, np.ndarray],
    target: str | None,
    expected: dict[str, np.ndarray],
) -> tuple[np.ndarray, dict[str, Any]]:
    """Run the program on one text: hidden states ``[1, tokens, features]``, and its costs."""
    parameters = bundle.parameters
    costs = costs_summary(program_costs(bundle.program), parameters)
    others = OtherWork()
    reset_peak_memory()
    answer = session.run(bundle, arrays, target, steps=progress, expected=expected)
    peak = peak_memory()
    if answer.timing is not None:
        show_timing(answer.timing)
    (hidden,) = answer.outputs.values()
    return hidden, {
        **{f"{phase}, s": seconds for phase, seconds in answer.seconds.items()},
        "predicted, s": costs["seconds"],
        "peak memory, GiB": peak / 2**30,
        "predicted memory, GiB": costs["memory_bytes"] / 2**30,
        "bootstraps": costs["bootstraps"],
        "levels": costs["levels_total"],
        "other work": others.share(),
        "timing": {} if answer.timing is None else answer.timing.summary(),
    }


def accuracy(
    hidden: np.ndarray, polynomials: np.ndarray, arrays: dict[str, np.ndarray]
) -> dict[str, Any]:
    """What the hidden states ``[1, tokens, features]`` of an encrypted run are worth, and those of
    the polynomials in the clear.
    """
    mask = arrays["attention_mask"]
    real = mask[0].astype(bool)
    wanted = embedding(cleartext(arrays), real)
    errors = np.abs(hidden - polynomials)[0][real]
    return {
        "tokens": int(real.sum()),
        "cosine with the model's embedding": cosine(embedding(hidden, real), wanted),
        "cosine of the polynomials": cosine(embedding(polynomials, real), wanted),
        "error of the encryption, largest": float(errors.max()),
        "error of the encryption, mean": float(errors.mean()),
    }


def cleartext(arrays: dict[str, np.ndarray]) -> np.ndarray:
    """Hidden states of the model as HuggingFace runs it, ``[1, tokens, features]``."""
    import texts
    import torch
    import transformers

    model = transformers.AutoModel.from_pretrained(texts.model_directory()).eval()
    with torch.no_grad():
        answer = model(**{name: torch.from_numpy(array) for name, array in arrays.items()})
    hidden: np.ndarray = answer.last_hidden_state.numpy()
    return hidden


def embedding(hidden: np.ndarray, real: np.ndarray) -> np.ndarray:
    """The mean of the hidden states of the text's tokens, ``[features]``."""
    mean: np.ndarray = hidden[0][real].mean(axis=0)
    return mean


def cosine(one: np.ndarray, other: np.ndarray) -> float:
    """Of the angle between two vectors."""
    return float(one @ other / (np.linalg.norm(one) * np.linalg.norm(other)))


if __name__ == "__main__":
    main()
