"""Approximations on calibrated ranges: room beyond what was seen, and for earlier errors."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from small_transformers import SHAPES, Builder, inputs_for

from atlasc.calibration.calibrate import calibrate
from atlasc.calibration.ranges import Range
from atlasc.ir.errors import AtlasError
from atlasc.polynomials.arithmetic import NumpyArithmetic
from atlasc.polynomials.fitted import (
    NORM_EXTENSION,
    SCORE_EXTENSION,
    SUM_ROOM,
    fitted_activation,
    fitted_direct,
    fitted_norm,
    measured_softmax,
)
from atlasc.polynomials.parametrisation import Parametrisation

INTERPOLATED = Parametrisation("measured", "interpolated")
WEIGHTED = Parametrisation("measured", "weighted")


@pytest.fixture(scope="module")
def known() -> dict[str, Range]:
    """A range of each family."""
    module, arrays = Builder(SHAPES["encoder"], 1).build(), inputs_for(SHAPES["encoder"], 2)
    ranges = calibrate(module, arrays, margin=0.05).ranges
    return {r.op: r for r in ranges}


def test_interpolants_use_the_calibrated_range(known: dict[str, Range]) -> None:
    norm = fitted_norm(15, known["nn.layer_norm"], INTERPOLATED)
    assert norm.range == (known["nn.layer_norm"].low, known["nn.layer_norm"].high)
    assert norm.coefficients is None
    assert fitted_activation("gelu", 15, known["nn.gelu"], INTERPOLATED).coefficients is None
    assert measured_softmax((15, 15), known["nn.softmax"], INTERPOLATED).coefficients is None
    assert fitted_direct(15, 31, known["nn.softmax"], INTERPOLATED).coefficients is None


def test_weighted_fits_reach_beyond_what_was_seen(known: dict[str, Range]) -> None:
    variance = known["nn.layer_norm"]
    norm = fitted_norm(15, variance, WEIGHTED)
    assert norm.range == pytest.approx(
        (variance.seen_low / NORM_EXTENSION, variance.seen_high * NORM_EXTENSION)
    )
    gelu = fitted_activation("gelu", 15, known["nn.gelu"], WEIGHTED)
    assert gelu.range == (known["nn.gelu"].low, known["nn.gelu"].high)
    scores = known["nn.softmax"]
    assert scores.sum_quantiles is not None
    sums = np.exp(np.array(scores.sum_quantiles[0]) - scores.shift(0))
    direct = fitted_direct(15, 31, scores, WEIGHTED)
    assert direct.sum_range is not None
    assert direct.sum_range[0] <= sums[0] / np.exp(SCORE_EXTENSION) * (1 + 1e-12)
    assert direct.sum_range[1] >= sums[-1] * np.exp(SCORE_EXTENSION) * (1 - 1e-12)


def test_what_was_never_measured_gets_interpolants_or_is_refused(known: dict[str, Range]) -> None:
    bare = replace(known["nn.gelu"], quantiles=None)
    assert fitted_activation("gelu", 15, bare, WEIGHTED).coefficients is None
    nominal = replace(known["nn.softmax"], total_quantiles=None)
    with pytest.raises(AtlasError, match="no quantiles of the row sums of nn.softmax"):
        fitted_direct(15, 31, nominal, WEIGHTED)
    with pytest.raises(AtlasError, match="no quantiles of the row sums of nn.softmax"):
        measured_softmax((15, 15), nominal, INTERPOLATED)


@pytest.mark.parametrize("space", [INTERPOLATED, WEIGHTED])
@pytest.mark.parametrize("degrees", [(3, 7, 15), (15, 3, 7), (7, 7, 7)])
def test_coarse_iterations_do_not_leave_the_ranges_of_later_ones(
    known: dict[str, Range], space: Parametrisation, degrees: tuple[int, ...]
) -> None:
    scores = known["nn.softmax"]
    chosen = measured_softmax(degrees, scores, space)
    assert chosen.sum_ranges is not None
    exact = [ends for ends, _ in scores.sums(3)]
    for (low, high), (least, greatest) in zip(chosen.sum_ranges[1:], exact[1:], strict=True):
        assert low <= least / SUM_ROOM
        assert high >= greatest * SUM_ROOM
    rng = np.random.default_rng(1)
    rows = rng.uniform(scores.seen_low, scores.seen_high, (500, scores.width))
    sums = np.log(np.exp(rows / 4).sum(axis=-1))
    inside = (sums >= np.log(chosen.sum_ranges[0][0]) + scores.shift(2) / 4) & (
        sums <= np.log(chosen.sum_ranges[0][1]) + scores.shift(2) / 4
    )
    seen: list[np.ndarray] = []

    class Watching(NumpyArithmetic):
        def step(self, name: str, *operands: np.ndarray, constant: object = None) -> np.ndarray:
            found = super().step(name, *operands, constant=constant)
            if name == "row_sum":
                seen.append(found)
            return found

    Watching(threads=1).run(chosen.apply, rows[inside])
    assert inside.any()
    for (low, high), sums in zip(chosen.sum_ranges[1:], seen[1:], strict=True):
        assert (sums >= 0.99 * low).all()
        assert (sums <= 1.01 * high).all()


@pytest.mark.parametrize("space", [INTERPOLATED, WEIGHTED])
def test_hopeless_degrees_have_ranges_too(known: dict[str, Range], space: Parametrisation) -> None:
    scores = known["nn.softmax"]
    wide = replace(
        scores,
        scores=tuple((low - 500, high) for low, high in scores.scores or ()),
        log_sums=tuple((s - 100 / 2**i, high) for i, (s, high) in enumerate(scores.log_sums or ())),
    )
    chosen = measured_softmax((1, 1, 1, 1, 1), wide, space)
    assert np.isfinite(chosen.sum_ranges).all()
