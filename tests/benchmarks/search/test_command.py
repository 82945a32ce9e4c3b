"""The benchmark's command: the ablation's table and the study's, on the digits."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.atlasc.cli.command import DATA, MODEL, ROOT


def benchmark(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks.search", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.deep("benchmarks")
def test_both_parts_print_and_write_their_results(tmp_path: Path) -> None:
    arguments = (
        "--model", MODEL, "--data", DATA, "--out", tmp_path, "--threads", 1,
        "--strategies", "random,atlas", "--evaluations", "random=8,atlas=8",
        "--study-inputs", 5, "--study-settings", 3,
    )  # fmt: skip
    done = benchmark(*arguments)
    assert done.returncode == 0, done.stderr
    assert "hypervolume" in done.stdout and "Spearman" in done.stdout
    runs = json.loads((tmp_path / "summary.json").read_text())["runs"]
    assert [(run["strategy"], run["evaluations"]) for run in runs] == [("random", 8), ("atlas", 8)]
    study = json.loads((tmp_path / "study.json").read_text())
    assert [s["inputs"] for s in study["subsets"]] == [1, 2, 5]
    assert study["subsets"][-1] == study["early_layers"][-1]
    for name in ("hypervolume.png", "study.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")


def test_unknown_names_are_refused(tmp_path: Path) -> None:
    assert "there is no strategy 'best'" in benchmark("--strategies", "best").stderr
    assert "belong together" in benchmark("--model", MODEL).stderr
    assert "is not ablation, study" in benchmark("--parts", "all").stderr
