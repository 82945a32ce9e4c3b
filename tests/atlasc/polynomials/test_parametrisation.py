"""What the integers of a setting stand for."""

from __future__ import annotations

import json

import pytest

from atlasc.ir.errors import AtlasError
from atlasc.ir.files import parse_json
from atlasc.polynomials.parametrisation import (
    DEGREES,
    DIRECT,
    EXACT,
    ITERATIVE,
    PAPER,
    PRESETS,
    SWITCHES,
    WIDE,
    Parametrisation,
)


def test_the_paper_has_eight_integers_that_are_exponents() -> None:
    assert PAPER.variables == len(PAPER.lower) == len(PAPER.upper) == 8
    assert PAPER.upper == (7, 7, 7, 7, 7, 9, 9, 9)
    assert [PAPER.degree(p) for p in range(1, 10)] == [2**p - 1 for p in range(1, 10)]


def test_ladders_rise_and_hold_the_most_of_each_level() -> None:
    for ladder in DEGREES.values():
        assert list(ladder) == sorted(set(ladder))
    assert set(DEGREES["powers"]) < set(DEGREES["any"])


@pytest.mark.parametrize("degrees", DEGREES)
def test_bounds_stay_on_the_ladder(degrees: str) -> None:
    space = Parametrisation(degrees=degrees, softmax_algorithms="any")
    assert space.variables == len(space.lower) == len(space.upper) == 9
    assert space.degree(space.upper[5]) == DEGREES[degrees][-1]
    assert space.degree(space.upper[0]) <= 127
    for rung in (0, -1, space.upper[5] + 1):
        with pytest.raises(AtlasError, match="there is no polynomial number"):
            space.degree(rung)


@pytest.mark.parametrize("name", PRESETS)
def test_json_round_trip(name: str) -> None:
    space = PRESETS[name]
    assert parse_json(json.dumps(space.to_dict()), Parametrisation) == space


def test_mistakes_name_the_switch() -> None:
    for name in SWITCHES:
        with pytest.raises(AtlasError, match=name.replace("_", "-")):
            Parametrisation(**{name: "best"})
    with pytest.raises(ValueError, match="fit: "):
        parse_json('{"fit": "weighted"}', Parametrisation)
    assert parse_json("{}", Parametrisation) == PAPER


def test_canonical_form_with_a_choice_of_algorithms() -> None:
    def canonical(*integers: int) -> tuple[int, ...]:
        return WIDE.canonical(integers)

    assert canonical(5, 4, 0, 3, 0, 2, 3, 4, ITERATIVE) == (5, 4, 0, 0, 0, 2, 3, 4, 0)
    assert canonical(5, 4, 0, 3, 0, 2, 3, 4, DIRECT) == (5, 4, 0, 0, 0, 2, 3, 4, 1)
    assert canonical(5, 0, 7, 3, 0, 2, 3, 4, DIRECT) == (5, 1, 0, 0, 0, 2, 3, 4, 1)
    exact = canonical(EXACT, 0, 7, 3, 0, 2, EXACT, 4, DIRECT)
    assert exact == (EXACT, EXACT, EXACT, EXACT, EXACT, 2, EXACT, 4, 0)
    with pytest.raises(AtlasError, match="softmax algorithm number 4"):
        canonical(5, 4, 0, 3, 0, 2, 3, 4, 4)
    with pytest.raises(AtlasError, match="9 integers, not 8"):
        canonical(5, 4, 0, 3, 0, 2, 3, 4)
