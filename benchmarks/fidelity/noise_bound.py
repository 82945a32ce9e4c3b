"""The errors that encryption adds to the answers of small bootstrapped programs, beside the bound.

    python -m benchmarks.fidelity.noise_bound                five key sets of each program
    python -m benchmarks.fidelity.noise_bound --only text --keys 1
    python -m benchmarks.fidelity.noise_bound --target sim   the simulator's errors, in minutes

An error is the root mean square over the elements of one answer, against the same program on the
simulator without errors. After a kill the same command goes on: the programs and each finished key
set are kept in a folder. The exit code is 1 if an answer errs by more than the bound.

The programs of a text state no bound, because a step's errors depend on the steps before it. Theirs
is what the same sum of sources gives for one program, whose gains are those of the whole window.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from atlasc.bundle.folder import Bundle, load_bundle
from atlasc.client.program import Packed
from atlasc.compilation.compile import compile_model
from atlasc.compilation.noise_bound import with_noise
from atlasc.compilation.options import CompileOptions
from atlasc.files import write_text
from atlasc.generation.steps import TextBundles, public_at, window_of
from atlasc.program.engine import Engine
from atlasc.program.execute import execute
from atlasc.program.function import EngineParameters
from atlasc.program.key_plan import KeyPlan, key_plan
from atlasc.run.session import decrypt_all, encrypt_all
from atlasc.runtime.interface import states_of
from atlasc.targets.cpu.engine import CpuEngine
from atlasc.targets.sim import SimEngine

FOLDER = Path("build/noise-bound")
WORDS, LENGTH, WINDOW = 40, 6, 16
PROMPT, STEPS = 5, 10


@dataclass(frozen=True)
class Query:
    """One query of a program: what is encrypted, and its error's bound."""

    what: str
    bundle: Bundle
    packed: Packed


@dataclass(frozen=True)
class Measured:
    """The worst answer of a query.

    Attributes:
        what: the query.
        error: root mean square error of the worst of its answers.
        bound: what its program states, or would.
    """

    what: str
    error: float
    bound: float

    @property
    def ratio(self) -> float:
        """Error over bound."""
        return self.error / self.bound


def write_encoder(folder: Path) -> None:
    """A BERT of one layer under `is`."""
    import torch
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=WORDS, hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=8, max_position_embeddings=16, attn_implementation="sdpa",
    )  # fmt: skip
    rng = np.random.default_rng(0)
    texts = [rng.integers(1, WORDS, LENGTH - n % 4).tolist() for n in range(24)]
    options = CompileOptions(recipe="is", target="cpu", batch=2, sequence_length=LENGTH)
    model = BertModel(config, add_pooling_layer=False).eval()
    compile_model(model, [{"input_ids": ids} for ids in texts], folder, options)


def write_norms(folder: Path) -> None:
    """Five LayerNorms of one token, so that a variance is alone in all slots."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    norms = [part for _ in range(5) for part in (nn.LayerNorm(8), nn.Linear(8, 8))]

    class Norms(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.patch, self.rest = nn.Conv2d(1, 8, 8, stride=8), nn.Sequential(*norms)

        def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
            return self.rest(self.patch(pixel_values).flatten(2).transpose(1, 2))  # type: ignore[no-any-return]

    options = CompileOptions(recipe="is", target="cpu", batch=1)
    compile_model(Norms().eval(), images(np.random.default_rng(0), 32), folder, options)


def write_decoder(folder: Path) -> None:
    """A Llama of one block under `is`, with its step and its prefill."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=8, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=2, vocab_size=WORDS, max_position_embeddings=WINDOW,
        tie_word_embeddings=False,
    )  # fmt: skip
    model = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim > 1:
                weight.mul_(8)  # otherwise no token matters
    texts = np.random.default_rng(0).integers(1, WORDS, (24, WINDOW)).tolist()
    options = CompileOptions(recipe="is", target="cpu", generate=True, sequence_length=WINDOW)
    compile_model(model, [{"input_ids": ids} for ids in texts], folder, options)


def images(rng: np.random.Generator, count: int) -> np.ndarray:
    """Random images in [0, 1]."""
    return rng.random((count, 1, 8, 8)).astype(np.float32)


def asked_encoder(bundle: Bundle, rng: np.random.Generator) -> Iterator[Query]:
    """A query of two texts."""
    ids = rng.integers(1, WORDS, (2, LENGTH))
    arrays = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
    arrays["token_type_ids"] = np.zeros_like(ids)
    yield Query("two texts", bundle, bundle.client.query(arrays))


def asked_norms(bundle: Bundle, rng: np.random.Generator) -> Iterator[Query]:
    """Two queries of an image."""
    for number in (1, 2):
        packed = bundle.client.query({"pixel_values": images(rng, 1)})
        yield Query(f"image {number}", bundle, packed)


def asked_decoder(bundle: Bundle, rng: np.random.Generator) -> Iterator[Query]:
    """A prompt at once, then tokens one by one."""
    programs, ids = TextBundles.of(bundle), rng.integers(1, WORDS, (1, WINDOW))
    prefill = programs.prefill
    assert prefill is not None, "the prefill pays"
    for place in range(PROMPT - 1, PROMPT + STEPS):
        one = prefill if place < PROMPT else programs.step
        known = np.where(np.arange(window_of(one)) <= place, ids, 0)
        what = "the prefill" if one is prefill else f"step {place - PROMPT + 1}"
        packed = one.client.query({"input_ids": known, **public_at(one, place)})
        yield Query(what, one, packed)


@dataclass(frozen=True)
class Case:
    """A program: how it is made, and what it is asked."""

    write: Callable[[Path], None]
    asked: Callable[[Bundle, np.random.Generator], Iterator[Query]]


CASES = {
    "is": Case(write_encoder, asked_encoder),
    "narrow": Case(write_norms, asked_norms),
    "text": Case(write_decoder, asked_decoder),
}


def bound_of(bundle: Bundle) -> float:
    """The bound that a program states for its answers; of a step or a prefill, what it would."""
    shape = EngineParameters.of(bundle.parameters)
    program = with_noise(bundle.program, bundle.parameters.noise_model(), shape)
    stated = [one.noise for one in bundle.client.interface.outputs]
    found = [op.attributes["noise"] for op in program.outputs if "noise" in op.attributes]
    assert stated in (found, [None]), "the bundle states another bound"
    return float(max(found))


def fresh(target: str, bundle: Bundle, seed: int) -> Engine[Any]:
    """An engine with new keys for all programs of a bundle, or with the simulated errors of one."""
    programs = [bundle]
    if bundle.has_step:
        texts = TextBundles.of(bundle)
        programs = [one for one in (texts.step, texts.prefill) if one is not None]
    parameters = programs[0].parameters
    if target == "sim":
        return SimEngine(*parameters.shape, noise=parameters.noise_model(), seed=seed)
    plan = KeyPlan({})
    for one in programs:
        plan = plan.union(key_plan(one.program))
    return CpuEngine.fresh(parameters, plan, lambda *_: None)


def answer(engine: Engine[Any], query: Query, kept: dict[str, list[Any]]) -> dict[str, np.ndarray]:
    """The answer to a query; ``kept`` has the keys and values of a text before and after it."""
    program = query.bundle.program
    given = encrypt_all(engine, query.packed)
    given |= {name: kept[name] for name in states_of(program) if name in kept}
    results = execute(engine, program, given, query.packed.public)
    answered = {one.name for one in query.bundle.client.interface.outputs}
    kept.update({name: results.pop(name) for name in results.keys() - answered})
    slots = decrypt_all(engine, results)
    return query.bundle.client.answers(slots, query.packed.count).outputs


def measured(case: Case, bundle: Bundle, target: str, seed: int) -> list[Measured]:
    """The errors of one key set, query by query."""
    engine = fresh(target, bundle, seed)
    found, kept, right = list[Measured](), dict[str, list[Any]](), dict[str, list[Any]]()
    for query in case.asked(bundle, np.random.default_rng(seed)):
        exact = SimEngine(*query.bundle.parameters.shape)
        wanted, told = answer(exact, query, right), answer(engine, query, kept)
        errors = [
            np.sqrt(np.square(told[name] - one).reshape(len(one), -1).mean(axis=1)).max()
            for name, one in wanted.items()
        ]
        found.append(Measured(query.what, float(max(errors)), bound_of(query.bundle)))
        print(f"  {query.what}: {found[-1].error:.2g}", file=sys.stderr, flush=True)
    return found


def figures(folder: Path, name: str, target: str, keys: int) -> list[list[Measured]]:
    """The errors of each key set; those that are not in the folder are measured."""
    case, place, found = CASES[name], folder / name, list[list[Measured]]()
    if not place.exists():
        case.write(place)
    bundle = load_bundle(place)
    for number in range(keys):
        kept = folder / f"{name}-{target}-{number}.json"
        if not kept.exists():
            begin = time.monotonic()
            print(f"{name}, key set {number + 1} of {keys}", file=sys.stderr, flush=True)
            one = measured(case, bundle, target, 1000 + number)
            print(f"  {time.monotonic() - begin:.0f} s", file=sys.stderr, flush=True)
            write_text(kept, json.dumps([asdict(query) for query in one]))
        found.append([Measured(**query) for query in json.loads(kept.read_text())])
    return found


def main() -> int:
    """Print a line for each kind of query: over all key sets, the worst error and its bound."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.fidelity.noise_bound", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--only", action="append", choices=CASES, help="this program")
    parser.add_argument("--keys", type=int, default=5, help="key sets of each program")
    parser.add_argument("--target", choices=("cpu", "sim"), default="cpu")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="for programs and figures")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    worst = 0.0
    for name in given.only or CASES:
        sets = figures(given.folder, name, given.target, given.keys)
        for queries in zip(*sets, strict=True):
            one = max(queries, key=lambda query: query.ratio)
            worst = max(worst, one.ratio)
            print(
                f"{name}, {one.what}: error {one.error:.2g}, bound {one.bound:.2g}, "
                f"ratio {one.ratio:.2f}, of {len(sets)} key sets",
                flush=True,
            )
    print(f"worst ratio {worst:.2f}")
    return int(worst > 1)


if __name__ == "__main__":
    sys.exit(main())
