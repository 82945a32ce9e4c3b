"""Scores that go through a function before their mask, as a cap: masked ones hold one number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from packed import run_packed
from short_text import dedent, entry, module_of, short
from torch import nn

import atlasc
from atlasc.ir.errors import AtlasError
from atlasc.ir.interpreter import interpret
from atlasc.passes.framework.pass_base import run_passes
from atlasc.passes.lowering.pack import Pack
from atlasc.program.costs import critical_path
from atlasc.targets.sim import SimEngine

RANDOM = np.random.default_rng(0)
ARRAYS = {"w": 0.2 * RANDOM.normal(size=(6, 6)), "scores": RANDOM.normal(size=(2, 3, 3))}
SCORES = "[b:1 s:2 g:1 t:2 |  | b=1 g=2 s=4 t=3]"
HIDDEN = "[b:1 d:2 g:1 t:2 |  | b=1 t=3 g=2 d=3]"
BODY = f"""{entry("x", (1, 3, 6))}
    {entry("mask", (1, 3), "public")}
    %q = poly.linear %x {{weight = @w}} loc "layer.0.query"
    %h = poly.reshape %q {{shape = [1, 3, 2, 3]}}
    %t = poly.transpose %h {{permutation = [0, 2, 1, 3]}}
    %s = poly.matmul %t, %t {{transpose_b = true}}
    %m = poly.add_constant %s {{value = -0.25}}
    %c = poly.chebyshev %m {{coefficients = [0.5, 0.75, 0.0, -0.25], domain = [-1.0, 1.0]}}
    %f = poly.mask_fill %c, %mask {{causal = true, fill = -1.0, bias = @scores}}
    %z = poly.mask_zero %f, %mask {{causal = true, value = -1.0}}
    %o = poly.matmul %z, %t {{transpose_b = false}}
    %v = poly.transpose %o {{permutation = [0, 2, 1, 3]}}
    %y = poly.reshape %v {{shape = [1, 3, 6]}}
    poly.output %y {{name = "y"}}"""


def test_the_mask_is_put_in_before_the_function_and_after_it() -> None:
    """Before it with the middle of its range, after it with what is missing."""
    module = module_of("poly", BODY, ARRAYS)
    after = run_passes(module, [Pack(64)])
    assert short(after) == dedent(f"""
        %0 = ckks.linear_transform %x {{weight = @w, baby_steps = 2, paired = true, layout = "{HIDDEN}"}} loc "layer.0.query"
        %1 = ckks.ct_matmul_qk %0, %0, %mask {{causal = true, fill = 0.25, layout = "{SCORES}"}}
        %2 = ckks.add_plain %1 {{value = -0.25}}
        %3 = ckks.chebyshev %2 {{coefficients = [0.5, 0.75, 0.0, -0.25]}}
        %4 = ckks.mask_fill %3, %mask {{causal = true, fill = -1.5, bias = @scores}}
        %5 = ckks.mask_zero %4, %mask {{causal = true, value = -1.0}}
        %6 = ckks.ct_matmul_pv %5, %0 {{layout = "{HIDDEN}"}}
        ckks.output %6 {{name = "y", shape = [1, 3, 6]}}""")  # noqa: E501
    inputs = {"x": RANDOM.normal(size=(1, 3, 6)), "mask": np.array([[1.0, 1, 0]])}
    wanted = interpret(module, inputs)["y"]
    found = run_packed(after, inputs, SimEngine(64, critical_path(after).total))["y"]
    np.testing.assert_allclose(found, wanted, atol=1e-9)


@pytest.mark.parametrize(
    ("line", "other"),
    [
        ("%f = poly.mask_fill %c", "%d = poly.add %c, %c\n%f = poly.mask_fill %d"),
        ("%f = poly.mask_fill %c", "%d = poly.mul %c, %s\n%f = poly.mask_fill %d"),
        ("%f = poly.mask_fill %c", "%d = poly.square %c\n%f = poly.mask_fill %d"),
    ],
)
def test_other_readers_of_scores_are_refused(line: str, other: str) -> None:
    with pytest.raises(AtlasError, match="matrix product outside of attention"):
        run_passes(module_of("poly", BODY.replace(line, other), ARRAYS), [Pack(64)])


class Capped(nn.Module):
    """Attention whose scores go through a function."""

    def __init__(self, function: Callable[[Any], Any], heads: int, causal: bool, single: bool):
        super().__init__()
        torch.manual_seed(0)
        self.function, self.heads, self.causal, self.single = function, heads, causal, single
        self.q, self.k, self.v = (nn.Linear(12, 12) for _ in range(3))
        self.head = nn.Linear(12, 2)

    def forward(self, x: Any, attention_mask: Any) -> Any:
        asked = x[:, :1] if self.single else x
        q, k, v = (
            layer(h).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for layer, h in ((self.q, asked), (self.k, x), (self.v, x))
        )
        scores = self.function(q @ k.mT)
        hidden = (attention_mask == 0)[:, None, None]
        if self.causal:
            hidden = hidden | torch.ones(x.shape[1], x.shape[1]).triu(1).bool()
        weights = scores.masked_fill(hidden, -torch.inf).softmax(-1)
        return self.head((weights @ v).transpose(1, 2).flatten(2))[:, 0]


CASES: dict[str, tuple[Callable[[Any], Any], int, bool, bool]] = {
    "a cap": (lambda s: 3 * torch.tanh(s / 3), 2, False, False),
    "a cap and later tokens": (lambda s: 2 * torch.tanh(s / 2), 4, True, False),
    "three heads": (lambda s: 3 * torch.tanh(s / 3), 3, False, False),
    "behind a shift": (lambda s: torch.sigmoid(s + 8), 2, False, False),
    "one query": (lambda s: 3 * torch.tanh(s / 3), 2, False, True),
}


@pytest.mark.parametrize("name", CASES)
def test_a_program_with_capped_scores(name: str) -> None:
    model = Capped(*CASES[name]).eval()
    random = np.random.default_rng(1)
    x = random.normal(size=(32, 5, 12)).astype(np.float32)
    mask = (np.arange(5) < random.integers(2, 6, size=(32, 1))).astype(np.int64)
    mask[0] = 1
    data = {"x": x, "attention_mask": mask}
    program = atlasc.compile(model, data, recipe="is", target="sim")
    some = {key: array[:6] for key, array in data.items()}
    with torch.no_grad():
        wanted = model(*(torch.from_numpy(array) for array in some.values())).numpy()
    answer = program.run(some)
    assert not answer.refused and answer.max_error < 1e-9
    np.testing.assert_allclose(answer.outputs["output"], wanted, atol=1e-4)
