"""How to write an op without a rule by ops that have one; each is tried in a test."""

from __future__ import annotations

REWRITINGS = {
    "index_put": "h[:, :, places] = 0 is h * kept, with a buffer of zeros and ones",
    "embedding_bag": "nn.EmbeddingBag(ids) of texts of one length is nn.Embedding(ids).mean(1)",
    "cos": "cos and sin of positions belong into buffers, which are made once",
    "sin": "cos and sin of positions belong into buffers, which are made once",
    "masked_fill": "masked_fill(h, mask, 0) of a constant mask is h * (1 - mask.float())",
}
"""Name of an op of aten -> how its result is computed by ops that have a rule."""
