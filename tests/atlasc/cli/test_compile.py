"""compile, and the mistakes that a user can make with it and with the stages before it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from html_page import HtmlPage

import atlasc
from atlasc.targets import find_target
from tests.atlasc.cli.command import DATA, MODEL, Outcome, refused, run

BUDGET = (
    "--strategy",
    "atlas{population=8,generations=1,layer-population=8,layer-generations=1}",
)


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Outcome]:
    folder = tmp_path_factory.mktemp("compile") / "bundle"
    outcome = run(
        "compile",
        MODEL,
        "--data",
        DATA,
        "--target",
        "sim",
        "--max-error",
        10,
        *BUDGET,
        "-o",
        folder,
    )
    return folder, outcome


def test_compile_by_search(searched: tuple[Path, Outcome]) -> None:
    folder, outcome = searched
    manifest = json.loads((folder / "manifest.json").read_text())
    front = json.loads((folder / "front.json").read_text())
    assert manifest["settings"]["budget"]["population"] == 8 and "name" not in manifest
    chosen = [p for p in front["front"] if p["settings"] == manifest["settings"]["layers"]]
    assert [p["error"] for p in chosen] == [manifest["settings"]["error"]]
    for word in ("levels", "bootstraps", "GiB", "security", str(folder), "next: atlasc run"):
        assert word in outcome.out
    assert manifest["costs"]["depth"] == chosen[0]["depth"]


def test_inspect_of_a_bundle_agrees_with_its_manifest(searched: tuple[Path, Outcome]) -> None:
    costs = json.loads((searched[0] / "manifest.json").read_text())["costs"]
    found = json.loads(run("inspect", searched[0], "--json").out)
    assert {key: found[key] for key in costs} == costs


def test_report_is_one_whole_page(searched: tuple[Path, Outcome]) -> None:
    text = (searched[0] / "report.html").read_text(encoding="utf-8")
    page = HtmlPage(text)
    assert page.fetched == []
    assert not {"link", "script", "iframe"} & {tag for tag, _ in page.tags}
    assert page.open == []
    assert "url(" not in text
    classes = [known.get("class") for _, known in page.tags]
    assert classes.count("chart") == 1 and {"bar", "span", "mark good"} <= set(classes)
    words = " ".join(page.words)
    for part in (
        "vit.layers.0.attention",
        "bits of security",
        "This program is point",
        "held-back",
        "GiB",
    ):
        assert part in words
    assert not re.search(r"\bnan\b|\binf\b|None", words)


def test_compile_by_recipe(tmp_path: Path) -> None:
    out = tmp_path / "bundle"
    options = ("--recipe", "is", "--target", "sim", "--name", "digits-2.0")
    outcome = run("compile", MODEL, "--data", DATA, *options, "-o", out)
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["settings"]["recipe"] == "is" and manifest["name"] == "digits-2.0"
    assert ("name", "digits-2.0") in atlasc.load(out).summary()
    assert manifest["settings"]["error"] < 1e-4
    assert manifest["costs"]["depth"] == 101
    assert manifest["costs"]["levels"] == 64  # 79 by degrees: GELU and norms have fewer terms
    assert not (out / "front.json").exists()
    assert "settings: is" in outcome.out


def test_output_that_exists_is_refused_before_any_work(tmp_path: Path) -> None:
    # The model is missing too: the output is looked at first.
    message = refused("compile", tmp_path / "no", "--data", "no", "-o", tmp_path)
    assert "exists already" in message
    assert list(tmp_path.iterdir()) == []


def compile_refused(tmp_path: Path, *arguments: object, model: object = MODEL) -> str:
    before = sorted(tmp_path.iterdir())
    message = refused("compile", model, *arguments, "--target", "sim", "-o", tmp_path / "out")
    assert sorted(tmp_path.iterdir()) == before
    return message


def test_bad_models(tmp_path: Path) -> None:
    data = ("--data", DATA)
    assert "not found" in compile_refused(tmp_path, *data, model=tmp_path / "missing")
    assert "is empty" in compile_refused(tmp_path, *data, model=tmp_path)
    pickled = tmp_path / "model.pt"
    import torch

    torch.save(torch.nn.Linear(2, 2), pickled)
    message = compile_refused(tmp_path, *data, model=pickled)
    assert "pickle" in message
    assert "--trust-pickle" in message


def test_bad_data(tmp_path: Path) -> None:
    assert "not found" in compile_refused(tmp_path, "--data", tmp_path / "no.npz")
    text = tmp_path / "texts.txt"
    text.write_text("a text for a model of images\n")
    assert "pixel_values" in compile_refused(tmp_path, "--data", text)
    wrong = tmp_path / "wrong.npz"
    np.savez(wrong, pixel_values=np.zeros((2, 3, 8, 8), np.float32))
    assert "pixel_values" in compile_refused(tmp_path, "--data", wrong)
    np.savez(wrong, pixel_values=np.full((2, 1, 8, 8), np.nan, np.float32))
    assert "finite" in compile_refused(tmp_path, "--data", wrong)
    other = tmp_path / "data.xlsx"
    other.write_text("1,2\n")
    assert "unknown format" in compile_refused(tmp_path, "--data", other)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--recipe", "wrong"), "no recipe 'wrong'"),
        (("--strategy", "wrong"), "no search strategy 'wrong'"),
        (("--recipe", "is", "--strategy", "atlas"), "exclude each other"),
        (("--strategy", "atlas{population=1}"), "population"),
        (("--ranges", "measured{held-back=1.5}"), "held-back of --ranges"),
        (("--recipe", "is", "--max-error", 1e-12), "the recipe is has depth 101"),
        (("--recipe", "thor", "--max-levels", 40), "the recipe thor has depth"),
    ],
)
def test_bad_options(arguments: tuple[object, ...], message: str, tmp_path: Path) -> None:
    assert message in compile_refused(tmp_path, "--data", DATA, *arguments)


@pytest.mark.parametrize("option", ["--point", "--batch", "--max-depth", "--max-error"])
def test_numbers_below_the_least(option: str, tmp_path: Path) -> None:
    outcome = Outcome(("compile", MODEL, "--data", DATA, option, -1, "-o", tmp_path / "out"))
    assert outcome.code == 2 and not (tmp_path / "out").exists()
    assert f"Invalid value for '{option}'" in outcome.err


def test_unknown_target(tmp_path: Path) -> None:
    out = tmp_path / "out"
    message = refused("compile", MODEL, "--data", DATA, "--target", "gpu", "-o", out)
    assert "no target 'gpu'" in message


def test_interrupt_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("atlasc.compilation.compile.write_bundle", interrupted)
    arguments = ("compile", MODEL, "--data", DATA, "--recipe", "is", "--target", "sim")
    outcome = Outcome((*arguments, "-o", tmp_path / "out"), None)
    assert outcome.code == 130
    assert "interrupted" in outcome.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("command", "suffix"), [("trace", ".air"), ("calibrate", ".json")])
def test_places_of_files_are_checked_first(command: str, suffix: str, tmp_path: Path) -> None:
    data = ("--data", "no") if command == "calibrate" else ()
    wrong = tmp_path / "out.txt"
    assert suffix in refused(command, tmp_path / "no", *data, "-o", wrong)
    assert "is a folder" in refused(command, tmp_path / "no", *data, "-o", tmp_path)
    deep = tmp_path / "a" / f"out{suffix}"
    assert "does not exist" in refused(command, tmp_path / "no", *data, "-o", deep)
    assert list(tmp_path.iterdir()) == []


def test_compile_warns_of_a_machine_that_cannot_run_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from atlasc.ir.errors import AtlasError

    def missing() -> None:
        raise AtlasError("desilofhe is not installed", remedy="install it")

    monkeypatch.setattr(find_target("desilo"), "check", missing)
    monkeypatch.setattr("atlasc.targets.machine.available_bytes", lambda: 2**30)
    arguments = ("compile", MODEL, "--data", DATA, "--recipe", "is", "--target", "desilo")
    outcome = run(*arguments, "-o", tmp_path / "out")
    assert "warning: desilofhe is not installed" in outcome.err
    assert "1.0 GiB are free" in outcome.err
    assert (tmp_path / "out" / "manifest.json").is_file()
