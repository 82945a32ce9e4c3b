"""One encoder layer with approximations: of MiniLM with its weights, of BERT-base's shape."""

from __future__ import annotations

import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from atlasc.analyses.observed import with_magnitudes
from atlasc.ir.interpreter import interpret
from atlasc.ir.module import Module
from atlasc.ir.rewriting import Rewriter, without_dead_ops
from atlasc.passes.approximation.expand import Expand
from atlasc.passes.framework.pass_base import run_passes
from atlasc.passes.pipeline import client_module

if TYPE_CHECKING:
    from atlasc.progress import Steps

TEXTS, SIMULATED = 40, 10
"""Texts that ranges are measured on, and those on which magnitudes are."""


@dataclass(frozen=True)
class Layer:
    """One encoder layer.

    Attributes:
        name: of the model.
        module: nn module with approximations; from the raw inputs to the layer's hidden state.
        inputs: raw inputs, of which the first is run; None for random weights.
    """

    name: str
    module: Module
    inputs: dict[str, np.ndarray] | None

    def encrypted(self) -> dict[str, np.ndarray]:
        """What the server gets of the first input: the embedded tokens, in clear, and the mask."""
        assert self.inputs is not None
        one = {name: array[:1] for name, array in self.inputs.items()}
        return {**one, **interpret(client_module(self.module), one)}

    def unfolded(self) -> Module:
        """The polynomials as ``expand`` leaves them, with magnitudes where there are inputs."""
        poly = run_passes(self.module, [Expand()])
        if self.inputs is None:
            return poly
        embedded = interpret(client_module(self.module), self.inputs)
        return with_magnitudes(poly, {**self.inputs, **embedded})


def first_layer(module: Module) -> Module:
    """The part of an nn module up to the end of its first block, whose hidden state it returns."""
    last = max(position for position, op in enumerate(module.ops) if op.layer == 0)
    rewriter = Rewriter(module)
    for op in module.ops[: last + 1]:
        rewriter.copy(op)
    hidden = rewriter.values[module.ops[last].value]
    rewriter.module.add("nn.output", [hidden], {"name": "hidden"})
    return without_dead_ops(rewriter.module)


def minilm(tokens: int, recipe: str | None, options: dict[str, Any], steps: Steps) -> Layer:
    """The first layer of all-MiniLM-L6-v2 on real texts.

    Args:
        tokens: of a text.
        recipe: named settings; None takes them from the front in ``options``.
        options: of ``atlasc compile``: front, max_error, ...
        steps: shows progress.
    """
    sys.path.append(str(Path(__file__).resolve().parents[2] / "examples" / "minilm"))
    import texts

    from atlasc.compilation.compile import choose
    from atlasc.compilation.fronts import load_front
    from atlasc.compilation.options import CompileOptions
    from atlasc.compilation.prepare import prepare

    options_ = CompileOptions(
        target="sim", recipe=recipe, sequence_length=tokens, outputs="last_hidden_state", **options
    )
    saved = None if options_.front is None else load_front(options_.front)
    with tempfile.TemporaryDirectory() as scratch:
        data = Path(scratch) / "texts.txt"
        data.write_text("\n".join(texts.short_texts(TEXTS, tokens)) + "\n", encoding="utf-8")
        prepared = prepare(str(texts.model_directory()), data, options_, steps, saved)
    chosen = choose(prepared, options_, steps, None if saved is None else saved.front)
    arrays = {name: array[:SIMULATED] for name, array in prepared.source.inputs.arrays.items()}
    return Layer("MiniLM", first_layer(chosen.module), arrays)


def bert_base(tokens: int, recipe: str, steps: Steps) -> Layer:
    """A layer of BERT-base's shape with random weights and nominal ranges: its costs are real."""
    import torch
    import transformers

    from atlasc.calibration.calibrate import nominal_calibration
    from atlasc.passes.approximation.approximate import apply_recipe
    from atlasc.passes.frontend.trace import trace

    with steps("tracing BERT-base's shape"):
        torch.manual_seed(0)
        config = transformers.BertConfig(num_hidden_layers=1)
        model = transformers.BertModel(config, add_pooling_layer=False).eval()
        ids = np.zeros((1, tokens), np.int64)
        inputs = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
        module = trace(model, inputs, name="bert")
    module = apply_recipe(module, recipe, nominal_calibration(module))
    return Layer("BERT-base shape", first_layer(module), None)
