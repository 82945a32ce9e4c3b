"""Question answering: both logits of a span are outputs, and a final squeeze is the client's."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import transformers

from atlasc.ir.final_functions import finished
from atlasc.ir.interpreter import interpret
from atlasc.passes.frontend.trace import trace
from benchmarks.families.models import FAMILIES
from benchmarks.families.stages import answers

NAMES = ("bert", "roberta", "distilbert", "electra", "albert", "xlm-roberta", "camembert", "mpnet",
         "modernbert", "gpt2", "gpt-neox", "opt", "bloom", "llama", "mistral", "qwen2", "qwen3",
         "smollm3")  # fmt: skip


def _class(name: str) -> str:
    """The class of a family that answers questions; empty if there is none."""
    start = FAMILIES[name].config.removesuffix("Config")
    found = f"{start}ForQuestionAnswering"
    return found if hasattr(transformers, found) else ""


def test_there_are_15_families_or_more() -> None:
    assert sum(bool(_class(name)) for name in NAMES) >= 15


@pytest.mark.parametrize("name", [name for name in NAMES if _class(name)])
def test_both_ends_of_a_span_are_answered(name: str) -> None:
    family = replace(FAMILIES[name], model=_class(name))
    model, inputs = family.build(), family.inputs(2)
    module = trace(model, inputs, name="span")
    wanted, found = answers(model, inputs), interpret(module, inputs)
    assert list(found) == ["start_logits", "end_logits"]
    mask = inputs["attention_mask"].astype(bool)
    for op in module.outputs:
        label = op.attributes["name"]
        assert op.attributes["function"] == "squeeze"
        logits = finished("squeeze", found[label])
        np.testing.assert_allclose(logits[mask], wanted[label][mask], atol=1e-4)


def test_electras_discriminator_has_a_number_for_each_token() -> None:
    family = replace(FAMILIES["electra"], model="ElectraForPreTraining")
    model, inputs = family.build(), family.inputs(2)
    module = trace(model, inputs, name="discriminator")
    (op,) = module.outputs
    assert (op.attributes["name"], op.attributes["function"]) == ("logits", "squeeze")
    mask = inputs["attention_mask"].astype(bool)
    logits = finished("squeeze", interpret(module, inputs)["logits"])
    np.testing.assert_allclose(logits[mask], answers(model, inputs)["logits"][mask], atol=1e-4)
