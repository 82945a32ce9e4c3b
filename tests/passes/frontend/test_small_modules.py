"""Each module of a table equals torch at the nn level, or is refused with what, where and why."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from small_modules import FORMS, REFUSED, Parts

from atlasc.ir.errors import AtlasError
from atlasc.ir.final_functions import finished
from atlasc.ir.interpreter import interpret
from atlasc.passes.framework.pass_base import run_passes
from atlasc.passes.frontend.canonicalise import Canonicalise
from atlasc.passes.frontend.trace import trace

X = np.random.default_rng(0).normal(size=(2, 4, 8)).astype(np.float32)


@pytest.mark.parametrize("name", [name for name in FORMS if name not in REFUSED])
def test_equals_torch(name: str) -> None:
    model = Parts(FORMS[name]).eval()
    with torch.no_grad():
        wanted = model(torch.from_numpy(X)).double().numpy()
    module = trace(model, {"x": X}, name="small")
    for written in (module, run_passes(module, [Canonicalise()])):
        (op,) = written.outputs
        (found,) = interpret(written, {"x": X}).values()
        found = finished(op.attributes.get("function"), found)
        assert found.shape == wanted.shape
        assert np.abs(found - wanted).max() < 1e-5


@pytest.mark.deep("recipes")
@pytest.mark.parametrize("name", sorted(REFUSED))
def test_is_refused(name: str) -> None:
    with pytest.raises(AtlasError) as caught:
        trace(Parts(FORMS[name]).eval(), {"x": X}, name="small")
    assert caught.value.remedy


def test_changes_in_place_are_seen_through_views() -> None:
    class Model(torch.nn.Module):
        def forward(self, x):
            h = x + 1
            view = h.view(-1)
            h += 1
            view.mul_(2)
            return h * x

    module = trace(Model(), {"x": X}, name="small")
    (found,) = interpret(module, {"x": X}).values()
    np.testing.assert_allclose(found, 2 * (X + 2) * X, rtol=1e-5)


WAYS = {
    "cast": lambda x: x.float() / 255,
    "type": lambda x: x.to(torch.float32) * 0.5 - 1,
    "divided": lambda x: x / 255 - 0.5,
    "integers": lambda x: (x - 128).float() / 128,  # wraps around below 0 where x has bytes
}


class Bytes(torch.nn.Module):
    """Reads bytes, as of an image, in one of the ways."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.read, self.linear = WAYS[way], torch.nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.linear(self.read(x)))


@pytest.mark.parametrize("dtype", [np.uint8, np.int64])
@pytest.mark.parametrize("way", WAYS)
def test_integers_that_are_read_as_numbers(way: str, dtype: type) -> None:
    given, model = np.random.default_rng(0).integers(0, 256, (2, 8)).astype(dtype), Bytes(way)
    if way == "integers":
        with pytest.raises(AtlasError, match="cannot be compiled"):
            trace(model, {"x": given}, name="bytes")
        return
    module = trace(model, {"x": given}, name="bytes")
    assert [op.attributes["dtype"] for op in module.inputs] == ["f64"]
    (found,) = interpret(module, {"x": given}).values()
    with torch.no_grad():
        wanted = model(torch.from_numpy(given)).numpy()
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5)
