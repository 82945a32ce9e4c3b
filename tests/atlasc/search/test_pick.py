"""Picking from a front: limits, held-back inputs, and what is nearest."""

from __future__ import annotations

from dataclasses import replace

import pytest

from atlasc.ir.errors import AtlasError
from atlasc.search.front import Front, Wanted
from atlasc.search.points import Point

LAYER = (5, 5, 0, 0, 0, 3, 3, 3)


def front(*points: tuple[int, float], unsafe: tuple[int | None, ...] = ()) -> Front:
    """Points of (levels, error) at twice the depth."""
    left = unsafe or (None,) * len(points)
    found = tuple(
        Point(2 * levels, levels, error, (LAYER,), unsafe=count)
        for (levels, error), count in zip(points, left, strict=True)
    )
    return Front(found, "levels", (100.0, 0.2), held_back=20)


EXAMPLE = front((40, 0.1), (50, 0.01), (70, 0.001))


@pytest.mark.parametrize(
    ("wanted", "levels"),
    [
        (Wanted(error=0.05), 50),
        (Wanted(error=0.1), 40),
        (Wanted(levels=69), 50),
        (Wanted(levels=70), 70),
        (Wanted(depth=99), 40),
        (Wanted(error=0.05, levels=60), 50),
        (Wanted(error=0.05, depth=140, levels=60), 50),
    ],
)
def test_the_cheapest_within_an_error_or_the_most_accurate_within_a_cost(
    wanted: Wanted, levels: int
) -> None:
    assert EXAMPLE.pick(wanted).levels == levels


@pytest.mark.parametrize(
    ("wanted", "name", "nearest"),
    [
        (Wanted(error=1e-4), "an error of 0.0001 or less", "levels by formula 70, error 0.001"),
        (Wanted(levels=30), "levels by formula 30 or less", "levels by formula 40, error 0.1"),
        (Wanted(levels=0), "levels by formula 0 or less", "levels by formula 40, error 0.1"),
        (
            Wanted(error=0.01, levels=45),
            "error of 0.01 and levels by formula 45",
            "levels by formula 50, error 0.01",
        ),
        (
            Wanted(error=1e-9, depth=10),
            "error of 1e-09 and depth 10",
            "levels by formula 70, error 0.001",
        ),
    ],
)
def test_a_limit_out_of_reach_names_the_nearest_point(
    wanted: Wanted, name: str, nearest: str
) -> None:
    with pytest.raises(AtlasError) as caught:
        EXAMPLE.pick(wanted)
    assert name in caught.value.what
    assert nearest in caught.value.why


def test_points_that_inputs_leave_are_avoided() -> None:
    wild = front((40, 0.1), (50, 0.01), (70, 0.001), unsafe=(3, 2, 0))
    assert wild.pick(Wanted(error=0.1)).levels == 70
    assert wild.pick(Wanted(error=0.1), tolerated=2).levels == 50
    assert wild.pick(Wanted(error=0.1), tolerated=9).levels == 40
    assert wild.pick(Wanted(levels=60)).levels == 50  # there is no other: the fewest
    assert wild.pick(Wanted(error=0.1, levels=45)).unsafe == 3


def test_an_empty_front_or_no_limit_says_so() -> None:
    with pytest.raises(AtlasError, match="no setting that stays finite"):
        front().pick(Wanted(error=1))
    with pytest.raises(AtlasError, match="no limit is given"):
        EXAMPLE.pick(Wanted())


def test_seconds_are_a_cost_like_others() -> None:
    seconds = (300.0, 350.5, 400.0)
    points = tuple(replace(p, seconds=s) for p, s in zip(EXAMPLE.points, seconds, strict=True))
    fast = replace(EXAMPLE, cost="latency", points=points)
    assert fast.pick(Wanted(seconds=399)).levels == 50
    assert fast.pick(Wanted(error=0.1, seconds=399)).levels == 40
    with pytest.raises(AtlasError) as caught:
        fast.pick(Wanted(error=0.05, seconds=310))
    assert "an error of 0.05 and 310 predicted seconds or less" in caught.value.what
    assert "levels by formula 50, error 0.01, 350.5 predicted seconds" in caught.value.why


def test_seconds_that_no_search_predicted_are_refused() -> None:
    with pytest.raises(AtlasError, match="picked by 310 predicted seconds or less") as caught:
        EXAMPLE.pick(Wanted(seconds=310))
    assert "minimised levels and predicted no seconds" in caught.value.why
    assert caught.value.remedy == "search with --cost latency"


def test_a_front_of_depth_is_picked_by_depth() -> None:
    swapped = replace(EXAMPLE, cost="depth", points=EXAMPLE.points[::-1])
    assert swapped.pick(Wanted(error=1)).levels == 40


SHARES = ((0.2, 0.5), (0.99, 0.75), (1.0, 0.74), (None, None))


def test_by_accuracy_or_agreement() -> None:
    """The cheapest that is good enough; unmeasured points pass, those that disagree are avoided."""
    bare = front((40, 0.1), (50, 0.01), (70, 0.001), (90, 0.0001))
    points = tuple(
        replace(point, agreement=agreement, accuracy=accuracy, unsafe=0)
        for point, (agreement, accuracy) in zip(bare.points, SHARES, strict=True)
    )
    found = replace(bare, points=points, labelled=100)
    assert found.pick(Wanted(error=1)).levels == 50
    assert found.pick(Wanted(levels=45)).levels == 40  # there is no other
    assert found.pick(Wanted(agreement=0.1)).levels == 40
    assert found.pick(Wanted(agreement=0.995)).levels == 70
    assert found.pick(Wanted(accuracy=0.75)).levels == 50
    assert found.pick(Wanted(accuracy=0.76)).levels == 90
    assert [point.trusted("class") for point in points] == [False, True, True, True]
    assert [point.trusted("tokens") for point in points] == [False, False, True, True]
    few = replace(found, points=points[:3])
    with pytest.raises(AtlasError, match="the front has an accuracy of 0.76 or more"):
        few.pick(Wanted(accuracy=0.76))
    with pytest.raises(AtlasError, match="error of 0.01 or less and an agreement of 1 or more"):
        replace(few, points=points[:2]).pick(Wanted(error=0.01, agreement=1))
    with pytest.raises(AtlasError, match="can be picked by an accuracy"):
        bare.pick(Wanted(accuracy=0.5))
    with pytest.raises(AtlasError, match="can be picked by an agreement"):
        replace(bare, held_back=0).pick(Wanted(agreement=0.5))
