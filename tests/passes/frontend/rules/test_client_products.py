"""What the client does with its mask and its tokens before the first block."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from atlasc.ir.interpreter import interpret
from atlasc.passes.frontend.trace import trace

TOKENS = 6


class Embedded(nn.Module):
    """Embeddings times the mask, and their neighbours beside them, before a layer."""

    def __init__(self, late: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.late, self.table = late, nn.Embedding(20, 8)
        self.layers = nn.ModuleList([nn.Linear(24, 8)])

    def forward(self, input_ids, attention_mask):
        h, mask = self.table(input_ids), attention_mask.unsqueeze(-1)
        if not self.late:
            h = h * mask
        before = F.pad(h[:, :-1], [0, 0, 1, 0, 0, 0], value=0.0)
        after = F.pad(h[:, 1:], [0, 0, 0, 1, 0, 0], value=0.0)
        h = self.layers[0](torch.cat([after, h, before], 2))
        return h * mask if self.late else h


INPUTS = {
    "input_ids": np.random.default_rng(0).integers(0, 20, (3, TOKENS)),
    "attention_mask": (np.arange(TOKENS) < np.array([[6], [4], [1]])).astype(np.int64),
}


def test_the_client_writes_zeros() -> None:
    model = Embedded(False).eval()
    module = trace(model, INPUTS, name="m")
    assert "nn.zero_padding" in [op.name for op in module.ops]
    with torch.no_grad():
        wanted = model(*map(torch.from_numpy, INPUTS.values())).numpy()
    (found,) = interpret(module, INPUTS).values()
    np.testing.assert_allclose(found, wanted, atol=1e-6)


def test_zeros_that_the_server_would_write_and_nobody_reads_are_left_out() -> None:
    model = Embedded(True).eval()
    module = trace(model, INPUTS, name="m")
    assert "nn.zero_padding" not in [op.name for op in module.ops]
    with torch.no_grad():
        wanted = model(*map(torch.from_numpy, INPUTS.values())).numpy()
    (found,) = interpret(module, INPUTS).values()
    kept = INPUTS["attention_mask"].astype(bool)
    np.testing.assert_allclose(found[kept], wanted[kept], atol=1e-6)
