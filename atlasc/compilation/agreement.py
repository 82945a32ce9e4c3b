"""By what measure the answers of a model are compared with those of its program."""

from __future__ import annotations

from atlasc.ir.errors import AtlasError
from atlasc.ir.module import Module
from atlasc.loading.models import LoadedModel
from atlasc.passes.simulation.agreement import MEASURES, Measure

ONE_CLASS = ("ForSequenceClassification", "ForImageClassification")
EACH_TOKEN = (
    "ForTokenClassification",
    "ForCausalLM",
    "LMHeadModel",
    "ForMaskedLM",
    "ForPreTraining",
)
VECTORS = ("embed", "hidden", "pool", "vector", "feature")
"""In the names of outputs that are no scores."""


def measure_of(model: LoadedModel, module: Module, chosen: str | None = None) -> Measure:
    """What counts in the answers of a model: the class, that of each token, or the numbers.

    The architecture of a HuggingFace model tells. Of other modules the output tells: answers
    ``[batch, K]`` are taken for scores of classes, the stricter way, unless their name says that
    they are none.

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
        measure = next(one for one in MEASURES if one == chosen)
        if not possible.get(measure, True):
            raise AtlasError(
                f"--measure {chosen} does not suit the model",
                why=f"its answers have the shape {list(shape)}",
                remedy="use --measure values, or leave it out",
            )
        return measure
    config, architecture = model.config, type(model.module).__name__
    if getattr(config, "problem_type", None) in ("regression", "multi_label_classification"):
        return "values"
    told = config is not None or any(map(architecture.endswith, (*ONE_CLASS, *EACH_TOKEN)))
    if told and not any(map(architecture.endswith, (*ONE_CLASS, *EACH_TOKEN))):
        return "class" if possible["class"] and name == "logits" else "values"
    if possible["class"] and not any(word in name for word in VECTORS):
        return "class"
    tokens = any(map(architecture.endswith, EACH_TOKEN)) or (not told and name == "logits")
    return "tokens" if possible["tokens"] and tokens else "values"
