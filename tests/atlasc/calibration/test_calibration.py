"""Calibration: ranges, margins, held-back inputs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from small_transformers import SHAPES, Builder, arguments, inputs_for
from threadpoolctl import threadpool_info

from atlasc.calibration import measure as measuring
from atlasc.calibration.calibrate import calibrate, read_calibration
from atlasc.calibration.tails import RISK, tail_bound
from atlasc.ir.errors import AtlasError
from atlasc.ir.interpreter import interpret
from atlasc.ir.module import Module


def model(name: str, batch: int = 3) -> tuple[Module, dict[str, np.ndarray]]:
    shape = replace(SHAPES[name], batch=batch)
    return Builder(shape, 1).build(), inputs_for(shape, 2)


@pytest.mark.parametrize("name", SHAPES)
def test_without_a_margin_ranges_are_what_was_seen(name: str) -> None:
    module, arrays = model(name)
    calibration = calibrate(module, arrays, margin=0)
    by_hand = arguments(module, arrays)
    assert len(calibration.ranges) == len(by_hand)
    for op, x in by_hand.items():
        known = calibration.of(op)
        assert known.location == op.location
        assert (known.seen_low, known.seen_high) == pytest.approx((x.min(), x.max()), rel=1e-4)
        if op.name in ("nn.gelu", "nn.silu"):
            assert known.low == pytest.approx(min(x.min(), 0), rel=1e-4)
            assert known.high == pytest.approx(max(x.max(), 0), rel=1e-4)
        else:
            assert (known.low, known.high) == pytest.approx((x.min(), x.max()), rel=1e-4)


def test_row_sums_are_those_of_the_shifted_exponentials() -> None:
    module, arrays = model("vision")
    calibration = calibrate(module, arrays, margin=0)
    softmax = next(op for op in module.ops if op.name == "nn.softmax")
    known = calibration.of(softmax)
    sums = np.exp(arguments(module, arrays)[softmax] - known.shift(0)).sum(axis=-1)
    assert known.row_sums == pytest.approx((sums.min(), sums.max()), rel=1e-3)
    assert known.width == 5


def test_margins() -> None:
    module, arrays = model("decoder")
    tight, wide = calibrate(module, arrays, margin=0), calibrate(module, arrays, margin=0.5)
    for seen, known in zip(tight.ranges, wide.ranges, strict=True):
        width = seen.high - seen.low
        if seen.kind == "mean square":
            expected = (seen.low / 1.5, seen.high * 1.5)
        else:
            expected = (seen.low - width / 2, seen.high + width / 2)
        assert (known.low, known.high) == pytest.approx(expected)
        assert known.kind != "mean square" or known.low > 0


def test_quantiles_are_those_of_all_that_was_seen() -> None:
    module, arrays = model("encoder", batch=7)
    arrays = {**arrays, "mask": np.ones_like(arrays["mask"])}
    calibration, by_hand = calibrate(module, arrays), arguments(module, arrays)
    for op, x in by_hand.items():
        known = calibration.of(op)
        if op.name != "nn.softmax":
            assert known.quantiles is not None
            assert known.quantiles == pytest.approx(np.quantile(x, np.linspace(0, 1, 129)), 1e-3)
            continue
        assert known.sum_quantiles is not None and known.square_quantiles is not None
        x = x.reshape(-1, known.width)
        sums = [np.log(np.exp(x / 2**i).sum(axis=-1)) for i in range(6)]
        squares = [sums[i] - 2 * sums[i + 1] for i in range(5)]
        for seen, row in zip(known.sum_quantiles + known.square_quantiles, sums + squares):
            assert seen == pytest.approx(np.quantile(row, np.linspace(0, 1, 129)), 1e-3, 1e-4)


def test_few_of_many_values_are_kept_and_equally_many_of_each_input(monkeypatch) -> None:
    module, arrays = model("vision", batch=8)
    everything = measuring.measure(module, arrays)
    monkeypatch.setattr(measuring, "SAMPLES", 40)
    monkeypatch.setattr(measuring, "LARGEST_CHUNK", 3)
    for whole, few in zip(everything, measuring.measure(module, arrays), strict=True):
        everyone, some = ((one.sums or one.argument).samples for one in (whole, few))
        assert len(some) == min(40, len(everyone))
        assert some.shape[1:] == everyone.shape[1:]
        each = everyone.reshape(8, -1, *everyone.shape[1:])
        kept = some.reshape(8, -1, *everyone.shape[1:])
        for one, other in zip(each, kept):
            assert np.isclose(other[:, None], one[None], rtol=1e-4, atol=1e-5).any(axis=1).all()


def test_chunks_do_not_change_the_ranges(monkeypatch) -> None:
    module, arrays = model("encoder", batch=7)
    whole = calibrate(module, arrays)
    monkeypatch.setattr(measuring, "LARGEST_CHUNK", 2)
    seen = []
    parts = calibrate(module, arrays, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(2, 7), (4, 7), (6, 7), (7, 7)]
    for known, other in zip(whole.ranges, parts.ranges, strict=True):
        assert (other.low, other.high) == pytest.approx((known.low, known.high), rel=1e-4)


def test_masked_scores_do_not_count() -> None:
    module, arrays = model("encoder")
    last = arrays["mask"][:, -1] == 0
    assert last.any()
    changed = {**arrays, "x": arrays["x"].copy()}
    changed["x"][last, -1] *= 50
    softmax = next(op for op in module.ops if op.name == "nn.softmax")
    # The key is masked; the query of the same token is not, so compare its own row's scores apart.
    before = calibrate(module, arrays, margin=0).of(softmax)
    after = calibrate(module, changed, margin=0).of(softmax)
    by_hand = arguments(module, changed)[softmax]
    assert (after.seen_low, after.seen_high) == pytest.approx((by_hand.min(), by_hand.max()), 1e-4)
    everything = calibrate(module, {**changed, "mask": np.ones_like(arrays["mask"])}, margin=0)
    assert everything.of(softmax).seen_high > after.seen_high >= before.seen_high


def test_held_back_inputs_that_leave_a_range_are_reported() -> None:
    module, arrays = model("vision", batch=6)
    used = {"x": arrays["x"][:4]}
    held_back = {"x": np.concatenate([arrays["x"][:1], arrays["x"][4:5] * 0.01])}
    calibration = calibrate(module, used, held_back=held_back, names=["same", "faint"])
    assert calibration.held_back == 2
    assert calibration.leaving == 1
    assert {v.input for v in calibration.violations} == {"faint"}
    first = next(v for v in calibration.violations if v.location == "layer.0.norm1")
    assert first.op == "nn.layer_norm"
    assert first.kind == "variance"
    assert first.reached < first.low
    assert first.excess > 0
    assert "faint: variance of nn.layer_norm reaches" in str(first)
    row = next(r for r in calibration.table() if r["location"] == "layer.0.norm1")
    assert row["leaving"] == 1
    assert calibrate(module, used, held_back=used).violations == ()


def test_the_tail_decides_the_margin() -> None:
    module, arrays = model("vision", batch=40)
    fixed, tail = calibrate(module, arrays), calibrate(module, arrays, margin=None)
    assert tail.margin is None
    pairs = list(zip(tail.ranges, fixed.ranges, strict=True))
    assert all(one.low <= other.low and one.high >= other.high for one, other in pairs)
    assert any(one.high > other.high for one, other in pairs)


def test_few_inputs_show_no_tail_and_get_a_wide_margin() -> None:
    module, arrays = model("vision", batch=5)
    assert calibrate(module, arrays, margin=None) == calibrate(module, arrays, margin=0.3)


def test_the_tail_bound_of_exponential_extremes_is_the_quantile_that_was_asked_for() -> None:
    sample = np.random.default_rng(0).exponential(size=20_000)
    # A probability of 1e-3 over 10 ends: the quantile at 1 - 1e-4 is log(1e4).
    assert tail_bound(sample, ends=10) == pytest.approx(np.log(10 / RISK), rel=0.05)
    assert tail_bound(np.ones(50), ends=10) == 1


def test_json_round_trip(tmp_path: Path) -> None:
    module, arrays = model("encoder")
    held_back = {**arrays, "x": arrays["x"] * 3}
    calibration = calibrate(module, arrays, held_back=held_back)
    assert calibration.violations
    path = tmp_path / "calibration.json"
    path.write_text(json.dumps(calibration.to_dict()))
    assert read_calibration(path) == calibration


def _wrong(**members: object) -> dict[str, object]:
    good = {"value": "x", "op": "nn.gelu", "location": "", "low": -1.0, "high": 1.0,
            "seen_low": 0.0, "seen_high": 0.5}  # fmt: skip
    facts = {"inputs": 1, "margin": None, "held_back": 0, "violations": [], "keys": {}}
    return {"ranges": [{**good, **members}], **facts, "extremes": []}


@pytest.mark.parametrize(
    "data",
    [
        *([], {}, {"ranges": [{"value": "x"}]}, {**_wrong(), "inputs": -1}),
        *({**_wrong(), "more": 1}, {**_wrong(), "keys": {"a": ["1"]}}, {**_wrong(), "margin": "1"}),
        *(_wrong(low=2.0), _wrong(high="1"), _wrong(channels={"low": [0.0], "high": []})),
        _wrong(channels={"low": [0.0], "high": [1.0], "quantiles": []}),
        {**_wrong(), "ranges": _wrong()["ranges"] * 2},  # type: ignore[operator]
    ],
)
def test_calibrations_that_make_no_sense(data: object, tmp_path: Path) -> None:
    path = tmp_path / "calibration.json"
    path.write_text(json.dumps(_wrong()))
    assert len(read_calibration(path).ranges) == 1
    path.write_text(json.dumps(data))
    with pytest.raises(AtlasError, match="cannot be read"):
        read_calibration(path)


def test_mistakes() -> None:
    module, arrays = model("vision")
    calibration = calibrate(module, arrays)
    other, _ = model("encoder")
    with pytest.raises(AtlasError, match="has no range for"):
        list(map(calibration.of, arguments(other, inputs_for(SHAPES["encoder"], 1))))
    with pytest.raises(AtlasError, match="no inputs"):
        calibrate(module, {"x": arrays["x"][:0]})
    with pytest.raises(AtlasError, match="different numbers"):
        calibrate(other, {"x": arrays["x"], "mask": np.ones((2, 5))})
    with pytest.raises(AtlasError, match="margin cannot be"):
        calibrate(module, arrays, margin=-1)
    with pytest.raises(AtlasError, match="not finite in the cleartext"):
        calibrate(module, {"x": arrays["x"] * np.inf})


def test_few_visible_keys_are_as_easy_as_many() -> None:
    """What is added to the scores makes the range of the sums narrower, for each temperature."""
    module, arrays = model("encoder", batch=40)
    keys = arrays["mask"].shape[1]
    lengths = 1 + np.arange(40) % keys
    arrays["mask"] = (np.arange(keys) < lengths[:, None]).astype(float)
    known = next(r for r in calibrate(module, arrays, margin=0).ranges if r.scores)
    values: dict[str, np.ndarray] = {}
    interpret(module, arrays, observe=lambda op, y: values.update({op.value.name: y}))
    x = values[next(op.operands[0].name for op in module.ops if op.value.name == known.value)]
    keep = arrays["mask"][:, None, None, :] > 0
    hidden = np.log(keys / lengths)[:, None, None]
    assert known.shares is not None and known.log_sums is not None and known.scores is not None
    for number, share in enumerate(known.shares):
        warmth = 2.0**number
        plain = np.log(np.where(keep, np.exp(x / warmth), 0).sum(axis=-1))
        sums, low, high = plain + share * hidden, *known.log_sums[number]
        assert (low, high) == pytest.approx((sums.min(), sums.max()), abs=1e-4)
        assert high - low <= np.ptp(plain + hidden) + 1e-4
        assert high - low <= np.ptp(plain) + 1e-4
        raised = np.where(keep, x + share * warmth * hidden[..., None], np.nan)
        assert known.scores[number] == pytest.approx(
            (np.nanmin(raised), np.nanmax(raised)), abs=1e-4
        )
    assert known.log_keys(2) == known.shares[2] * 4


def test_one_thread_holds_for_all_libraries() -> None:
    """Where a processor has other work, OpenMP's threads mostly wait for each other."""
    with measuring.blas_threads(1):
        assert {pool["num_threads"] for pool in threadpool_info()} == {1}
