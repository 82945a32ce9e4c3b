"""Tokens and channels that stand out are named, with what was done and what they cost."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
from short_text import module_of

from atlasc.calibration.calibrate import outliers_of
from atlasc.calibration.streams import Streams, streams_of
from atlasc.ir.errors import AtlasError
from atlasc.ir.module import Module
from atlasc.passes.calibration.fill_padding import with_filled_padding
from atlasc.passes.calibration.outliers import outliers
from atlasc.passes.calibration.scale_tokens import token_factors

INPUTS, TOKENS, FEATURES = 12, 6, 16


def norm() -> Module:
    """The norm of an encrypted input."""
    shape = f"[1, {TOKENS}, {FEATURES}]"
    return module_of(
        "nn",
        f"""%x = nn.input {{name = "x", shape = {shape}, side = "client", dtype = "f64"}}
        %mask = nn.input {{name = "mask", shape = [1, {TOKENS}], side = "public", dtype = "i64"}}
        %e = nn.encrypt %x
        %n = nn.rms_norm %e {{gamma = @gamma, epsilon = 1e-06}}
        nn.output %n {{name = "y"}}""",
        {"gamma": np.ones(FEATURES)},
    )


def arrays(**times: float) -> dict[str, np.ndarray]:
    """Inputs of four to six tokens, some of which are so many times as long as others."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(INPUTS, TOKENS, FEATURES))
    kept = 4 + np.arange(INPUTS) % 3
    x[:, 0] *= times.get("first", 1.0)
    x[np.arange(INPUTS), kept - 1] *= times.get("last", 1.0)
    x[3, 2] *= times.get("another", 1.0)
    x[:, :, 5] *= times.get("channel", 1.0)
    mask = (np.arange(TOKENS) < kept[:, None]).astype(np.int64)
    x[mask == 0] *= times.get("padding", 1.0)
    return {"x": x, "mask": mask}


def found(module: Module, given: dict[str, np.ndarray], scale: bool = True) -> dict[str, Any]:
    streams = streams_of(module, given)
    factors = token_factors(module, streams) if scale else {}
    return {one.what: one for one in outliers(module, streams, factors)}


def test_streams_of_a_norm() -> None:
    given, reports = arrays(), list[tuple[int, int]]()
    streams = streams_of(norm(), given, lambda *done: reports.append(done))
    assert isinstance(streams, Streams) and reports[-1] == (INPUTS, INPUTS)
    squares = np.square(given["x"]).mean(axis=-1)
    np.testing.assert_allclose(streams.squares["n"], squares, rtol=1e-5)
    real = given["x"][given["mask"].astype(bool)]
    np.testing.assert_allclose(streams.channels["n"], np.abs(real).max(axis=0), rtol=1e-6)


def test_a_model_without_outliers_names_none() -> None:
    assert found(norm(), arrays()) == {}


@pytest.mark.parametrize(
    ("times", "what"),
    [("first", "first token"), ("last", "last token"), ("another", "another token"),
     ("padding", "padding")],
)  # fmt: skip
def test_tokens_are_named_by_their_place(times: str, what: str) -> None:
    one = found(norm(), arrays(**{times: 30.0}), scale=False)
    assert list(one) == [what]
    assert 300 < one[what].factor < 6000 and one[what].norms == 1
    assert (one[what].scaled, one[what].bits) == (0, None) and one[what].levels >= 2


def test_a_scaled_token_costs_no_levels() -> None:
    one = found(norm(), arrays(first=30.0))["first token"]
    assert (one.scaled, one.levels) == (1, 0)
    assert one.row()[3:] == (
        "multiplied before 1 of them", "0 levels of polynomials and the products"
    )  # fmt: skip


def test_padding_that_is_filled_is_no_outlier() -> None:
    given = arrays(padding=30.0)
    assert found(with_filled_padding(norm(), "last"), given) == {}


def test_a_channel_is_named_by_its_number() -> None:
    one = found(norm(), arrays(channel=40.0))["channel 5"]
    assert 20 < one.factor < 80 and one.bits == pytest.approx(np.log2(one.factor))
    assert one.row()[3] == "stays as it is" and "bits of the other channels" in one.row()[4]


def test_outliers_of_a_bundle_are_read_into_their_schema() -> None:
    one = found(norm(), arrays(channel=40.0))["channel 5"]
    facts = json.loads(json.dumps({"outliers": [asdict(one)]}))
    assert outliers_of(facts) == (one,) and outliers_of({}) == ()
    with pytest.raises(AtlasError, match="damaged"):
        outliers_of({"outliers": [{"what": "channel 5"}]})
