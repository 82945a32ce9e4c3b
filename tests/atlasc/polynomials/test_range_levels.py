"""Levels of polynomials that cover a range."""

from __future__ import annotations

import warnings

from atlasc.polynomials.range_levels import HIGHEST_LEVEL, levels_of_inverse_root


def test_a_wider_range_takes_more_levels_and_no_range_warns() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # numpy divides by the lower end, rounded to 0
        found = [levels_of_inverse_root(0.5, 0.5 * factor) for factor in (1, 1.5, 10, 1e3, 1e18)]
    assert found == sorted(found) and found[0] == 1 and found[-1] == HIGHEST_LEVEL
