"""Two models that compile in seconds: one of images runs encrypted, without bootstraps, in half a
minute; one of texts has bootstraps, an embedding on the client and a mask.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from atlasc.bundle.folder import Bundle
from atlasc.calibration.calibrate import Calibration
from atlasc.ir.module import Module
from atlasc.polynomials.algorithms.chebyshev import (
    ActivationApproximation,
    NormApproximation,
    SoftmaxApproximation,
)

BATCH = 2
IMAGES = 24
LENGTH = 6
"""Tokens of a text."""


@dataclass(frozen=True)
class Tiny:
    """A model, its data and its bundle.

    Attributes:
        archive: a ``.pt2`` archive.
        data: an ``.npz`` of images in [0, 1].
        bundle: compiled for a batch of 2.
    """

    archive: Path
    data: Path
    bundle: Path

    @classmethod
    def of(cls, folder: Path) -> Tiny:
        """What :func:`make_tiny` left in a folder."""
        return cls(folder / "tiny.pt2", folder / "images.npz", folder / "bundle")


def make_tiny(folder: Path, target: str, *, deep: bool = False) -> Tiny:
    """Four patches of an image, one attention of two heads, three classes; 15 levels, or 7 more."""
    from atlasc.compilation.compile import Chosen, write_program
    from atlasc.compilation.lowering import lower_module
    from atlasc.compilation.options import TargetOptions
    from atlasc.compilation.prepare import calibrate_source, trace_model
    from atlasc.compilation.source import load_source

    tiny = Tiny.of(folder)
    export_model(tiny.archive)
    pixels = np.random.default_rng(0).random((IMAGES, 1, 8, 8)).astype(np.float32)
    np.savez(tiny.data, pixel_values=pixels)
    source = load_source(str(tiny.archive), tiny.data)
    module = trace_model(source.model, BATCH)
    calibration = calibrate_source(module, source, margin=0.3)
    approximate(module, calibration, deep=deep)
    options = TargetOptions(target=target)
    lowered = lower_module(module, source.inputs.arrays, options)
    write_program(tiny.bundle, source, Chosen(module, {}), calibration, lowered, options)
    return tiny


def approximate(module: Module, calibration: Calibration, *, deep: bool = False) -> None:
    """Attach low degrees on the calibrated ranges (in place); ``deep`` takes 7 levels more."""
    for op in module.ops:
        if op.name == "nn.softmax":
            known, rounds = calibration.of(op), 2 if deep else 1
            op.attributes["approximation"] = SoftmaxApproximation(
                (3, 2) if deep else (2,),
                known.high,
                exp_range=((known.low - known.high) / 2**rounds, 0.0),
                exp_degree=7 if deep else 3,
                sum_ranges=((1.0, 4.2), (0.2, 1.05)) if deep else ((0.5, 4.2),),
            )


def approximate_all(module: Module, calibration: Calibration) -> None:
    """Generous approximations of all nonlinear ops on their calibrated ranges (in place)."""
    for op in module.ops:
        if not op.definition.nonlinear or op.value.tensor.side == "client":
            continue
        known = calibration.of(op)
        if op.name == "nn.softmax":
            op.attributes["approximation"] = SoftmaxApproximation(
                (5,), known.high, sum_ranges=((0.05, 6.5),)
            )
        else:
            kind = NormApproximation if op.definition.family == "norm" else ActivationApproximation
            op.attributes["approximation"] = kind(15, (known.low, known.high))


def export_model(path: Path) -> None:
    """Write the archive."""
    import torch
    from torch import nn

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.patch = nn.Conv2d(1, 8, 4, stride=4)
            self.query, self.key, self.value = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)
            self.classes = nn.Linear(8, 3)

        def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
            x = self.patch(pixel_values).flatten(2).transpose(1, 2)
            heads = [
                layer(x).view(*x.shape[:2], 2, 4).transpose(1, 2)
                for layer in (self.query, self.key, self.value)
            ]
            y = nn.functional.scaled_dot_product_attention(*heads)
            return self.classes(y.transpose(1, 2).reshape(x.shape)[:, 0])

    torch.manual_seed(0)
    model = Attention().eval()
    images = {"pixel_values": torch.rand(BATCH, 1, 8, 8)}
    torch.export.save(torch.export.export(model, (), images, strict=False), path)


def simulated(bundle: Bundle, data: Path, rows: list[int]) -> dict[str, np.ndarray]:
    """Outputs of the polynomial simulation for some rows of the data."""
    from atlasc.run.session import simulate

    arrays = bundle.load_inputs(data).take(rows).arrays
    return simulate(bundle.client, bundle.poly, arrays)


def make_text_bundle(root: Path) -> Path:
    """A random BERT of two layers, compiled for token ids of length 6."""
    import torch
    from transformers import BertConfig, BertModel

    from atlasc.compilation.compile import Chosen, write_program
    from atlasc.compilation.lowering import MAGNITUDE_INPUTS, lower_module
    from atlasc.compilation.options import CalibrationOptions, TargetOptions
    from atlasc.compilation.prepare import calibrate_source, trace_model
    from atlasc.compilation.source import load_source

    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=40, hidden_size=8, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=8, max_position_embeddings=16, attn_implementation="sdpa",
    )  # fmt: skip
    BertModel(config, add_pooling_layer=False).save_pretrained(root / "model")
    write_ids(root / "data.jsonl", [3, 4, 5, 6] * 5)
    options = CalibrationOptions(sequence_length=LENGTH)
    source = load_source(str(root / "model"), root / "data.jsonl", options)
    module = trace_model(source.model, 2, LENGTH)
    approximate_all(module, calibrate_source(module, source, margin=0.5))
    found, target = calibrate_source(module, source), TargetOptions(target="sim")
    lowered = lower_module(module, source.few(MAGNITUDE_INPUTS).arrays, target)
    return write_program(root / "bundle", source, Chosen(module, {}), found, lowered, target).folder


def write_ids(path: Path, lengths: list[int]) -> None:
    """Texts of random ids, as many as lengths."""
    rng = np.random.default_rng(len(lengths))
    rows = [{"input_ids": rng.integers(1, 40, size=length).tolist()} for length in lengths]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
