"""Our own copy of the harness's call sequence: nine steps, a process each, measured.

It has the steps, files and numbers of the harness at its commit 170bfe5.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from benchmarks.he_bert.clear_side import LABELS, clear_classes
from benchmarks.he_bert.stages import Places

ROOT = Path(__file__).resolve().parents[2]
MEASURE = Path(__file__).with_name("measure.py")
SIZE = 1
"""The harness's number of the instance "small"; a "single" one has no member "Quality"."""
CLEAR = "benchmarks.he_bert.clear_side"
ONCE = {
    "Test dataset generation": "dataset",
    "Key Generation": "client_key_generation",
    "Encrypted model preprocessing": "server_preprocess_model",
}
REPEATED = {
    "Input generation": "input",
    "Input preprocessing": "client_preprocess_input",
    "Input encryption": "client_encode_encrypt_input",
    "Encrypted computation": "server_encrypted_compute",
    "Result decryption": "client_decrypt_decode",
    "Result postprocessing": "client_postprocess",
    "Harness: Run inference for harness plaintext model": "model",
}
"""The harness's names of the steps, and the stage or the part of :mod:`clear_side` that runs: those
of all runs, and those of each.
"""
CHECK = "Harness: Run quality check"


class Measured(NamedTuple):
    """What a step took.

    Attributes:
        seconds: wall-clock time of its process.
        memory: the most that the process held, in bytes.
    """

    seconds: float
    memory: int


def run_sequence(
    folder: Path, source: Path, count: int, runs: int = 1
) -> tuple[dict[str, Any], Path]:
    """Run all steps on ``count`` pairs of a source (see :mod:`clear_side`), those of a run several
    times with the same keys. The submission lies in ``folder/submissions``.

    Returns:
        the harness's record of the last run, with a further member "Peak Memory"; and its file.

    Raises:
        SystemExit: a step failed; what it wrote stands above.
    """
    folder = folder.resolve()  # the steps run in it
    places = Places.of(SIZE, folder)
    shutil.rmtree(places.io, ignore_errors=True)
    places.io.mkdir(parents=True)

    def measure(steps: dict[str, str]) -> dict[str, Measured]:
        measured = {}
        for name, what in steps.items():
            print(f"[harness] {name}", flush=True)
            measured[name] = timed(command(folder, what, source, count), folder, name)
        return measured

    measured = measure(ONCE)
    place = folder / "measurements" / places.io.name
    place.mkdir(parents=True, exist_ok=True)
    for run in range(1, runs + 1):
        record = record_of(places, measured | measure(REPEATED), source.name)
        path = place / f"results-{run}.json"
        path.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    return record, path


def command(folder: Path, what: str, source: Path, count: int) -> list[str]:
    """The words of the command of a step."""
    script = folder / "submissions" / f"{what}.py"
    if script.is_file():
        return [sys.executable, str(script), str(SIZE)]
    return [sys.executable, "-m", CLEAR, what, str(SIZE), str(count), str(source.resolve())]


def timed(words: list[str], folder: Path, name: str) -> Measured:
    """Run a command in a folder, and measure it.

    Raises:
        SystemExit: it failed.
    """
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    with TemporaryDirectory() as scratch:
        result = Path(scratch) / "measured.json"
        measuring = [sys.executable, str(MEASURE), str(result), *words]
        subprocess.run(measuring, cwd=folder, env=environment, check=False)
        found = json.loads(result.read_text(encoding="utf-8"))
    if found["code"]:
        raise SystemExit(f"{name} failed with exit code {found['code']}")
    return Measured(found["seconds"], found["memory"])


def record_of(places: Places, measured: dict[str, Measured], name: str) -> dict[str, Any]:
    """The harness's record of a run on the source of that name; numbers are texts with units, as it
    writes them.
    """
    begun = time.perf_counter()
    labels = places.pairs.with_name(LABELS)
    classes = {"Encrypted model": places.predictions, "Harness model": clear_classes(places)}
    qualities = {f"{kind} quality": quality(labels, path) for kind, path in classes.items()}
    seconds = {step: one.seconds for step, one in measured.items()}
    seconds[CHECK] = time.perf_counter() - begun
    seconds["Total"] = sum(seconds.values())
    sizes = {
        "Public and evaluation keys": places.public_keys,
        "Packed model weights": places.server.parent,
        "Encrypted input": places.queries,
        "Encrypted results": places.answers,
    }
    reported = json.loads((places.io / "server_reported_steps.json").read_text(encoding="utf-8"))
    return {
        "model_name": name,
        "dataset_name": name,
        "Timing": {step: f"{value:.4f}s" for step, value in seconds.items()},
        "Bandwidth": {what: readable(folder_bytes(path)) for what, path in sizes.items()},
        "Quality": qualities,
        "Server Reported": {step: f"{value}s" for step, value in reported.items()},
        "Peak Memory": {step: readable(one.memory) for step, one in measured.items()},
    }


def quality(labels: Path, classes: Path) -> dict[str, float]:
    """How many classes are the labels."""
    true, given = (path.read_text(encoding="utf-8").split() for path in (labels, classes))
    if len(true) != len(given):
        raise SystemExit(f"{classes} has {len(given)} classes for {len(true)} pairs")
    right = sum(map(str.__eq__, true, given))
    return {
        "correct_predictions": right,
        "total_samples": len(given),
        "accuracy": right / len(given),
    }


def folder_bytes(folder: Path) -> int:
    """Bytes of a folder as the harness counts them, the entries of folders included (``du -b``)."""
    return sum(path.lstat().st_size for path in (folder, *folder.rglob("*")))


def readable(size: float) -> str:
    """Bytes in the harness's form: 1.5K."""
    for unit in "BKMG":
        if size < 1024:
            return f"{size:.1f}{unit}"
        size /= 1024
    return f"{size:.1f}T"
