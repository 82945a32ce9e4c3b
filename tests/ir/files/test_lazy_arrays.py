"""Large arrays are made, or read from their file, at each use; files are those of safetensors."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from atlasc.ir.arrays import lazy
from atlasc.ir.arrays.lazy import LazyArray, as_dtype, elementwise, rows_of
from atlasc.ir.arrays.tensor_files import read_safetensors, write_safetensors
from atlasc.ir.errors import AtlasError

RANDOM = np.random.default_rng(0)
WEIGHT = RANDOM.normal(size=(12, 10)).astype(np.float32)
IDS = np.array([[3, 0], [11, 3]])


@pytest.fixture(autouse=True)
def _small_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lazy, "LARGE", 100)


def test_a_lazy_array_counts_as_its_array() -> None:
    made = []
    array = LazyArray(WEIGHT.shape, WEIGHT.dtype, lambda: made.append(1) or WEIGHT)
    assert (array.shape, array.ndim, array.size) == (WEIGHT.shape, 2, 120)
    assert (array.nbytes, array.strides, len(array)) == (480, WEIGHT.strides, 12)
    assert not made
    vector = np.arange(10.0)
    for found, wanted in (
        (array @ vector, WEIGHT @ vector),
        (np.multiply(2.0, array), 2 * WEIGHT),
        (array.T, WEIGHT.T),
        (array.mean(axis=0), WEIGHT.mean(axis=0)),
        (array[IDS], WEIGHT[IDS]),
        (array[2:4, 1], WEIGHT[2:4, 1]),
        (rows_of(array, slice(1, 9, 2)), WEIGHT[1:9:2]),
        (rows_of(array, IDS[0]), WEIGHT[IDS[0]]),
        (as_dtype(array, np.float64), WEIGHT.astype(np.float64)),
        (as_dtype(array, np.float64)[IDS], WEIGHT[IDS].astype(np.float64)),
        (np.repeat(array, 2, axis=0), np.repeat(WEIGHT, 2, axis=0)),
    ):
        np.testing.assert_array_equal(found, wanted)
        assert found.dtype == wanted.dtype and found.shape == wanted.shape
    assert isinstance(pickle.loads(pickle.dumps(array)), np.ndarray)


def test_what_is_folded_into_a_large_array_is_made_when_it_is_read() -> None:
    scale, made = RANDOM.normal(size=10), []

    def times(weight: np.ndarray, factor: np.ndarray) -> np.ndarray:
        made.append(weight.size)
        return weight * factor

    folded = as_dtype(elementwise(times, WEIGHT, scale), np.float32)
    assert isinstance(folded, LazyArray) and max(made) == 1
    np.testing.assert_array_equal(folded, (WEIGHT * scale).astype(np.float32))
    assert isinstance(elementwise(times, scale, scale), np.ndarray)  # small


@pytest.mark.parametrize("metadata", [None, {"program": "é"}])
def test_a_file_is_written_as_safetensors_does(
    tmp_path: Path, metadata: dict[str, str] | None
) -> None:
    types = "bool uint8 int8 int16 uint16 float16 int32 uint32 float32 float64 int64 uint64"
    arrays = {name: np.arange(3).astype(name) for name in types.split()}
    arrays |= {'"é\\': np.zeros((0, 3), np.float32), "z": np.array(3.0), "t": WEIGHT.T, "w": WEIGHT}
    plain = {
        name: np.ascontiguousarray(array).reshape(array.shape) for name, array in arrays.items()
    }
    save_file(plain, tmp_path / "theirs", metadata)
    write_safetensors(tmp_path / "ours", arrays, metadata)
    assert (tmp_path / "ours").read_bytes() == (tmp_path / "theirs").read_bytes()
    found = read_safetensors(tmp_path / "ours")
    assert isinstance(found["w"], LazyArray) and isinstance(found["z"], np.ndarray)
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array)
    np.testing.assert_array_equal(found["w"][IDS], WEIGHT[IDS])


def test_a_file_may_be_replaced_but_not_changed(tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    save_file({"w": WEIGHT}, path)
    array = read_safetensors(path)["w"]
    save_file({"w": WEIGHT + 1}, tmp_path / "other")
    (tmp_path / "other").replace(path)
    np.testing.assert_array_equal(array, WEIGHT)
    array = read_safetensors(path)["w"]
    with path.open("r+b") as file:
        file.truncate(300)
    with pytest.raises(AtlasError, match=r"was changed while it was in use(.|\n)*start again"):
        np.asarray(array)
