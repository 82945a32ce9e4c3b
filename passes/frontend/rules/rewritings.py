"""How to write an op without a rule by ops that have one; each is tried in a test."""

from __future__ import annotations

REWRITINGS = {
    "abs": "abs(h) is 2 * relu(h) - h",
    "clamp": "clamp(h, a, b) is a + relu(h - a) - relu(h - b)",
    "clamp_min": "clamp_min(h, a) is a + relu(h - a)",
    "clamp_max": "clamp_max(h, b) is b - relu(b - h)",
    "relu6": "relu6(h) is relu(h) - relu(h - 6)",
    "leaky_relu": "leaky_relu(h, a) is a * h + (1 - a) * relu(h)",
    "maximum": "maximum(h, k) is k + relu(h - k)",
    "minimum": "minimum(h, k) is h - relu(h - k)",
    "lerp": "lerp(h, k, w) is (1 - w) * h + w * k",
    "where": "where(h > 0, h, 0) is relu(h); where(mask, h, k) of a constant mask is "
    "h * mask.float() + k * (1 - mask.float())",
    "index_put": "h[:, :, places] = 0 is h * kept, with a buffer of zeros and ones",
    "batch_norm": "in evaluation mode a batch norm is h * scale + shift, with two buffers",
    "embedding_bag": "nn.EmbeddingBag(ids) of texts of one length is nn.Embedding(ids).mean(1)",
    "cos": "cos and sin of positions belong into buffers, which are made once",
    "sin": "cos and sin of positions belong into buffers, which are made once",
    "masked_fill": "masked_fill(h, mask, 0) of a constant mask is h * (1 - mask.float())",
}
"""Name of an op of aten -> how its result is computed by ops that have a rule."""
