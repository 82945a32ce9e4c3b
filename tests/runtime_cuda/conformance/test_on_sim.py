"""The conformance suite of engines, on the simulation."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from cpp_build import OPTIMISED, ROOT, Builder, require_compiler

from atlasc.emit.parameter_set import parameter_set
from atlasc.program.counting_engine import COST_KINDS
from atlasc.targets.cost_table import load

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory, cpp: Builder) -> Path:
    """The folder of the executables."""
    require_compiler()
    return cpp.cmake(HERE, tmp_path_factory.mktemp("conformance"), OPTIMISED)


def require_good(command: list[Path | str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("ok    ") == len(done.stdout.splitlines()) > 20


@pytest.mark.parametrize("arguments", [("12", "6", "1"), ("12", "3", "2")])
def test_conformance(programs: Path, arguments: tuple[str, ...]) -> None:
    require_good([programs / "conformance", "leveled", *arguments])


@pytest.mark.parametrize("algorithm", [False, True])
def test_bootstrapped_conformance(
    programs: Path, algorithm: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if algorithm:
        monkeypatch.setenv("ATLASC_SIM_BOOTSTRAP", "algorithm")
    path = tmp_path / "set"
    path.write_bytes(parameter_set("fourteen_levels", 12, (1, 32)))
    require_good([programs / "conformance", "bootstrapped", path])


def test_usage(programs: Path) -> None:
    done = subprocess.run([programs / "conformance", "leveled"], capture_output=True, text=True)
    assert done.returncode == 2
    assert "LOG_DEGREE" in done.stderr


def test_what_the_benchmark_measures_makes_a_cost_table(programs: Path, tmp_path: Path) -> None:
    command = [programs / "primitives", "none", "1", "leveled", "14", "4", "1"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    measured, made = tmp_path / "measured.json", tmp_path / "table.json"
    measured.write_text(done.stdout)
    words = ["-m", "benchmarks.engine.table", measured, "-o", made]
    subprocess.run([sys.executable, *words], cwd=ROOT, check=True)
    table = load(made)
    assert table.backend == "sim"
    [found] = table.sets
    assert set(found.seconds["mul"]) == {1, 2, 4}
    assert set(COST_KINDS) <= {*found.seconds, "bootstrap", "bootstrap_one", "bootstrap_narrow"}
    again = subprocess.run(
        [sys.executable, *words[:2], measured, programs.parent / "none.json", "-o", made],
        capture_output=True, text=True, cwd=ROOT,
    )  # fmt: skip
    assert again.returncode == 1 and "none.json" in again.stderr
