"""Who leaves the range of which polynomial."""

from __future__ import annotations

import numpy as np
import pytest

from atlasc.ir.text.parser import parse
from atlasc.passes.approximation.fits.chebyshev_sum import SLACK
from atlasc.passes.simulation.poly_values import DomainWatch, Excess, interpret_poly

TEXT = """module @m : poly {
  symbol @c : float64[2]
  %x = poly.input {name = "x", shape = [1, 2], side = "server", dtype = "f64"} :
    tensor<1x2xf64, server>
  %y = poly.chebyshev %x {coefficients = @c, domain = [-1.0, 3.0], part = "gelu"} loc "blocks.0" :
    tensor<1x2xf64, server>
  %z = poly.square %y : tensor<1x2xf64, server>
  poly.output %z {name = "z"}
}
"""


def watched(
    rows: list[list[float]], names: list[str] | None = None, text: str = TEXT
) -> DomainWatch:
    module = parse(text)
    module.symbols["c"] = np.array([0.0, 1.0])
    watch = DomainWatch(module, names or [str(row) for row in range(len(rows))])
    with np.errstate(all="ignore"):
        interpret_poly(module, {"x": np.array(rows)}, observe=watch)
    return watch


def test_the_further_end_of_each_input_is_named() -> None:
    watch = watched([[0.0, 1.0], [-2.0, 4.5], [-1.0, 3.0]], ["a", "b", "c"])
    ((op, excess),) = watch.found
    assert op.name == "poly.chebyshev"
    assert excess == Excess("b", "gelu", "blocks.0", 4.5, -1.0, 3.0)
    assert excess.share == pytest.approx(1.5 / 4)
    assert "reaches 4.5, outside [-1, 3] by 37.5%" in str(excess)
    assert not watch.exploded.any()


def test_rounding_at_an_end_is_no_violation() -> None:
    assert not watched([[-1 - SLACK, 3 + SLACK]]).found
    assert watched([[-1 - 3 * SLACK, 0.0]]).found


def test_a_range_reaches_as_far_as_the_sum_is_right() -> None:
    wider = TEXT.replace("domain = [-1.0, 3.0]", "domain = [-1.0, 3.0], valid = [-1.0, 1.5]")
    assert not watched([[-1.0, 4.0]], text=wider).found
    ((_, excess),) = watched([[-1.0, 4.5]], text=wider).found
    assert (excess.reached, excess.low, excess.high) == (4.5, -1.0, 4.0)
    assert len(watched([[-1.1, 0.0]], text=wider).found) == 1


def test_what_is_not_a_number_leaves_every_range_and_explodes() -> None:
    watch = watched([[0.0, 1.0], [np.nan, 0.0], [np.inf, 0.0], [1e8, 0.0]])
    assert [excess.input for _, excess in watch.found] == ["1", "2", "3"]
    assert watch.exploded.tolist() == [False, True, True, True]
    assert watch.found[0][1].share == np.inf


def test_rows_that_fill_a_batch_are_not_looked_at() -> None:
    assert not watched([[0.0, 0.0], [9.0, 9.0]], ["only"]).found
