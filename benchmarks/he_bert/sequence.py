"""Our own copy of the harness's call sequence: nine steps, a process each, measured."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import atlasc
from benchmarks.he_bert import stages
from benchmarks.he_bert.clear_side import LABELS, clear_classes
from benchmarks.he_bert.stages import STAGES, Places

ROOT = Path(__file__).resolve().parents[2]
MEASURE = Path(__file__).with_name("measure.py")
SIZE = 1
"""The harness's number of the instance "small"; a "single" one has no member "Quality"."""
CLEAR = "benchmarks.he_bert.clear_side"
STEPS = {
    "Test dataset generation": "dataset",
    "Key Generation": "client_key_generation",
    "Encrypted model preprocessing": "server_preprocess_model",
    "Input generation": "input",
    "Input preprocessing": "client_preprocess_input",
    "Input encryption": "client_encode_encrypt_input",
    "Encrypted computation": "server_encrypted_compute",
    "Result decryption": "client_decrypt_decode",
    "Result postprocessing": "client_postprocess",
    "Harness: Run inference for harness plaintext model": "model",
}
"""The harness's names of the steps, and the stage or the part of :mod:`clear_side` that runs."""


class Measured(NamedTuple):
    """What a step took.

    Attributes:
        seconds: wall-clock time of its process.
        memory: the most that the process held, in bytes.
    """

    seconds: float
    memory: int


def install(program: atlasc.Program, folder: Path) -> None:
    """Put the stages and the two parts of the program into the harness's folder.

    Raises:
        AtlasError: a part cannot be written.
    """
    places = Places.of(SIZE, folder)
    for part, place in (("server", places.server), ("client", places.client)):
        shutil.rmtree(place, ignore_errors=True)
        place.parent.mkdir(parents=True, exist_ok=True)
        program.save(place, "server" if part == "server" else "client")
    submissions = folder / "submissions"
    submissions.mkdir(exist_ok=True)
    for stage in STAGES:
        shutil.copyfile(stages.__file__, submissions / f"{stage.__name__}.py")


def run_sequence(folder: Path, source: Path, count: int) -> tuple[dict[str, Any], Path]:
    """Run all steps on ``count`` pairs of a source (see :mod:`clear_side`).

    Returns:
        the harness's record, with a further member "Peak Memory"; and its file.

    Raises:
        SystemExit: a step failed; what it wrote stands above.
    """
    folder = folder.resolve()  # the steps run in it
    places = Places.of(SIZE, folder)
    shutil.rmtree(places.io, ignore_errors=True)
    places.io.mkdir(parents=True)
    measured = {}
    for name, what in STEPS.items():
        print(f"[harness] {name}", flush=True)
        measured[name] = timed(command(folder, what, source, count), folder, name)
    record = record_of(places, measured, source.name)
    path = folder / "measurements" / places.io.name / "results-1.json"
    path.parent.mkdir(parents=True, exist_ok=True)
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
    timing = {name: f"{one.seconds:.4f}s" for name, one in measured.items()}
    timing["Total"] = f"{sum(one.seconds for one in measured.values()):.4f}s"
    sizes = {
        "Public and evaluation keys": places.io / "public_keys",
        "Packed model weights": places.server.parent,
        "Encrypted input": places.io / "ciphertexts_upload",
        "Encrypted results": places.io / "ciphertexts_download",
    }
    reported = json.loads((places.io / "server_reported_steps.json").read_text(encoding="utf-8"))
    labels = places.pairs.with_name(LABELS)
    classes = {"Encrypted model": places.predictions, "Harness model": clear_classes(places)}
    return {
        "model_name": name,
        "dataset_name": name,
        "Timing": timing,
        "Bandwidth": {name: readable(folder_bytes(path)) for name, path in sizes.items()},
        "Quality": {f"{name} quality": quality(labels, path) for name, path in classes.items()},
        "Server Reported": {name: f"{seconds}s" for name, seconds in reported.items()},
        "Peak Memory": {name: readable(one.memory) for name, one in measured.items()},
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
    """Bytes of all files of a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def readable(size: float) -> str:
    """Bytes in the harness's form: 1.5K."""
    for unit in "BKMG":
        if size < 1024:
            return f"{size:.1f}{unit}"
        size /= 1024
    return f"{size:.1f}T"
