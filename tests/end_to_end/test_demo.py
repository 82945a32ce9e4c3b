"""The demo of the README, on the simulator: the table, the verdict, the exit code."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from typer.testing import CliRunner

from atlasc_comparisons.desilo import library as desilo_library

FILE = Path(__file__).parents[2] / "examples" / "digits_vit" / "demo.py"


@pytest.fixture(scope="module")
def demo() -> ModuleType:
    spec = importlib.util.spec_from_file_location("digits_demo", FILE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_all_answers_are_right(demo: ModuleType) -> None:
    result = CliRunner().invoke(demo.app, ["--target", "sim", "--images", "4"])
    assert result.exit_code == 0, result.stderr
    for text in ("true label", "encrypted answer", "logit difference", "levels", "bootstraps"):
        assert text in result.stdout
    assert "4 of 4" in result.stdout
    assert "\\n" not in result.stdout  # the lines of the drawings are lines


def test_a_wrong_answer_is_exit_code_1(demo: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    recognise = demo.recognise

    def spoilt(*arguments: object) -> object:
        answer = recognise(*arguments)
        answer.outputs["logits"][1] += 0.02
        return answer

    monkeypatch.setattr(demo, "recognise", spoilt)
    result = CliRunner().invoke(demo.app, ["--target", "sim", "--images", "2"])
    assert result.exit_code == 1
    assert "2 of 2" in result.stdout  # all answers, but a logit differs by more than 1e-2


def test_a_missing_library_is_explained(demo: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(desilo_library.importlib.metadata, "version", missing)
    result = CliRunner().invoke(demo.app, ["--target", "desilo"])
    assert result.exit_code == 2
    assert "pip install desilofhe==1.17.0" in result.stderr


def test_a_drawing_has_the_pixels_of_the_image(demo: ModuleType) -> None:
    pixels = np.zeros((8, 8))
    assert demo.drawing(pixels) == "\u2800" * 4 + "\n" + "\u2800" * 4
    pixels[0, 0] = pixels[7, 7] = 1
    assert demo.drawing(pixels) == "\u2801\u2800\u2800\u2800\n\u2800\u2800\u2800\u2880"
