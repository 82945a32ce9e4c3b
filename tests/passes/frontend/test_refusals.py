"""What the frontend cannot take is said at once, with op, module path and source line."""

from __future__ import annotations

from itertools import product, starmap

import numpy as np
import pytest

from atlasc.ir.errors import AtlasError
from atlasc.passes.frontend.rules.masks import Meaning, meaning, probe_masks
from atlasc.passes.frontend.trace import ShapeSpec, trace

X = {"x": ShapeSpec((1, 4, 8), "f32")}


@pytest.mark.parametrize("extents", [(2**20, 2**20), (2**62,)])
def test_a_constant_as_large_as_the_machine_is_refused(extents: tuple[int, ...]) -> None:
    import torch

    class Model(torch.nn.Module):
        def forward(self, x):
            return x + torch.zeros(8)

    program = torch.export.export(Model(), (torch.zeros(1, 4, 8),), strict=False)
    (node,) = program.graph.find_nodes(op="call_function", target=torch.ops.aten.zeros.default)
    node.args = (list(extents),)
    with pytest.raises(AtlasError, match="a constant of the model is too large"):
        trace(program, X, name="large")


def _strange_model():
    import torch

    class Block(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.dense = torch.nn.Linear(8, 8)

        def forward(self, x):
            return torch.tan(self.dense(x)) + torch.cumprod(x, 1)

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.ModuleList([Block(), Block()])

        def forward(self, x):
            for layer in self.layers:
                x = layer(x)
            return x

    return Model()


def test_all_unsupported_ops_are_reported_at_once():
    with pytest.raises(AtlasError) as caught:
        trace(_strange_model(), X, name="strange")
    text = str(caught.value)
    for part in ("4 ops", "aten.tan.default", "aten.cumprod.default", "layers.0 and 1 more"):
        assert part in text
    assert "test_refusals.py:" in text
    assert "aten_rules.py" in caught.value.remedy


def test_unknown_input_and_output(tiny_model, tiny_inputs):
    with pytest.raises(AtlasError, match="has no input pixels"):
        trace(_strange_model(), {"pixels": ShapeSpec((1, 2, 8, 8), "f32")}, name="x")
    with pytest.raises(AtlasError, match="the model takes pixel_values"):
        trace(tiny_model("vit"), {"pixels": ShapeSpec((1, 2, 8, 8), "f32")}, name="x")
    with pytest.raises(AtlasError, match=r"no output 'logits'.*\n.*last_hidden_state"):
        trace(tiny_model("vit"), tiny_inputs("vit", 0), name="x", outputs="logits")


def test_wrong_image_size(tiny_model):
    with pytest.raises(AtlasError, match=r"torch\.export cannot trace ViTModel"):
        trace(tiny_model("vit"), {"pixel_values": ShapeSpec((1, 2, 9, 9), "f32")}, name="x")


def test_exported_for_another_shape(tiny_model, tiny_inputs):
    from atlasc.passes.frontend.trace import export

    program = export(tiny_model("vit"), tiny_inputs("vit", 0))
    with pytest.raises(AtlasError, match="was exported for"):
        trace(program, {"pixel_values": ShapeSpec((1, 2, 8, 8), "f32")}, name="x")


def test_exported_in_training_mode():
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(0.5)).train()
    program = torch.export.export(model, (torch.zeros(1, 8),), strict=False)
    with pytest.raises(AtlasError, match="training mode"):
        trace(program, {}, name="x")


def test_each_fault_has_a_line_of_its_own() -> None:
    import torch

    class Model(torch.nn.Module):
        def forward(self, x):
            return x.sort(dim=-1).values + x.cumprod(dim=-1)

    with pytest.raises(AtlasError, match="2 ops of the model cannot be compiled") as caught:
        trace(Model(), X, name="x")
    first, *places = str(caught.value).partition("  why:")[0].splitlines()[1:]
    assert first == "  where: "
    assert [line.split()[0] for line in places] == [
        "aten.sort.default",
        "aten.cumprod.default",
    ]


SCORES = (2, 3, 5, 5)
LATER = np.triu(np.ones((5, 5), dtype=bool), 1)


@pytest.mark.parametrize("additive", [False, True])
@pytest.mark.parametrize("expected", [*starmap(Meaning, product((0, 1), (0, 1), (0, 2, 3, 4)))])
def test_meaning_of_masks(expected, additive):
    import torch

    def evaluate(mask):
        keep = np.ones((2, 1, 5, 5), dtype=bool)
        if expected.by_mask:
            keep = keep & mask.astype(bool)[:, None, None, :]
        if expected.causal:
            keep = keep & ~LATER
        if expected.window:
            keep = keep & ~np.triu(LATER, expected.window) & ~np.triu(LATER, expected.window).T
        values = np.where(keep, 0.0, -1e30).astype(np.float32) if additive else keep
        return torch.from_numpy(values)

    probes = probe_masks(2, 5)
    found = meaning(evaluate, probes, SCORES, "")
    assert found == expected


@pytest.mark.parametrize(
    "strange",
    [
        lambda mask: mask.astype(bool)[:, None, :, None] & np.ones((1, 1, 5, 5), dtype=bool),
        lambda mask: ~mask.astype(bool)[:, None, None, :],
        lambda mask: -1.5 * (1 - mask[:, None, None, :].astype(np.float32)),
        lambda mask: ~LATER[None, None, ::-1],
        lambda mask: ~(np.eye(5, k=2) + np.eye(5, k=-2)).astype(bool)[None, None],
        lambda mask: ~np.triu(LATER, 2)[None, None],
    ],
    ids=["queries", "inverted", "finite", "reversed", "dilated", "one-sided"],
)
def test_other_masks_are_refused(strange):
    import torch

    with pytest.raises(AtlasError, match="attention mask"):
        meaning(
            lambda mask: torch.from_numpy(np.ascontiguousarray(strange(mask))),
            probe_masks(2, 5),
            SCORES,
            "",
        )
