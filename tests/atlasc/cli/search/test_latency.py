"""``--cost latency``: bootstraps and settings for the least predicted seconds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from atlasc.targets import find_target
from tests.atlasc.cli.command import DATA, MODEL, refused, run


def test_a_recipe_is_placed_for_the_least_seconds(tmp_path: Path) -> None:
    seconds = []
    for cost in ((), ("--cost", "latency")):
        out = tmp_path / "-".join(("out", *cost[1:]))
        run("compile", MODEL, "--data", DATA, "--recipe", "is", "--target", "sim", *cost, "-o", out)
        manifest = json.loads((out / "manifest.json").read_text())
        seconds.append(manifest["costs"]["seconds"])
    assert seconds[1] <= seconds[0]


SEARCH = ("--strategy", "atlas{evaluations=40}")


@pytest.mark.deep("search")
def test_a_limit_of_seconds_is_kept(tmp_path: Path) -> None:
    folder = tmp_path / "front"
    run("search", MODEL, "--data", DATA, "--cost", "latency", *SEARCH, "-o", folder)
    points = json.loads((folder / "front.json").read_text())["front"]
    limit = points[len(points) // 2]["seconds"]
    within = min(point["error"] for point in points if point["seconds"] <= limit)
    arguments = ("compile", MODEL, "--data", DATA, "--target", "sim", "-o", tmp_path / "out")
    run(*arguments, "--front", folder, "--max-seconds", limit)
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    settings = manifest["settings"]
    assert settings["error"] == within and settings["seconds"] <= limit
    # The memory is that of the dearest point of the same parameters.
    memory = manifest["costs"]["memory_bytes"]
    assert settings["memory_bytes"] == pytest.approx(memory, rel=0.25)
    assert "GiB" in (folder / "front.html").read_text(encoding="utf-8")
    refusal = refused(*arguments[:-1], tmp_path / "two", *SEARCH, "--max-seconds", 1)
    assert "no setting on the front has 1 predicted seconds or less" in refusal


def test_a_limit_of_seconds_wants_predictions(tmp_path: Path) -> None:
    folder = tmp_path / "front"
    run("search", MODEL, "--data", DATA, "--cost", "depth", *SEARCH, "-o", folder)
    front = json.loads((folder / "front.json").read_text())
    for point in front["front"]:
        del point["seconds"]  # as an earlier version wrote it
    (folder / "front.json").write_text(json.dumps(front))
    for arguments, why in (
        (("--front", folder), "the search minimised depth and predicted no seconds"),
        (("--cost", "levels"), "--max-seconds and --cost levels exclude each other"),
        (("--recipe", "is"), "--recipe and --max-seconds exclude each other"),
    ):
        message = refused(
            "compile", MODEL, "--data", DATA, "--target", "sim", *arguments,
            "--max-seconds", 300, "-o", tmp_path / "out",
        )  # fmt: skip
        assert why in message


def test_points_of_a_search_have_their_seconds() -> None:
    arguments = ("search", MODEL, "--data", DATA, "--cost", "latency", *SEARCH)
    found = json.loads(run(*arguments, "--json").out)
    assert found["cost"] == "latency"
    seconds = [point["seconds"] for point in found["front"]]
    assert seconds == sorted(seconds) and seconds


def test_a_target_without_prices_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(find_target("sim"), "has_costs", lambda *_: False)
    arguments = ("--target", "sim", "--cost", "latency", "-o", tmp_path / "out")
    message = refused("compile", MODEL, "--data", DATA, *arguments)
    assert "latencies cannot be predicted for the target sim" in message
