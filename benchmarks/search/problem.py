"""The model and the inputs that the benchmark searches."""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path

from atlasc.api.progress import progress
from atlasc.calibration.calibrate import calibrate
from atlasc.compilation.options import SearchOptions
from atlasc.compilation.prepare import prepare
from atlasc.compilation.search import search_problem
from atlasc.loading.data import inputs_of
from atlasc.loading.models import load_model
from atlasc.passes.frontend.trace import trace
from atlasc.polynomials.parametrisation import PRESETS
from atlasc.search.search_problem import SearchProblem

ROOT = Path(__file__).resolve().parents[2]
TOKENS, MARGIN = 64, 0.05


def problem_of(arguments: Namespace, inputs: int) -> SearchProblem:
    """The problem that the command line names: MiniLM, or another model with its data.

    Args:
        arguments: `model`, `data`, `sequence_length`, `space` and `seed`.
        inputs: on how many settings are compared, at most.
    """
    if arguments.model is None:
        return minilm(inputs, arguments.space)
    options = SearchOptions(
        space=arguments.space,
        sequence_length=arguments.sequence_length,
        seed=arguments.seed,
    )
    prepared = prepare(arguments.model, arguments.data, options, progress)
    return search_problem(prepared, options, inputs, extremes=0)


def minilm(inputs: int, space: str) -> SearchProblem:
    """MiniLM on real texts of 64 tokens, with ranges from the same texts and a margin of 5%."""
    sys.path.append(str(ROOT / "examples" / "minilm"))
    import texts

    model = load_model(texts.model_directory())
    arrays = inputs_of(texts.windows(inputs, TOKENS), model, TOKENS).arrays
    one = {name: array[:1] for name, array in arrays.items()}  # an encrypted run answers one text
    module = trace(model.module, one, name="minilm", outputs="last_hidden_state")
    calibration = calibrate(module, arrays, margin=MARGIN)
    return SearchProblem(module, calibration, arrays, parametrisation=PRESETS[space])
