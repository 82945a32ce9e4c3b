"""Entries of approximations are of the declared types, or refused by name."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from atlasc.ir.errors import AtlasError
from atlasc.ir.opdef import Symbol
from atlasc.ir.text.approximations import algorithms, read_approximation

OPS = {"softmax": "nn.softmax", "norm": "nn.layer_norm", "activation": "nn.gelu"}
ARRAYS = {"a": np.zeros((2, 3)), "empty": np.zeros(0), "text": np.array("txt")}
VALUES: tuple[Any, ...] = (
    None, "x", 0, -1, 5, 1e308, True, [], [1], [[1]], ["a"], [1, 2], [2, 1], [[1, 2], [3, 4]],
    {}, {"a": 1}, *map(Symbol, (*ARRAYS, "missing")), [Symbol("a")], [0.0] * 6,
)  # fmt: skip
GOOD = {
    "iterations": [2], "degree": 3, "range": [1.0, 2.0], "shift": 0.0, "exp_degree": 3,
    "exp_range": [-1.0, 1.0], "inverse_degree": 3, "inverse_range": [1.0, 2.0], "newton_steps": 1,
}  # fmt: skip


@pytest.mark.parametrize("key", sorted(algorithms()), ids=str)
def test_every_entry_is_checked(key: tuple[str, str]) -> None:
    family, algorithm = key
    names = [field.name for field in dataclasses.fields(algorithms()[key])]  # type: ignore[arg-type]
    base = {"algorithm": algorithm} | {n: value for n, value in GOOD.items() if n in names}
    refused = 0
    for name in names:
        for value in VALUES:
            try:
                found = read_approximation(OPS[family], {**base, name: value}, ARRAYS)
                assert found == read_approximation(OPS[family], found.entries())
                assert found.levels >= 0  # type: ignore[attr-defined]
            except AtlasError:
                refused += 1
    assert refused > len(names) * len(VALUES) / 2


@pytest.mark.parametrize(
    ("entries", "why"),
    [
        (
            {"algorithm": "direct", "degree": 3, "shift": True},
            "shift is True: Input",
        ),
        ({"algorithm": "direct", "degree": 3.0}, "degree is 3.0: Input should be a valid integer"),
        (
            {"algorithm": "direct", "degree": 3, "shift": Symbol("a")},
            "shift is Symbol",
        ),
        ({"algorithm": "direct", "degree": 4096}, "more than 4095"),
        ({"algorithm": "direct", "degree": 3, "shift": Symbol("b")}, "the array @b is missing"),
    ],
)
def test_the_entry_is_named(entries: dict[str, Any], why: str) -> None:
    with pytest.raises(AtlasError, match="not complete, or not right") as caught:
        read_approximation("nn.softmax", entries, ARRAYS)
    assert why in caught.value.why
