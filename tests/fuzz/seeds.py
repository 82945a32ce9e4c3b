"""Valid files that several readers start from, made once a run."""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DIGITS = ROOT / "examples" / "digits_vit"
LENGTH = 3000
"""Characters of a random text at most: longer ones are slower to read and not more interesting."""
SAMPLES = "ATLASC_FUZZ_SAMPLES"
"""Names a folder of :func:`make_samples`, which is read and not made again."""

Seeds = Callable[[Path], Sequence[Path]]


def files(contents: dict[str, str | bytes]) -> Seeds:
    """Seeds that are files with these names."""

    def write(folder: Path) -> list[Path]:
        for name, content in contents.items():
            data = content.encode() if isinstance(content, str) else content
            (folder / name).write_bytes(data)
        return [folder / name for name in contents]

    return write


@cache
def random_programs(count: int = 12) -> dict[str, tuple[str, ...]]:
    """Level -> texts of random modules, the same each time."""
    from hypothesis import HealthCheck, Phase, given, settings

    sys.path.insert(0, str(ROOT / "tests" / "ir"))
    from random_modules import modules

    from atlasc.ir.text.storage import print_module

    texts: dict[str, list[str]] = {level: [] for level in ("nn", "poly", "ckks")}

    @settings(
        max_examples=8 * count, database=None, derandomize=True, deadline=None,
        phases=[Phase.generate], suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(modules())
    def collect(module) -> None:  # type: ignore[no-untyped-def]
        text = print_module(module)
        if len(text) < LENGTH and len(module.ops) > 2:
            texts[module.level].append(text)

    collect()
    return {level: tuple(dict.fromkeys(found))[:count] for level, found in texts.items()}


@cache
def compiled() -> Path:
    """A folder with what another process compiled: see :func:`make_samples`."""
    if SAMPLES in os.environ:
        return Path(os.environ[SAMPLES])
    folder = Path(tempfile.mkdtemp(prefix="atlasc-fuzz-"))
    maker = os.getpid()  # forks inherit what is to be done at exit
    atexit.register(lambda: os.getpid() == maker and shutil.rmtree(folder, ignore_errors=True))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "tests.fuzz.seeds", str(folder)]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return folder


def make_samples(folder: Path, tiny: Path | None = None, decoder: Path | None = None) -> None:
    """Fill a folder.

    - ``tiny``: what :func:`tiny_model.make_tiny` makes for the simulator.
    - ``decoder/bundle``: a decoder with its step and its prefill.
    - ``front``: a front of a search.
    - ``nn.air``: the tiny model as traced.

    Args:
        folder: the folder.
        tiny, decoder: the first two, where another test has made them; nobody changes them.
    """
    for helpers in ("tests/helpers", "plugins"):
        sys.path.insert(0, str(ROOT / helpers))
    from tiny_model import BATCH, Tiny, make_tiny

    from atlasc.compilation.prepare import trace_model
    from atlasc.compilation.source import load_source
    from atlasc.ir.text.storage import print_module

    places = {"tiny": tiny, "decoder": decoder}
    for name, known in places.items():
        if known is None:
            (folder / name).mkdir()
        else:
            (folder / name).symlink_to(known)
    if tiny is None:
        make_tiny(folder / "tiny", "sim")
    if decoder is None:
        from tests.atlasc.generation.conftest import make_decoder

        make_decoder(folder / "decoder")
    made = Tiny.of(folder / "tiny")
    source = load_source(str(made.archive), made.data)
    (folder / "nn.air").write_text(print_module(trace_model(source.model, BATCH)))
    _search(folder / "front")


def _search(folder: Path) -> None:
    """A front of the digits' model, as ``atlasc search`` writes it."""
    from atlasc.cli import app

    words = ("search", DIGITS / "model", "--data", DIGITS / "calibration.npz", "--inputs", 2)
    words += ("--strategy", "atlas{evaluations=8}", "-o", folder, "-q")
    app(list(map(str, words)), standalone_mode=False)


if __name__ == "__main__":
    make_samples(Path(sys.argv[1]))
