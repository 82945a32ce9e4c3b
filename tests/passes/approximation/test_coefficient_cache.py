"""Fits on disk: exact text, harmless when damaged, unwritable or written by many at once."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from atlasc.passes.approximation.fits import chebyshev, coefficient_cache

KEY = ("exp", 31, (-8.0, 0.1))


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ATLASC_CACHE", str(tmp_path))
    chebyshev._fit_named.cache_clear()
    return tmp_path


def only_file(folder):
    (path,) = (folder / "chebyshev").iterdir()
    return path


def test_a_fit_is_stored_and_read_back_bit_for_bit(own_cache):
    coefficients = chebyshev.fit(*KEY)
    np.testing.assert_array_equal(coefficient_cache.load(*KEY), coefficients)
    text = only_file(own_cache).read_text()
    numbers = [line.strip(" ,") for line in text.splitlines()[1:-1]]
    assert [float(n) for n in numbers] == coefficients.tolist()
    # 17 significant digits, of which trailing zeros are not written
    digits = [n.split("e")[0].replace("-", "").replace(".", "").strip("0") for n in numbers]
    assert max(map(len, digits)) == 17


def test_the_stored_fit_is_used(own_cache):
    chebyshev.fit(*KEY)
    path = only_file(own_cache)
    data = json.loads(path.read_text())
    data["coefficients"][0] = 42.0
    path.write_text(json.dumps(data))
    chebyshev._fit_named.cache_clear()
    assert chebyshev.fit(*KEY)[0] == 42.0


@pytest.mark.parametrize("damage", ["", "{", '{"format": 0}', "[]", '{"coefficients": ["a"]}'])
def test_a_damaged_file_is_fitted_again(own_cache, damage):
    expected = chebyshev.fit(*KEY)
    only_file(own_cache).write_text(damage)
    chebyshev._fit_named.cache_clear()
    np.testing.assert_array_equal(chebyshev.fit(*KEY), expected)
    np.testing.assert_array_equal(coefficient_cache.load(*KEY), expected)


def test_a_file_of_another_fit_is_not_taken(own_cache):
    chebyshev.fit(*KEY)
    path = only_file(own_cache)
    path.rename(coefficient_cache._path("exp", 31, (-8.0, 0.2)))
    assert coefficient_cache.load("exp", 31, (-8.0, 0.2)) is None


def test_a_directory_that_cannot_be_written_costs_nothing_but_time(tmp_path, monkeypatch):
    blocker = tmp_path / "file"
    blocker.write_text("in the way")
    monkeypatch.setenv("ATLASC_CACHE", str(blocker))
    assert not coefficient_cache.store(*KEY, np.zeros(32))
    assert len(chebyshev.fit(*KEY)) == 32


def test_concurrent_writers_leave_one_whole_file(own_cache):
    coefficients = chebyshev.fit(*KEY)
    with ThreadPoolExecutor(8) as pool:
        done = list(pool.map(lambda _: coefficient_cache.store(*KEY, coefficients), range(64)))
    assert all(done)
    assert only_file(own_cache).suffix == ".json"
    np.testing.assert_array_equal(coefficient_cache.load(*KEY), coefficients)


def test_the_default_directory_is_in_the_home(monkeypatch, tmp_path):
    monkeypatch.delenv("ATLASC_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert coefficient_cache.cache_directory() == tmp_path / ".cache" / "atlasc" / "chebyshev"
