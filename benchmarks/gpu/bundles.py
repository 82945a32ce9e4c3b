"""What parts read, made ahead on any machine: parameter sets, and compiled programs.

    python -m benchmarks.gpu --prepare [--whole]

writes them; what is there is kept. Parts read them without atlasc, but for the text.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.gpu.commands import output_of
from benchmarks.gpu.outcome import Failed, Skipped
from benchmarks.gpu.results import ROOT

SET = "fifteen_levels_40"
"""The parameter set of the target ``cuda``."""
PROMPT, TOKENS = "If the file does not exist,", 4
LIMIT = 3600
REMEDY = "where atlasc is installed: make gpu GPU_ARGS=--prepare; then copy the folder of bundles"


def python(*words: object, limit: float = LIMIT) -> str:
    """What a module of this repository prints.

    Raises:
        Failed: it says why.
    """
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {"PYTHONPATH": os.pathsep.join(paths), "PYTHONUNBUFFERED": "1"}
    return output_of([sys.executable, "-m", *words], limit, environment=environment)


def parameter_set(bundles: Path, log_degree: int) -> Path:
    """The file of the set at a ring degree, which is made if it is not there.

    Raises:
        Skipped: it is not there, and atlasc is not either.
    """
    path = bundles / f"{SET}-{log_degree}.safetensors"
    if not path.exists():
        bundles.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(".draft")
        words = ("--set", SET, "--log-degree", log_degree, "--copies", 1, 32)
        try:
            python("atlasc.emit.parameter_set", draft, *words, limit=120)
        except Failed as failed:
            draft.unlink(missing_ok=True)
            raise Skipped(f"{path} is not there, and cannot be made: {failed}; {REMEDY}") from None
        draft.replace(path)
    return path


def bundle(bundles: Path, name: str) -> Path:
    """The folder of a compiled program.

    Raises:
        Skipped: it is not there.
    """
    path = bundles / name
    if not path.is_dir():
        whole = " --whole" if name == "bert-base" else ""
        raise Skipped(f"{path} is not there; {REMEDY.replace('--prepare', '--prepare' + whole)}")
    return path


def prepare(bundles: Path, whole: bool, say: Callable[[str], None] = print) -> None:
    """Write all that is not there.

    Raises:
        Failed: a program could not be compiled.
        Skipped: atlasc is not there.
    """
    for log_degree in (11, 16):
        say(str(parameter_set(bundles, log_degree)))
    names = [name for name in PROGRAMS if whole or name != "bert-base"]
    for name in names:
        if not (bundles / name).is_dir():
            say(f"{bundles / name}: compiling")
            with TemporaryDirectory(dir=bundles, prefix="draft-") as scratch:
                made = Path(scratch) / "made"
                made.mkdir()
                PROGRAMS[name](Path(scratch), made)
                made.rename(bundles / name)
        say(str(bundles / name))


def _compile(model: Path, data: Path, folder: Path, *options: object) -> Path:
    place = folder / "bundle"
    always = ("--recipe", "is", "--target", "cuda", "--quiet")
    python("atlasc", "compile", model, "--data", data, *always, *options, "-o", place)
    return place


def _keep(place: Path, data: Path, made: Path) -> None:
    """Of a bundle what its two programs in C++ read, and the answer by its polynomials."""
    python("benchmarks.gpu.expected", place, data, made)
    for part in ("client/interface.safetensors", "server/program.safetensors"):
        shutil.copyfile(place / part, made / Path(part).name)


def _digits(scratch: Path, made: Path) -> None:
    folder = ROOT / "examples" / "digits_vit"
    place = _compile(folder / "model", folder / "calibration.npz", scratch)
    _keep(place, folder / "test.npz", made)


def _bert(layers: int) -> Callable[[Path, Path], None]:
    def write(scratch: Path, made: Path) -> None:
        python("benchmarks.gpu.expected", "--shape", layers, scratch)
        data = scratch / "calibration.jsonl"
        place = _compile(scratch / "model", data, scratch, "--sequence-length", 128)
        _keep(place, scratch / "test.jsonl", made)

    return write


def _text(scratch: Path, made: Path) -> None:
    example = ROOT / "examples" / "tiny_llama"
    texts = scratch / "texts.txt"
    output_of([sys.executable, example / "corpus.py", texts, "--count", 60], LIMIT)
    options = ("--sequence-length", 64, "--generate")
    place = _compile(example / "model", texts, scratch, *options)
    shutil.rmtree(place / "project")  # which the text does without
    place.rename(made / "bundle")
    expected = python("benchmarks.gpu.text", "expected", example / "model")
    (made / "expected.json").write_text(json.dumps(json.loads(expected)), encoding="utf-8")


PROGRAMS: dict[str, Callable[[Path, Path], None]] = {
    "digits": _digits,
    "text": _text,
    "bert-layer": _bert(1),
    "bert-base": _bert(12),
}
"""Name -> writes it, from a scratch folder."""
