"""The same model, data and seed give the same bundle, byte for byte, on any number of threads."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys

import pytest

CODE = """
import sys
import numpy as np, torch
from transformers import BertConfig, BertForSequenceClassification
import atlasc

torch.manual_seed(0)
model = BertForSequenceClassification(BertConfig(
    vocab_size=40, hidden_size=192, num_hidden_layers=1, num_attention_heads=6,
    intermediate_size=768, max_position_embeddings=32,
)).eval()
data = {"input_ids": np.random.default_rng(0).integers(3, 40, (40, 32))}
threads = int(sys.argv[1])
program = atlasc.compile(
    model, data=data, target="sim", cost="levels", evaluations=20, threads=threads
)
program.save(sys.argv[2])
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, str]]:
    """Digests of the files of two bundles: one thread, and two of the search and of BLAS."""
    found = []
    for threads in (1, 2):
        folder = tmp_path_factory.mktemp("reproducible") / "bundle"
        names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
        limits = {**dict.fromkeys(names, str(threads)), "PYTHONHASHSEED": str(threads)}
        subprocess.run(
            [sys.executable, "-c", CODE, str(threads), str(folder)],
            env={**os.environ, **limits}, check=True, capture_output=True,
        )  # fmt: skip
        files = (path for path in sorted(folder.rglob("*")) if path.is_file())
        found.append({
            str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in files
        })  # fmt: skip
    return found


@pytest.mark.deep("search")
def test_threads_change_nothing(built: list[dict[str, str]]) -> None:
    one, two = built
    assert one == two and "manifest.json" in one
