"""The mean and the last of the tokens that an attention mask keeps, however a model writes it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from atlasc.ir.errors import AtlasError
from atlasc.ir.interpreter import interpret
from atlasc.ir.module import Module
from atlasc.passes.frontend.trace import trace

IDS = np.array([[3, 1, 4, 1, 5, 9], [2, 6, 5, 3, 5, 8], [9, 7, 9, 3, 2, 3]])
MASK = np.array([[1, 1, 1, 1, 1, 1], [1, 1, 0, 0, 0, 0], [0, 1, 0, 1, 1, 0]])
MEANS: dict[str, Any] = {
    "sums": lambda h, m: (h * m[..., None]).sum(1) / m.sum(1, keepdim=True),
    "mask first": lambda h, m: (m.unsqueeze(-1) * h).sum(-2) / m.sum(-1)[..., None],
    "sentence-transformers": lambda h, m: (h * wide(h, m)).sum(1) / clamped(wide(h, m).sum(1)),
    "contriever": lambda h, m: (
        h.masked_fill(~m[..., None].bool(), 0.0).sum(dim=1) / m.sum(dim=1)[..., None]
    ),
    "where": lambda h, m: (
        torch.where(m[..., None].bool(), h, torch.zeros(4)).sum(1) / m.sum(1)[:, None]
    ),
    "shares": lambda h, m: (h * (m / m.sum(1, keepdim=True))[..., None]).sum(1),
    "means": lambda h, m: (h * m[..., None]).mean(1) / m[..., None].float().mean(1),
    "keepdim": lambda h, m: (
        (h * m[..., None]).sum(1, keepdim=True) / m.sum(1)[:, None, None]
    ).squeeze(1),
    "divided first": lambda h, m: (h * m[..., None] / m.sum(1)[:, None, None]).sum(1),
    "reciprocal": lambda h, m: (h * m[..., None]).sum(1) * (1.0 / m.sum(1, keepdim=True)),
    "matmul": lambda h, m: (m[:, None].float() @ h).squeeze(1) / m.sum(1, keepdim=True),
    "einsum": lambda h, m: torch.einsum("bt,btd->bd", m.float(), h) / m.sum(1, keepdim=True),
}
LASTS: dict[str, Any] = {
    "HuggingFace": lambda h, m: h[torch.arange(len(h)), (m * torch.arange(6)).argmax(1)],
    "sentence-transformers": lambda h, m: (
        torch.gather(h * wide(h, m), 1, (5 - m.flip(1).max(1)[1])[:, None, None].repeat(1, 1, 4))
    ).squeeze(1),
    "gather": lambda h, m: h.gather(1, last(m)[:, None, None].expand(-1, 1, 4))[:, 0],
    "take along": lambda h, m: h.take_along_dim(last(m)[:, None, None], 1).squeeze(1),
    "one-hot": lambda h, m: (h * (torch.arange(6) == last(m)[:, None])[..., None]).sum(1),
    "matmul": lambda h, m: (
        torch.nn.functional.one_hot(last(m), 6).float().unsqueeze(1) @ h
    ).flatten(1),
}
COUNTED: dict[str, Any] = {
    "count": lambda h, m: h[torch.arange(len(h)), m.sum(1) - 1],
    "the first": lambda h, m: h[torch.arange(len(h)), m.argmax(1)],
    "before the last": lambda h, m: h[torch.arange(len(h)), last(m) - 1],
}
OTHERS: dict[str, Any] = {
    "sum": lambda h, m: (h * m[..., None]).sum(1),
    "over all tokens": lambda h, m: (h * m[..., None]).sum(1) / 6,
    "of what is dropped": lambda h, m: (h * (1 - m)[..., None]).sum(1) / m.sum(1, keepdim=True),
    "another weight": lambda h, m: (h * m[..., None]).sum(1) / m.sum(1, keepdim=True) ** 2,
    "batch": lambda h, m: (h * m[..., None]).sum(0) / m.sum(),
    "filled with 1": lambda h, m: (
        h.masked_fill(~m[..., None].bool(), 1.0).sum(1) / m.sum(1, keepdim=True)
    ),
}


def wide(h: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    return m.unsqueeze(-1).expand(h.size()).float()


def last(m: torch.Tensor) -> torch.Tensor:
    return (m * torch.arange(m.shape[1])).argmax(1)


def clamped(count: torch.Tensor) -> torch.Tensor:
    return torch.clamp(count, min=1e-9)


class Pooled(torch.nn.Module):
    """A layer on embeddings, a mean, a head."""

    def __init__(self, mean: Any) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.mean, self.embeddings = mean, torch.nn.Embedding(10, 4)
        self.layer, self.head = torch.nn.Linear(4, 4), torch.nn.Linear(4, 3)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        return self.head(self.mean(self.layer(self.embeddings(input_ids)), attention_mask))


def traced(mean: Any, dtype: torch.dtype = torch.float32) -> tuple[Pooled, Module]:
    model = Pooled(mean).eval().to(dtype)
    inputs = {"input_ids": torch.from_numpy(IDS), "attention_mask": torch.from_numpy(MASK)}
    return model, trace(model, inputs, name="pooled")


@pytest.mark.parametrize(
    ("form", "is_last"),
    [
        *(pytest.param(form, False, id=f"mean, {name}") for name, form in MEANS.items()),
        *(pytest.param(form, True, id=f"last, {name}") for name, form in LASTS.items()),
    ],
)
def test_it_is_one_op_and_equals_torch(form: Any, is_last: bool) -> None:
    model, module = traced(form)
    means = [op for op in module.ops if op.name == "nn.mean"]
    assert [op.operands[1].op.attributes["side"] for op in means] == ["public"]
    assert [op.attributes.get("last", False) for op in means] == [is_last]
    (found,) = interpret(module, {"input_ids": IDS, "attention_mask": MASK}).values()
    with torch.no_grad():
        wanted = model(torch.from_numpy(IDS), torch.from_numpy(MASK)).numpy()
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-6)


def test_zeros_in_padding_that_nobody_reads_are_left_out() -> None:
    model, module = traced(lambda h, m: h * m[..., None])
    (found,) = interpret(module, {"input_ids": IDS, "attention_mask": MASK}).values()
    with torch.no_grad():
        wanted = model(torch.from_numpy(IDS), torch.from_numpy(MASK)).numpy()
    kept = MASK.astype(bool)
    np.testing.assert_allclose(found[kept], wanted[kept], rtol=0, atol=1e-6)


def test_a_mean_in_a_short_type() -> None:
    _, module = traced(MEANS["sums"], torch.bfloat16)
    assert any(op.name == "nn.mean" for op in module.ops)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", OTHERS)
def test_other_uses_of_a_mask_are_refused_with_what_is_understood(
    name: str, dtype: torch.dtype
) -> None:
    with pytest.raises(AtlasError) as caught:
        traced(OTHERS[name], dtype)
    assert "the mean of the tokens that the mask keeps" in str(caught.value)


@pytest.mark.parametrize("name", COUNTED)
def test_other_choices_by_the_mask_are_refused_with_the_one_that_is_understood(name: str) -> None:
    with pytest.raises(AtlasError, match="which token is read depends on the mask") as caught:
        traced(COUNTED[name])
    assert "(mask * arange(tokens)).argmax(1)" in str(caught.value)


def test_features_of_a_mean_that_a_constant_mask_chooses() -> None:
    kept = torch.tensor([True, False, True, True])
    model, module = traced(lambda h, m: torch.cat([MEANS["sums"](h, m)[:, kept], h[:, 0, :1]], -1))
    (found,) = interpret(module, {"input_ids": IDS, "attention_mask": MASK}).values()
    with torch.no_grad():
        wanted = model(torch.from_numpy(IDS), torch.from_numpy(MASK)).numpy()
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-6)
