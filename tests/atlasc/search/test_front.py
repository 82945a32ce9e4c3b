"""Fronts: dominance, hypervolume, picking, files."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from atlasc.ir.errors import AtlasError
from atlasc.search.front import Front, Moment, Wanted
from atlasc.search.points import Point, hypervolume, non_dominated

LAYER = (5, 5, 0, 0, 0, 3, 3, 3)
PAIRS = st.lists(st.tuples(st.integers(1, 30), st.integers(0, 30)), max_size=30)


def point(depth: int, error: float, levels: int = 0) -> Point:
    return Point(depth, levels or depth, error, (LAYER,))


def front(*points: tuple[int, float]) -> Front:
    return Front(tuple(point(d, e) for d, e in points), "depth", (100.0, 0.2), 10, 9, 1.5, "atlas")


EXAMPLE = front((40, 0.1), (50, 0.01), (70, 0.001))


def test_a_point_must_keep_every_limit() -> None:
    wanted = Wanted(depth=10, levels=20)
    assert wanted.allows(point(10, 0.1, levels=20))
    assert not wanted.allows(point(11, 0.1, levels=2))
    assert not wanted.allows(point(1, 0.1, levels=21))
    assert wanted.nearest([point(4, 0.1, levels=18), point(8, 0.2, levels=2)]).depth == 8


@given(PAIRS)
def test_the_front_is_what_nothing_dominates(pairs: list[tuple[int, int]]) -> None:
    found = [(p.depth, p.error) for p in non_dominated(point(d, e) for d, e in pairs)]
    expected = {
        p for p in pairs if not any(q != p and q[0] <= p[0] and q[1] <= p[1] for q in pairs)
    }
    assert found == sorted(expected)


def test_invalid_points_are_not_on_the_front() -> None:
    assert non_dominated([point(10, np.inf), point(11, np.nan), point(20, 0.5)]) == [point(20, 0.5)]


def test_levels_can_be_the_cost() -> None:
    deep, flat = point(50, 0.1, levels=30), point(40, 0.2, levels=35)
    assert non_dominated([deep, flat], "levels") == [deep]
    assert non_dominated([deep, flat], "depth") == [flat, deep]


@given(PAIRS)
def test_the_hypervolume_is_that_of_moocore(pairs: list[tuple[int, int]]) -> None:
    moocore = pytest.importorskip("moocore")
    reference = (20.0, 20.0)
    expected = 0.0
    if pairs:
        expected = moocore.hypervolume(np.array(pairs, dtype=float), ref=list(reference))
    assert hypervolume(pairs, reference) * 20.0 == pytest.approx(expected)


def test_a_known_hypervolume() -> None:
    # (100 - 40) (0.2 - 0.1) + (100 - 50) (0.1 - 0.01) + (100 - 70) (0.01 - 0.001), over 100
    assert EXAMPLE.hypervolume == pytest.approx((6 + 4.5 + 0.27) / 100)


def test_a_thinned_front_keeps_its_ends_and_the_cheapest_of_similar_points() -> None:
    whole = front((1, 1.0), (2, 0.99), (3, 0.5), (4, 0.1), (5, 0.099), (6, 0.0985))
    assert whole.thinned(6) is not None and whole.thinned(6).points == whole.points
    assert [p.depth for p in whole.thinned(4).points] == [1, 3, 4, 6]
    errors = np.sort(np.random.default_rng(0).lognormal(sigma=3, size=300))[::-1]
    dense = front(*[(depth, error) for depth, error in enumerate(errors.tolist(), 1)])
    few = dense.thinned(40).points
    assert 35 <= len(few) <= 40
    assert (few[0], few[-1]) == (dense.points[0], dense.points[-1])
    ratios = [first.error / second.error for first, second in pairwise(few[:-1])]
    assert min(ratios) > 1.01


def test_an_empty_front_has_no_hypervolume() -> None:
    assert front().hypervolume == 0


def test_json_round_trip(tmp_path) -> None:
    path = tmp_path / "front.json"
    EXAMPLE.save(path)
    assert Front.load(path) == EXAMPLE
    with_history = replace(EXAMPLE, history=(Moment(10, 1.5, 0.1),))
    with_history.save(path)
    assert Front.load(path) == with_history
    data = json.loads(path.read_text())
    assert data["front"][0] == {
        "depth": 40, "levels": 40, "error": 0.1, "settings": [list(LAYER)]
    }  # fmt: skip
    assert data["evaluations"] == 10


def test_what_was_measured_later_survives_a_file(tmp_path) -> None:
    measured = Point(40, 30, 0.1, (LAYER,), seconds=12.5, held_back_error=np.inf, unsafe=3)
    other = Point(50, 40, 0.01, (LAYER,), unsafe=0)
    both = Front((measured, other), "depth", (100.0, 0.2))
    both.save(tmp_path / "front.json")
    assert Front.load(tmp_path / "front.json") == both

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    json.loads((tmp_path / "front.json").read_text(), parse_constant=refuse)


@pytest.mark.parametrize("text", ["{", "{}", '{"front": [{}]}', '{"front": 3}'])
def test_a_broken_file_is_refused(tmp_path, text: str) -> None:
    path = tmp_path / "front.json"
    path.write_text(text)
    with pytest.raises(AtlasError, match="cannot be read"):
        Front.load(path)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"front"', '"front": [], "front"'),
        ('"strategy"', '"more": 1, "strategy"'),
        ('"cost": "depth"', '"cost": "gold"'),
        ('"depth": 40', '"depth": -1'),
        ('"depth": 40', '"depth": 1e999'),
        ('"depth": 40', '"depth": ' + "9" * 5000),
        ('"error": 0.1', '"error": "none"'),
        ('"error": 0.1', '"error": NaN'),
        ('"error": 0.1', '"error": -1.0'),
        ('"settings": [', '"settings": [[1, 2],'),
        ('"settings": [', '"settings": [[9, 9, 9, 9, 9, 9, 9, 99],'),
        ('"reference": [', '"reference": [0.0,'),
        ('"history": []', '"history": [[1]]'),
        ('"facts": {}', '"facts": {"options": []}'),
        ('"facts": {}', '"facts": ' + "[" * 2000),
        ('"degrees": "powers"', '"degrees": "all"'),
    ],
)
def test_a_front_that_makes_no_sense_is_refused(tmp_path, old: str, new: str) -> None:
    path = tmp_path / "front.json"
    EXAMPLE.save(path)
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(AtlasError):
        Front.load(path)


def test_the_plot_is_a_png(tmp_path) -> None:
    pytest.importorskip("matplotlib")
    EXAMPLE.plot(tmp_path / "front.png")
    front().plot(tmp_path / "empty.png")
    replace(EXAMPLE, expert=point(101, 1e-7)).plot(tmp_path / "expert.png")
    for name in ("front.png", "empty.png", "expert.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("member", ["evaluations", "distinct_evaluations", "seconds", "complete"])
def test_what_a_front_must_say(tmp_path, member: str) -> None:
    path = tmp_path / "front.json"
    Front((), "depth", (100.0, 0.2), strategy="hybrid").save(path)
    assert Front.load(path).strategy == "hybrid"
    values = json.loads(path.read_text())
    del values[member]
    path.write_text(json.dumps(values))
    with pytest.raises(AtlasError, match="cannot be read") as caught:
        Front.load(path)
    assert caught.value.why.startswith(f"{member}: ")
