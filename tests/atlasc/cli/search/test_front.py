"""search and compile around a front: columns, targets, a saved front, and what is refused."""

from __future__ import annotations

import html
import json
import math
import re
import shlex
import shutil
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from atlasc.compilation.fronts import with_predictions
from atlasc.compilation.options import TargetOptions
from atlasc.ir.errors import AtlasError
from atlasc.search.front import Front
from atlasc.simulation.agreement import LEAST_AGREEMENT
from tests.atlasc.cli.command import DATA, MODEL, Outcome, refused, run

SEARCH = (
    *("search", MODEL, "--data", DATA, "--cost", "levels"),
    *("--space", "paper{softmax-ranges=measured}"),
)


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Outcome]:
    folder = tmp_path_factory.mktemp("front") / "front"
    live = folder.with_name("live.html")
    strategy = ("--strategy", "atlas{evaluations=150}")
    return folder, run(*SEARCH, *strategy, "-o", folder, "--live", live)


@pytest.fixture(scope="module")
def front(searched: tuple[Path, Outcome]) -> Front:
    return Front.load(searched[0] / "front.json")


def test_points_are_tried_on_held_back_inputs(searched: tuple[Path, Outcome], front: Front) -> None:
    assert front.held_back > 100
    assert front.expert is not None
    assert front.measure == "class"
    useful = [point for point in front.points if point.error < 0.01 * front.variation]
    assert len(useful) >= 3
    for point in front.points:
        assert point.agreement is not None
        agrees = point.agreement >= LEAST_AGREEMENT["class"]
        assert point.trusted("class") == (agrees and not point.unsafe)
    assert not front.points[0].trusted("class")  # its error is as large as the outputs vary
    assert "disagrees with the model" in searched[1].out
    for point in (*useful, front.expert):
        assert point.unsafe == 0 and point.agreement == 1.0
        # Which points there are depends on the processor: a search follows the last bits of errors.
        assert 0.5 < point.held_back_error / point.error < 2
    for words in ("held-back error", "unsafe", f"of {front.held_back} held-back inputs"):
        assert words in searched[1].out
    assert front.facts["seed"] == 0
    assert front.evaluations <= 150
    page = (searched[0] / "front.html").read_text(encoding="utf-8")
    assert f'data-point="{len(front.points) - 1}"' in page
    assert searched[0].with_name("live.html").read_text(encoding="utf-8") == page


def test_a_search_by_levels_predicts_seconds_memory_and_bootstraps(front: Front) -> None:
    seconds = [point.seconds or 0.0 for point in front.points]
    assert min(seconds) > 0 and seconds[-1] > seconds[0]
    assert all(point.memory_bytes for point in front.every_point)
    found = [point.bootstraps for point in front.every_point]
    assert found[0] == 0 and (found[-1] or 0) > 0, "the cheapest needs none, and the recipe some"


def _keep(notes: list[tuple[str, str]], headline: str, details: str) -> None:
    notes.append((headline, details))


def test_points_that_cannot_be_predicted_are_counted(front: Front) -> None:
    def refuse(_: Any) -> Any:
        raise AtlasError("no parameters", why="too many levels")

    objective = SimpleNamespace(approximations=lambda _: frozenset())
    for fastest, why in (
        (refuse, "no parameters: too many levels"),
        (lambda _: (math.inf, None), "cannot be placed"),
    ):
        notes: list[tuple[str, str]] = []
        model = SimpleNamespace(fastest=fastest)
        problem: Any = SimpleNamespace(objective=lambda: objective, target="", latency_model=model)
        found = with_predictions(front, problem, TargetOptions(), note=partial(_keep, notes))
        assert found is front
        [(count, reason)] = notes
        assert f" {len(front.every_point)} points are not predicted" in count
        assert why in reason


def test_fronts_of_several_searches_share_a_chart(
    searched: tuple[Path, Outcome], front: Front, tmp_path: Path
) -> None:
    page = tmp_path / "fronts.html"
    found = json.loads(run("fronts", searched[0], searched[0], "-o", page, "--json").out)
    assert found["cost"] == "levels"
    text = page.read_text(encoding="utf-8")
    assert text.count('class="mark s1"') == len(front.points) + 1  # and one of the legend
    least = [p.levels for p in front.points if p.error <= 0.01 * front.variation]
    assert found["least"][str(searched[0])][1] >= min(least)
    assert "--cost cannot be 'x'" in refused("fronts", searched[0], "-o", "a.html", "--cost", "x")


def test_without_held_back_inputs_the_columns_are_empty() -> None:
    few = ("--strategy", "atlas{evaluations=8}")
    outcome = run(*SEARCH, *few, "--ranges", "measured{held-back=0}", "--json")
    found = json.loads(outcome.out)
    assert found["held_back"] == 0
    assert all("unsafe" not in point for point in found["front"])


def compiled(front: Path, output: Path, *target: object) -> dict:
    """The settings in the manifest."""
    run(
        "compile", MODEL, "--data", DATA, "--front", front, *target, "--target", "sim", "-o", output
    )  # fmt: skip
    manifest = json.loads((output / "manifest.json").read_text())
    ranges = json.loads(
        ((front if front.is_dir() else front.parent) / "calibration.json").read_text()
    )
    assert manifest["calibration"] == ranges
    return manifest["settings"]


def test_compile_picks_from_a_saved_front(
    searched: tuple[Path, Outcome], front: Front, tmp_path: Path
) -> None:
    folder = searched[0]
    limit = front.points[len(front.points) // 2].levels
    settings = compiled(folder, tmp_path / "levels", "--max-levels", limit)
    within = [point for point in front.points if point.levels <= limit]
    assert settings["error"] == min(point.error for point in within)
    assert settings["unsafe"] == 0
    assert settings["held_back"] == front.held_back
    error = front.points[1].error
    both = compiled(
        folder / "front.json", tmp_path / "both", "--max-error", error, "--max-depth", 500
    )
    good = [p for p in front.points if p.error <= error and p.trusted("class")]
    assert both["levels"] == min(point.levels for point in good)


def test_the_page_has_the_command_that_compiles_a_point(
    searched: tuple[Path, Outcome], front: Front, tmp_path: Path
) -> None:
    page = (searched[0] / "front.html").read_text(encoding="utf-8")
    place = max(at for at, point in enumerate(front.points) if point.trusted("class"))
    (text,) = re.findall(rf'<pre id="command-{place}">(.*?)</pre>', page, re.DOTALL)
    program, *words = shlex.split(html.unescape(text))
    assert program == "atlasc" and words[-2] == "-o"
    run(*words[:-1], tmp_path / words[-1], "--target", "sim")
    manifest = json.loads((tmp_path / words[-1] / "manifest.json").read_text())
    assert manifest["settings"]["layers"] == [*map(list, front.points[place].settings)]
    report = (tmp_path / words[-1] / "report.html").read_text(encoding="utf-8")
    assert f"This program is point {place + 1} of {len(front.points)}." in report
    assert "change of an answer" in report, "noise by kind of op"
    assert manifest["model"]["name"] in report


def test_a_point_is_named_alone(
    searched: tuple[Path, Outcome], front: Front, tmp_path: Path
) -> None:
    call = ("compile", MODEL, "--data", DATA, "-o", tmp_path / "out", "--point")
    assert "needs --front" in refused(*call, 1)
    assert "exclude each other" in refused(*call, 1, "--front", searched[0], "--max-error", 0.1)
    absent = len(front.points) + 1
    assert f"no point {absent}" in refused(*call, absent, "--front", searched[0])


def test_a_program_that_is_not_its_model_is_marked_and_calls_no_wrong_answer_safe(
    searched: tuple[Path, Outcome], front: Front, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cheapest point, whose error is as large as the outputs vary. It is refused, unless half
    of the held-back inputs were right; here that does not count.
    """
    bundle = tmp_path / "bundle"
    call = (
        "compile", MODEL, "--data", DATA, "--front", searched[0],
        "--max-levels", front.points[0].levels, "--target", "sim", "-o", bundle,
    )  # fmt: skip
    assert "of no use" in refused(*call)
    monkeypatch.setattr("atlasc.compilation.compile.require", lambda found, limit: None)
    outcome = run(*call)
    assert "of the held-back inputs get the same answer as from the model" in outcome.err
    settings = json.loads((bundle / "manifest.json").read_text())["settings"]
    assert settings["agrees"] is False and settings["agreement"] < LEAST_AGREEMENT["class"]
    assert "disagrees with its model" in (bundle / "report.html").read_text()
    test = Path(DATA).parent / "test.npz"
    found = json.loads(run("evaluate", bundle, "--input", test, "--count", 200, "--json").out)
    assert found["agreement"] < LEAST_AGREEMENT["class"]
    safe = [one for one in found["judged"] if one["verdict"] == "safe"]
    assert all(one["program"] == one["model"] for one in safe)
    assert len(safe) < len(found["judged"]) / 10


@pytest.mark.parametrize("batch", [1, 3])
def test_a_front_serves_every_batch(
    batch: int, searched: tuple[Path, Outcome], front: Front, tmp_path: Path
) -> None:
    """A weight may have another name in the trace of another batch: a ViT's token of the class."""
    error = front.points[1].error
    settings = compiled(searched[0], tmp_path / "batch", "--max-error", error, "--batch", batch)
    assert settings["error"] <= error
    assert json.loads((tmp_path / "batch" / "manifest.json").read_text())["batch"] == batch


def test_compile_warns_where_every_setting_is_left(
    searched: tuple[Path, Outcome], tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(searched[0], tmp_path / "front"))
    data = json.loads((copy / "front.json").read_text())
    for point in data["front"]:
        point |= {"unsafe": 3, "held_back_error": "inf"}
    (copy / "front.json").write_text(json.dumps(data))
    outcome = run(
        "compile", MODEL, "--data", DATA, "--front", copy, "--target", "sim",
        "-o", tmp_path / "bundle",
    )  # fmt: skip
    assert "error inf, 3 are unsafe" in outcome.out
    assert f"3 of {data['held_back']} held-back inputs are unsafe" in outcome.err


def from_front(folder: Path, *arguments: object, model: object = MODEL) -> str:
    return refused(
        "compile", model, "--data", DATA, "--front", folder, *arguments,
        "--target", "sim", "-o", folder.parent / "refused",
    )  # fmt: skip


def test_a_target_out_of_reach_names_the_nearest(searched: tuple[Path, Outcome]) -> None:
    front = Front.load(searched[0] / "front.json")
    message = from_front(searched[0], "--max-error", 1e-12)
    assert f"the nearest has {front.points[-1]}" in message
    message = from_front(searched[0], "--max-levels", 1)
    assert "no setting on the front has levels by formula 1 or less" in message
    assert f"the nearest has {front.points[0]}" in message


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (("--recipe", "is"), "--recipe and --front"),
        (("--strategy", "hybrid{evaluations=9}"), "--front and --strategy"),
        (("--cost", "depth"), "--front and --cost"),
        (("--space", "wide"), "--front and --space"),
        (("--ranges", "measured{margin=0.1}"), "--front and margin of --ranges"),
    ],
)
def test_what_a_saved_front_would_ignore_is_refused(
    searched: tuple[Path, Outcome], arguments: tuple[object, ...], name: str
) -> None:
    assert f"{name} exclude each other" in from_front(searched[0], *arguments)


def test_a_front_of_another_model_or_of_other_ranges_is_refused(
    searched: tuple[Path, Outcome], tmp_path: Path, linear: Path
) -> None:
    assert "belongs to another model" in from_front(searched[0], model=linear)
    copy = Path(shutil.copytree(searched[0], tmp_path / "front"))
    ranges = json.loads((copy / "calibration.json").read_text())
    ranges["ranges"][0]["high"] *= 2
    (copy / "calibration.json").write_text(json.dumps(ranges))
    assert "do not belong together" in from_front(copy)
    (copy / "calibration.json").unlink()
    assert "there is no calibration.json beside" in from_front(copy)
    assert "was not found" in from_front(tmp_path / "nothing")


# --- data and budgets that no search can work with


@pytest.fixture(scope="module")
def linear(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model without any nonlinear op."""
    import torch
    from torch import nn

    class Linear(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.patch, self.classes = nn.Conv2d(1, 8, 4, stride=4), nn.Linear(8, 3)

        def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
            return self.classes(self.patch(pixel_values).flatten(2).transpose(1, 2)[:, 0])

    path = tmp_path_factory.mktemp("linear") / "linear.pt2"
    images = {"pixel_values": torch.rand(1, 1, 8, 8)}
    torch.export.save(torch.export.export(Linear().eval(), (), images, strict=False), path)
    return path


def test_a_model_without_nonlinear_ops(linear: Path, tmp_path: Path) -> None:
    assert "there is nothing to search" in refused("search", linear, "--data", DATA)
    out = tmp_path / "out"
    message = refused("compile", linear, "--data", DATA, "--target", "sim", "-o", out)
    assert "no nonlinear op" in message
    assert "--recipe is" in message
    run("compile", linear, "--data", DATA, "--recipe", "is", "--target", "sim", "-o", out)


@pytest.mark.parametrize("command", ["search", "calibrate"])
def test_too_few_or_equal_inputs(command: str, tmp_path: Path) -> None:
    with np.load(DATA) as file:
        pixels = file["pixel_values"][:1]
    data = tmp_path / "data.npz"
    np.savez(data, pixel_values=pixels)
    assert "has 1 input, but at least 2 are needed" in refused(command, MODEL, "--data", data)
    np.savez(data, pixel_values=np.repeat(pixels, 2, axis=0))
    assert "all 2 inputs of" in refused(command, MODEL, "--data", data)
    np.savez(data, pixel_values=np.zeros((9, *pixels.shape[1:]), np.float32))
    assert "are identical" in refused(command, MODEL, "--data", data)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("--strategy", "atlas{evaluations=7}"),
            "7 evaluations is too small for one generation",
        ),
        (("--strategy", "atlas{evaluations=3}"), "give at least 8 evaluations"),
        (("--strategy", "hybrid{evaluations=0}"), "use 1 or more"),
        (("--strategy", "atlas{population=3}"), "at least 4 settings"),
    ],
)
def test_budgets_too_small(arguments: tuple[object, ...], message: str) -> None:
    # Said before the model is looked at.
    outcome = Outcome(("search", "no such model", "--data", DATA, *arguments), None)
    assert outcome.code == 2
    assert message in outcome.err
