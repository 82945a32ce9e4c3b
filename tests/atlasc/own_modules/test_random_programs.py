"""Random modules through the whole compiler: a program answers as its module does, or the module is
refused with the line of its code.

With ``ATLASC_TEST_SEED=3`` in the environment it is another hundred.
"""

from __future__ import annotations

import copy
import os
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from stateful_modules import FEATURES, TOKENS, Random, random_module

import atlasc
from atlasc.ir.errors import AtlasError

SEED, MODULES = int(os.environ.get("ATLASC_TEST_SEED", "0")), 100
LEAST_COMPILED = 20
"""Of a hundred modules: a compiler that refuses all would pass."""
RNG = np.random.default_rng(SEED)
X = RNG.standard_normal((24, TOKENS, FEATURES)).astype(np.float32)
NEW = RNG.standard_normal((8, TOKENS, FEATURES)).astype(np.float32)
TYPES = (torch.float32, torch.float32, torch.float64, torch.bfloat16)


def eager(model: Random, dtype: torch.dtype, fresh: bool) -> np.ndarray:
    """What the module answers in its own type, each input alone; by a new copy for each, or one
    after the other.
    """
    own, found = copy.deepcopy(model), []
    with torch.no_grad():
        for row in NEW:
            own = copy.deepcopy(model) if fresh else own
            found.append(own(torch.tensor(row[None]).to(dtype)).double().numpy())
    return np.concatenate(found)


@pytest.fixture(scope="module", name="counts")
def _counts() -> Iterator[Counter]:
    counts: Counter = Counter()
    yield counts
    if counts.total() == MODULES:
        assert counts["compiled"] >= LEAST_COMPILED, counts


@pytest.mark.deep("examples")
@pytest.mark.parametrize("number", range(MODULES))
def test_a_program_answers_as_its_module(number: int, counts: Counter) -> None:
    model, names = random_module(MODULES * SEED + number)
    dtype = TYPES[number % len(TYPES)]
    model = model.to(dtype)
    before = {name: one.clone() for name, one in model.state_dict().items()}
    try:
        eager(model, dtype, fresh=True)
    except (RuntimeError, AssertionError):  # a step does not know this type, or overflows in it
        model, dtype = model.float(), torch.float32
        before = {name: one.float() for name, one in before.items()}
    refused: AtlasError | None = None
    try:
        program = atlasc.compile(model, {"x": X}, recipe="is", target="sim")
    except AtlasError as error:
        refused = error
    if refused is not None:
        counts["refused"] += 1
        assert "stateful_modules.py:" in refused.where, (names, str(refused))
        assert refused.why and refused.remedy, (names, str(refused))
        assert "report" not in refused.remedy
        assert len(str(refused).splitlines()) < 12
        return
    counts["compiled"] += 1
    assert all(torch.equal(one, before[n].to(one)) for n, one in model.state_dict().items()), names
    answer = program.run({"x": NEW})
    answered = [row for row in range(len(NEW)) if row not in answer.refused]
    assert len(answered) > len(NEW) // 2, names
    (found,) = answer.outputs.values()
    short = dtype == torch.bfloat16 or any("16 bits" in name for name in names)
    for fresh in (True, False):
        wanted = eager(model, dtype, fresh)
        apart = np.abs(found - wanted)[answered].max()
        # 3e-3: what the polynomials of the recipe err.
        assert apart <= (0.1 if short else 3e-3) * wanted.std(), (names, fresh, apart)


def test_a_count_of_calls_shows_beside_a_coarse_type() -> None:
    """Every third call answers twice as much, which 64 roundings of 16 bits would explain."""
    model, names = random_module(244)
    assert names == ["cast: to 16 bits", "branch: on a count"]
    with pytest.raises(AtlasError, match="the same input otherwise at another call"):
        atlasc.compile(model, {"x": X}, recipe="is", target="sim")
