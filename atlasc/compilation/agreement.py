"""By what measure the answers of a model are compared with those of its program."""

from __future__ import annotations

from typing import cast

from atlasc.compilation.declared import choose
from atlasc.ir.errors import AtlasError
from atlasc.ir.module import Module
from atlasc.loading.models import LoadedModel
from atlasc.simulation.agreement import MEASURES, Measure

VECTORS = ("embed", "hidden", "pool", "vector", "feature")
"""In the names of outputs that are no scores."""


def measure_of(model: LoadedModel, module: Module, chosen: str | None = None) -> Measure:
    """What counts in the answers of a model: the class, that of each token, or the numbers.

    HuggingFace calls scores of classes ``logits``, and its config tells regressions. Of modules
    without a config, answers ``[batch, K]`` are taken for scores, the stricter way, unless their
    name says that they are none.

    Args:
        module: the traced model.
        chosen: what the user named; None for what the model tells.

    Raises:
        AtlasError: the user's choice does not suit the answers.
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
                remedy="use --measure values, or leave it out",
            )
        return measure
    if getattr(model.config, "problem_type", None) in ("regression", "multi_label_classification"):
        return "values"
    if name.endswith("logits"):
        return next((one for one in MEASURES if possible.get(one)), "values")
    bare = model.config is None and not any(word in name for word in VECTORS)
    return "class" if bare and possible["class"] else "values"
