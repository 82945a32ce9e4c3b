"""Valid files that several readers start from, made once a run."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

HELPERS = Path(__file__).parents[1]
LENGTH = 3000
"""Characters of a text at most: longer ones are slower to read and not more interesting."""


@cache
def random_programs(level: str, count: int = 40) -> tuple[str, ...]:
    """Texts of random modules, the same each time."""
    from hypothesis import HealthCheck, Phase, given, settings

    sys.path.insert(0, str(HELPERS / "ir"))
    from random_modules import modules

    from atlasc.ir.printer import print_module

    texts: list[str] = []

    @settings(
        max_examples=5 * count, database=None, derandomize=True, deadline=None,
        phases=[Phase.generate], suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(modules())
    def collect(module) -> None:  # type: ignore[no-untyped-def]
        text = print_module(module)
        if module.level == level and len(text) < LENGTH and len(module.ops) > 2:
            texts.append(text)

    collect()
    return tuple(dict.fromkeys(texts))[:count]


@cache
def tiny() -> Path:
    """A folder with tiny.pt2, images.npz and a bundle for each target, made in another process."""
    folder = Path(tempfile.mkdtemp(prefix="atlasc-fuzz-tiny-"))
    here = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-m", "tests.fuzz.seeds", folder], check=True, env=here)
    return folder


if __name__ == "__main__":
    sys.path.insert(0, str(HELPERS / "helpers"))
    from tiny_model import make_tiny

    root = Path(sys.argv[1])
    (root / "desilo").mkdir()
    make_tiny(root / "desilo", "desilo")
    make_tiny(root, "sim")
