"""The target ``count``: a folder, a line, and this."""

from __future__ import annotations

from pathlib import Path

import pytest

from atlasc.ir.errors import AtlasError
from atlasc.ir.module import Module
from atlasc.program.key_plan import KeyPlan
from atlasc.targets import find_target
from atlasc.targets.base import no_progress


def test_count_reports_what_a_program_takes() -> None:
    target = find_target("count")
    parameters = target.parameters.choose(3)
    engine = target.make_engine(Module("m", "ckks"), parameters, no_progress)
    x = engine.encrypt(None)  # type: ignore[arg-type]
    product = engine.rotate(engine.mul(x, x), 1)
    with pytest.raises(AtlasError, match="computes no answers") as caught:
        engine.decrypt(product)
    assert "1 mul" in caught.value.why and "1 rotate" in caught.value.why
    with pytest.raises(AtlasError, match="no client and no server"):
        target.generate_keys(parameters, KeyPlan({}), Path(), no_progress)
