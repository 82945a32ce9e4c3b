"""A random module is compiled to its own values, or refused with the line of its code."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from stateful_modules import FEATURES, STEPS, TOKENS, Random, random_module

from atlasc.compilation.oracle.asking import ask
from atlasc.compilation.prepare import trace_model
from atlasc.ir.errors import AtlasError
from atlasc.ir.interpreter import interpret
from atlasc.loading.inputs import Inputs
from atlasc.loading.models import model_of

RNG = np.random.default_rng(0)
X = RNG.standard_normal((16, TOKENS, FEATURES)).astype(np.float32)
NEW = RNG.standard_normal((8, TOKENS, FEATURES)).astype(np.float32)


def inputs(x: np.ndarray) -> Inputs:
    return Inputs({"x": x}, tuple(f"input {row}" for row in range(len(x))))


def eager(model: Random, x: np.ndarray, fresh: bool) -> np.ndarray:
    """What the module answers, each input alone; by a new copy for each, or one after the other."""
    own, found = copy.deepcopy(model), []
    with torch.no_grad():
        for row in x:
            own = copy.deepcopy(model) if fresh else own
            found.append(own(torch.from_numpy(row[None].copy())).numpy().copy())
    return np.concatenate(found)


def judge(model: Random, names: list[str]) -> bool:
    """Whether a module is compiled; fails if it is to other values, or refused without a line."""
    loaded, refused = model_of(model), None
    try:
        traced = trace_model(loaded, inputs=inputs(X))
        assert ask(loaded, traced, inputs(X), lambda *told: None) is not None
    except AtlasError as error:
        refused = error
    if refused is not None:
        assert "stateful_modules.py:" in str(refused), (names, str(refused))
        assert refused.remedy, names
        return False
    answers = [interpret(traced, {"x": row[None]})["output"] for row in NEW]
    for fresh in (True, False):
        wanted = eager(model, NEW, fresh)
        apart = np.abs(np.concatenate(answers) - wanted).max()
        rounded = any("16 bits" in name for name in names)
        assert apart <= (0.05 if rounded else 1e-3) * wanted.std(), (names, fresh, apart)
    return True


@given(st.integers(0, 2**31))
def test_a_random_module_is_equal_or_refused(seed: int) -> None:
    judge(*random_module(seed))


@pytest.mark.deep("examples")
@pytest.mark.parametrize("name", [f"{kind}: {one}" for kind in STEPS for one in STEPS[kind]])
def test_each_step_alone_is_equal_or_refused(name: str) -> None:
    kind, _, one = name.partition(": ")
    judge(Random([STEPS[kind][one]], 1).eval(), [name])
