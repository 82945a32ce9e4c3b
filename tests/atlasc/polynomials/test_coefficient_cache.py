"""Fits on disk: exact text, harmless when damaged, unwritable or written by many at once."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from atlasc.polynomials.fits import chebyshev

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
    np.testing.assert_array_equal(chebyshev.load(*KEY), coefficients)
    stored = json.loads(only_file(own_cache).read_text())
    assert stored["coefficients"] == coefficients.tolist()


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
    np.testing.assert_array_equal(chebyshev.load(*KEY), expected)


def test_a_file_of_another_fit_is_not_taken(own_cache):
    chebyshev.fit(*KEY)
    path = only_file(own_cache)
    path.rename(chebyshev._path("exp", 31, (-8.0, 0.2)))
    assert chebyshev.load("exp", 31, (-8.0, 0.2)) is None


def test_a_directory_that_cannot_be_written_costs_nothing_but_time(tmp_path, monkeypatch):
    blocker = tmp_path / "file"
    blocker.write_text("in the way")
    monkeypatch.setenv("ATLASC_CACHE", str(blocker))
    assert not chebyshev.store(*KEY, np.zeros(32))
    assert len(chebyshev.fit(*KEY)) == 32


def test_concurrent_writers_leave_one_whole_file(own_cache):
    coefficients = chebyshev.fit(*KEY)
    with ThreadPoolExecutor(8) as pool:
        done = list(pool.map(lambda _: chebyshev.store(*KEY, coefficients), range(64)))
    assert all(done)
    assert only_file(own_cache).suffix == ".json"
    np.testing.assert_array_equal(chebyshev.load(*KEY), coefficients)


def test_the_default_directory_is_in_the_home(monkeypatch, tmp_path):
    monkeypatch.delenv("ATLASC_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert chebyshev.cache_directory() == tmp_path / ".cache" / "atlasc" / "chebyshev"
