"""Who leaves which range, and by how much answers err."""

from __future__ import annotations

import numpy as np
import pytest

from atlasc.ir.module import Module
from atlasc.ir.scalar_functions import function
from atlasc.ir.text.parser import parse
from atlasc.polynomials.fits.chebyshev_sum import SLACK
from atlasc.simulation.agreement import PROMISED, UNKNOWN, compared
from atlasc.simulation.poly_values import interpret_poly
from atlasc.simulation.watch import (
    KNOWS_MODEL,
    Excess,
    Watch,
    both_answers,
    function_values,
    knows_model,
)

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


def errors_of_answers(module: Module, inputs: dict[str, np.ndarray], watch: Watch) -> np.ndarray:
    """Mean absolute errors [inputs] of the polynomials' answers."""
    return compared(UNKNOWN, module, inputs, *both_answers(module, inputs, watch=watch)).errors


def watched(rows: list[list[float]], inputs: int | None = None, text: str = TEXT) -> Watch:
    module = parse(text)
    module.symbols["c"] = np.array([0.0, 1.0])
    watch = Watch(module, inputs or len(rows))
    with np.errstate(all="ignore"):
        interpret_poly(module, {"x": np.array(rows)}, observe=watch)
    return watch


def test_the_further_end_of_each_input_is_named() -> None:
    watch = watched([[0.0, 1.0], [-2.0, 4.5], [-1.0, 3.0]])
    ((row, excess),) = watch.found
    assert row == 1
    assert excess == Excess("gelu", "blocks.0", 4.5, -1.0, 3.0)
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
    assert [row for row, _ in watch.found] == [1, 2, 3]
    assert watch.exploded.tolist() == [False, True, True, True]
    assert watch.found[0][1].share == np.inf


def test_rows_that_fill_a_batch_are_not_looked_at() -> None:
    assert not watched([[0.0, 0.0], [9.0, 9.0]], 1).found


# --- bootstraps


def test_a_bootstrap_beyond_its_bound_decides() -> None:
    bounded = TEXT.replace("poly.square %y :", "poly.square %y {bound = 0.5} :")
    watch = watched([[0.0, 1.5], [1.0, 3.0], [1.0, 2.0]], text=bounded)
    ((row, excess),) = watch.found
    assert (row, excess.op, excess.reached) == (1, "bootstrap", 1.0)
    assert (excess.low, excess.high, excess.decides) == (-0.5, 0.5, True)
    assert "a value to bootstrap in the model reaches 1, outside [-0.5, 0.5]" in str(excess)


# --- the functions that sums stand for

KNOWN = TEXT.replace('part = "gelu"', 'function = "gelu", interval = [-2.0, 6.0], gain = 3.0')
BY_CHANNEL = TEXT.replace('part = "gelu"', 'function = "gelu", interval = @i')


def functions(text: str, rows: np.ndarray, **symbols: np.ndarray) -> np.ndarray:
    text = text.replace("float64[2]\n", "float64[2]\n  symbol @i : float64[2x2]\n", 1)
    module = parse(text if symbols else text.replace("  symbol @i : float64[2x2]\n", ""))
    module.symbols |= {"c": np.array([0.0, 1.0])} | symbols
    (op,) = [op for op in module.ops if op.name == "poly.chebyshev"]
    found = function_values(op, op.site(module.symbols), rows)
    assert found is not None
    return found


def test_a_function_is_evaluated_where_the_domain_stands_for_its_interval() -> None:
    rows = np.array([[-1.0, 0.5], [3.0, 4.0]])
    own = -2.0 + (rows + 1.0) * 2.0
    assert functions(KNOWN, rows) == pytest.approx(3.0 * function("gelu").numpy(own))


def test_every_channel_has_its_own_interval() -> None:
    rows = np.array([[-1.0, 0.5], [3.0, 4.0]])
    intervals = np.array([[0.0, 4.0], [-5.0, 3.0]])
    found = functions(BY_CHANNEL, rows, i=intervals)
    for channel, (low, high) in enumerate(intervals):
        own = low + (rows[:, channel] + 1.0) * (high - low) / 4.0
        assert found[:, channel] == pytest.approx(function("gelu").numpy(own))


def test_errors_are_differences_from_the_functions() -> None:
    """The sum is the line (x - 1) / 2, the function relu(x); the output is the square."""
    text = TEXT.replace('part = "gelu"', 'function = "relu", interval = [-1.0, 3.0]')
    module = parse(text)
    module.symbols["c"] = np.array([0.0, 1.0])
    rows = np.array([[1.0, 1.0], [3.0, -1.0], [np.inf, 0.0]])
    watch = Watch(module, 3)
    errors = errors_of_answers(module, {"x": rows}, watch)
    assert errors[:2] == pytest.approx([1.0, (abs(1.0 - 9.0) + abs(1.0 - 0.0)) / 2])
    assert np.isinf(errors[2])
    assert [row for row, _ in watch.found] == [2]


def test_padding_tokens_do_not_count() -> None:
    text = """module @m : poly {
      symbol @c : float64[2]
      %x = poly.input {name = "x", shape = [1, 2, 1], side = "server", dtype = "f64"} :
        tensor<1x2x1xf64, server>
      %m = poly.input {name = "mask", shape = [1, 2], side = "public", dtype = "f64"} :
        tensor<1x2xf64, public>
      %y = poly.chebyshev %x {coefficients = @c, domain = [-1.0, 1.0], function = "relu",
        interval = [-1.0, 1.0]} : tensor<1x2x1xf64, server>
      poly.output %y {name = "y"}
    }"""
    module = parse(text)
    module.symbols["c"] = np.array([0.0, 1.0])
    inputs = {"x": np.array([[[0.5], [-1.0]]] * 2), "mask": np.array([[1.0, 0.0], [1.0, 1.0]])}
    errors = errors_of_answers(module, inputs, Watch(module, 2))
    assert errors == pytest.approx([0.0, 0.5])


def test_the_model_is_known_where_every_sum_names_its_function() -> None:
    assert not knows_model(parse(TEXT))
    module = parse(KNOWN)
    assert knows_model(module)
    module.attributes[KNOWS_MODEL] = False  # what compile saw
    assert not knows_model(module)


def test_an_excess_decides_only_where_the_answer_cannot() -> None:
    for text, promised, decides in ((TEXT, True, True), (KNOWN, False, True), (KNOWN, True, False)):
        module = parse(text)
        module.symbols["c"] = np.array([0.0, 1.0])
        if promised:
            module.attributes[PROMISED] = 0.1
        watch = Watch(module, 1)
        interpret_poly(module, {"x": np.array([[9.0, 0.0]])}, observe=watch)
        assert [excess.decides for _, excess in watch.found] == [decides]
