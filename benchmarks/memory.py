"""The memory that ``compile`` takes for a model of many blocks, of random weights.

    python benchmarks/memory.py [--blocks 8] [--type bfloat16] [--shard 50GB] [--tokens 2]

Compiles a LLaMA of 1,024 features with the recipe ``is`` for the target ``sim``, on 6 inputs.
Prints by step the greatest memory of the process's own, and of pages of files, which the system
takes back when it needs them; and the digest of the weights of the program.
"""

from __future__ import annotations

import argparse
import hashlib
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

FEATURES, INPUTS, VOCABULARY = 1024, 6, 1000
PERIOD = 0.01


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--blocks", type=int, default=8)
    parser.add_argument("--type", choices=["bfloat16", "float16", "float32"], default="bfloat16")
    parser.add_argument("--shard", default="50GB", help="greatest size of a file")
    parser.add_argument("--tokens", type=int, default=2)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="atlasc-memory-") as folder:
        save(Path(folder) / "model", arguments)
        run(Path(folder), arguments.tokens)


def save(folder: Path, arguments: argparse.Namespace) -> None:
    """Write the model in its type."""
    import torch
    from transformers import LlamaConfig, LlamaModel

    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=FEATURES, intermediate_size=2752, num_hidden_layers=arguments.blocks,
        num_attention_heads=16, num_key_value_heads=4, vocab_size=VOCABULARY,
        max_position_embeddings=64,
    )  # fmt: skip
    model = LlamaModel(config).to(getattr(torch, arguments.type))
    model.save_pretrained(folder, max_shard_size=arguments.shard)
    numbers = sum(parameter.numel() for parameter in model.parameters())
    print(f"{arguments.blocks} blocks, {4 * numbers / 2**20:.0f} MiB of weights in float32")


def run(folder: Path, tokens: int) -> None:
    """Compile, and print."""
    from atlasc.compilation.compile import compile_model
    from atlasc.compilation.options import CompileOptions

    peaks: dict[str, np.ndarray] = {}
    now = "start"

    def look() -> None:
        peaks[now] = np.maximum(peaks.get(now, 0), resident())

    def watch() -> None:
        while True:
            look()
            time.sleep(PERIOD)

    @contextmanager
    def steps(name: str, *_: Any) -> Iterator[Any]:
        nonlocal now
        now = name
        yield SimpleNamespace(report=lambda *_: None)
        look()

    threading.Thread(target=watch, daemon=True).start()
    ids = np.random.default_rng(0).integers(0, VOCABULARY, (INPUTS, tokens))
    options = CompileOptions(recipe="is", target="sim")
    model, output = str(folder / "model"), folder / "program"
    compile_model(model, {"input_ids": ids.tolist()}, output, options, steps)
    print(f"{'MiB at most':40s} {'own':>6s} {'files':>6s}")
    for name, (own, files) in peaks.items():
        print(f"{name:40s} {own:6.0f} {files:6.0f}")
    print(f"{'all':40s} {max(own for own, _ in peaks.values()):6.0f}")
    print(f"{time.process_time():.0f} s of processor time")
    weights = (output / "server" / "program.safetensors").read_bytes()
    print(f"program and weights: {hashlib.sha256(weights).hexdigest()[:16]}")


def resident() -> np.ndarray:
    """MiB in memory: the process's own, and of files."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    found = {key: rest.split() for key, _, rest in (line.partition(":") for line in lines)}
    return np.array([int(found[key][0]) / 1024 for key in ("RssAnon", "RssFile")])


if __name__ == "__main__":
    main()
