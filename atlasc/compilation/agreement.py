"""How the answers of a program are compared with those of its model."""

from __future__ import annotations

from typing import cast

from atlasc.compilation.declared import choose
from atlasc.ir.errors import AtlasError
from atlasc.ir.module import Module
from atlasc.loading.models import LoadedModel
from atlasc.simulation.agreement import MEASURES, Measure

VECTORS = ("embed", "hidden", "pool", "vector", "feature")
"""Words in the names of outputs that are no scores."""


def measure_of(model: LoadedModel, module: Module, chosen: str | None = None) -> Measure:
    """The measure of agreement: the class of an answer, the class of each token, or the values.

    HuggingFace calls scores of classes ``logits``, and its config marks regressions. Of modules
    without a config, answers ``[batch, K]`` count as scores, which is the stricter choice, unless
    the name of the output says otherwise.

    Args:
        model: the loaded model.
        module: the traced model.
        chosen: the user's choice; None derives the measure from the model.

    Raises:
        AtlasError: ``chosen`` does not suit the answers.
    """
    output = module.outputs[0]
    shape, name = output.operands[0].tensor.shape, str(output.attributes["name"]).lower()
    possible = {
        "class": len(shape) == 2 and shape[-1] > 1,
        "tokens": len(shape) == 3 and shape[-1] > 1,
    }
    if chosen is not None:
        measure = cast(Measure, choose("--measure", chosen, MEASURES))
        if not possible.get(measure, True):
            raise AtlasError(
                f"--measure {chosen} does not suit the model",
                why=f"its answers have the shape {list(shape)}",
                remedy="use --measure values, or leave --measure out",
            )
        return measure
    if getattr(model.config, "problem_type", None) in ("regression", "multi_label_classification"):
        return "values"
    if name.endswith("logits"):
        return next((one for one in MEASURES if possible.get(one)), "values")
    bare = model.config is None and not any(word in name for word in VECTORS)
    return "class" if bare and possible["class"] else "values"
