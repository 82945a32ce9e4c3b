"""``atlasc evaluate``: table, JSON and page; labels that do not match."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from html_page import HtmlPage
from tiny_model import Tiny

from tests.atlasc.cli.command import DATA, MODEL, refused, run

TEST = Path(DATA).parent / "test.npz"


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Digits under the recipe `is`."""
    folder = tmp_path_factory.mktemp("evaluate") / "bundle"
    run("compile", MODEL, "--data", DATA, "--recipe", "is", "--target", "sim", "-o", folder)
    return folder


def test_accuracy_agreement_and_worst_inputs(bundle: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    arguments = ("evaluate", bundle, "--input", TEST, "--count", 60)
    shown = run(*arguments, "--simulated", 2, "-o", page).out
    for words in ("polynomials", "packed simulation", "furthest from the model", "promised"):
        assert words in shown
    found = json.loads(run(*arguments, "--json").out)
    assert found["measure"] == "class" and found["inputs"] == 60
    stages = {row["stage"]: row for row in found["figures"]}
    assert list(stages) == ["model", "polynomials", "simulation"]
    assert 0.9 < stages["model"]["accuracy"] == found["accuracy"]
    low, high = stages["polynomials"]["accuracy_interval"]
    assert low < found["accuracy"] < high
    assert found["agreement"] == 1 and stages["simulation"]["divergence"] < 1e-6
    assert not found["unsafe"] and len(found["worst"]) == 10
    written = HtmlPage(page.read_text(encoding="utf-8"))
    assert written.open == written.fetched == []
    assert "95% confidence intervals" in "".join(written.words)
    assert f"{found['accuracy']:.2%}" in "".join(written.words)


def test_unsafe_inputs_are_counted_and_named(tiny: Tiny, wild: Path) -> None:
    shown = run("evaluate", tiny.bundle, "--input", wild).out
    assert "wild.npz[1]" in shown and "1 of 3 inputs are" in shown


def test_labels_of_another_model_are_refused(bundle: Path, tmp_path: Path) -> None:
    with np.load(TEST) as file:
        pixels = file["pixel_values"][:3]
    data = tmp_path / "images.npz"
    np.savez(data, pixel_values=pixels, labels=np.array([10, 11, 12]))
    message = refused("evaluate", bundle, "--input", data)
    assert "the labels do not match the model" in message
    assert "images.npz[0]: the model has no class 10; it has 0 to 9" in message
    np.savez(data, pixel_values=pixels, labels=np.array([1, 11, 12]))
    outcome = run("evaluate", bundle, "--input", data)
    assert "2 inputs have no usable label" in outcome.err
    np.savez(data, pixel_values=pixels)
    assert "the inputs have no labels" in run("evaluate", bundle, "--input", data).err
