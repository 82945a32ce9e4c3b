"""How answers are compared with the model's, and a statistical bound on how many inputs like the
user's are unsafe, from the held-back ones.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from atlasc.client.checks import MASK
from atlasc.client.program import client_program
from atlasc.client.verdict import Verdict, verdicts
from atlasc.compilation.declared import choose
from atlasc.ir.errors import AtlasError
from atlasc.ir.module import Module
from atlasc.loading.loaded_model import LoadedModel
from atlasc.passes.pipeline import Lowered
from atlasc.progress import Steps
from atlasc.simulation.agreement import LEAST_AGREEMENT, MEASURE, MEASURES, ROUNDING, Measure
from atlasc.simulation.output_errors import output_error
from atlasc.simulation.simulate import exact_answers
from atlasc.simulation.watch import KNOWS_MODEL, both_answers

if TYPE_CHECKING:
    from atlasc.compilation.prepare import PreparedModel

CONFIDENCE = 0.95
FEW = 4
"""Number of inputs on which the functions that the polynomials approximate are compared with the
model."""
PARTS = 4
"""Lengths are grouped by quarters of the compiled length."""
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


@dataclass(frozen=True)
class Statement:
    """The bound for inputs of some lengths.

    Attributes:
        tokens: least and greatest length of these texts; None for inputs of all lengths.
        inputs: number of held-back inputs of these lengths.
        unsafe: number of these inputs whose answer would differ from the model's.
        bound: upper bound on the share of unsafe inputs; see `clopper_pearson`.
        undecided: number of these inputs on which the model itself hardly decides; they do not
            count as unsafe.
        error: greatest error that is stated for the others (`Verdict.stated`), encryption included;
            None if it is not known, or if all are unsafe.
    """

    tokens: tuple[int, int] | None
    inputs: int
    unsafe: int
    bound: float
    undecided: int = 0
    error: float | None = None

    def __str__(self) -> str:
        which = "inputs" if self.tokens is None else "texts of {} to {} tokens".format(*self.tokens)
        return (
            f"at most {self.bound:.2%} of {which} like these are unsafe, with {CONFIDENCE:.0%} "
            f"confidence ({self.unsafe} of {self.inputs} held-back ones are"
            + (f", and the class of {self.undecided} is not certain" if self.undecided else "")
            + ("" if self.error is None else f"; the others err by at most {self.error:.2g}")
            + ")"
        )

    def to_dict(self) -> dict[str, Any]:
        """The statement as JSON values."""
        return asdict(self)


def tried_program(
    prepared: PreparedModel, settings: dict[str, Any], lowered: Lowered, steps: Steps
) -> list[Statement]:
    """Statements from the verdicts on held-back inputs about other inputs.

    The agreement of the held-back answers with the model is written into the settings.
    """
    inputs, own = prepared.source.validated, len(prepared.source.held_back)
    client, poly = client_program(lowered.client, lowered.program), lowered.poly
    few = prepared.source.few(FEW).arrays
    _, functions = both_answers(poly, client.embedded(few))
    exact = exact_answers(prepared.module, few, np.float64)
    apart = output_error(functions, exact, dict.fromkeys(functions))
    magnitude = max(float(np.abs(y).max()) for y in exact.values())
    rounding = ROUNDING * settings["variation"] + np.finfo(np.float32).eps * magnitude
    poly.attributes[KNOWS_MODEL] = bool(apart <= rounding)
    asked = settings["agreement_asked"] = LEAST_AGREEMENT[settings["promise"][MEASURE]]
    if not len(inputs):
        return []
    with steps("checking the program on held-back inputs", len(inputs)) as step:
        # Exact answers come from the model: unlike the poly module, it spends no time on padding.
        answers = prepared.validated_answers()
        found = verdicts(client, poly, inputs.arrays, inputs.names, step.report, answers)
    agreement = float(np.mean([one.agreement or 0.0 for one in found[:own]]))
    settings |= {"agreement": agreement, "agrees": agreement >= asked}
    return statements(found, inputs.arrays.get(MASK))


def clopper_pearson(unsafe: int, inputs: int, confidence: float = CONFIDENCE) -> float:
    """Upper bound, at the given confidence, on the share of unsafe inputs.

    ``unsafe`` of a random sample of ``inputs`` are unsafe (Clopper and Pearson 1934, one-sided).
    """
    from scipy.stats import beta

    return 1.0 if unsafe >= inputs else float(beta.ppf(confidence, unsafe + 1, inputs - unsafe))


def statements(found: Sequence[Verdict], mask: np.ndarray | None = None) -> list[Statement]:
    """Statements on all held-back inputs, and on texts by length; none without held-back inputs.

    Args:
        found: verdicts on the held-back inputs.
        mask: their attention mask ``[inputs, tokens]``, if they are texts.
    """
    if not found:
        return []
    return [_statement(None, found), *_by_length(mask, found)]


def _by_length(mask: np.ndarray | None, found: Sequence[Verdict]) -> Iterator[Statement]:
    if mask is None:
        return
    lengths, whole = mask.sum(axis=1), mask.shape[1]
    ends = [whole * part // PARTS for part in range(PARTS + 1)]
    for least, most in itertools.pairwise(ends):
        some = (least < lengths) & (lengths <= most)
        if some.any():
            chosen = [found[row] for row in np.flatnonzero(some).tolist()]
            yield _statement((least + 1, most), chosen)


def _statement(tokens: tuple[int, int] | None, found: Sequence[Verdict]) -> Statement:
    count = sum(one.unsafe for one in found)
    stated = [one.stated for one in found if not one.unsafe and one.stated is not None]
    # Rounded, because the last digits depend on the order of sums and a bundle should not.
    return Statement(
        tokens,
        len(found),
        count,
        clopper_pearson(count, len(found)),
        sum(one.kind == "undecided" for one in found),
        float(f"{max(stated):.2g}") if stated else None,
    )


def require_enough(inputs: int, limit: float | None) -> None:
    """Raise AtlasError if ``inputs`` held-back inputs are too few to show a limit.

    This is checked before any search, as if no input were unsafe.
    """
    if limit is not None and clopper_pearson(0, inputs) > limit:
        raise _not_shown(limit, f"{inputs} held-back inputs are too few to show it")


def require(found: list[Statement], limit: float | None) -> None:
    """Raise AtlasError unless the bound for all inputs is within a limit.

    Without a limit, at least half of the held-back inputs must be safe.
    """
    if limit is not None and found[0].bound > limit:
        raise _not_shown(limit, str(found[0]))
    if limit is None and found and 2 * found[0].unsafe > found[0].inputs:
        raise AtlasError(
            f"the program is of no use: {found[0].unsafe} of {found[0].inputs} held-back inputs "
            "would get a wrong answer",
            why="its polynomials are wrong on these inputs, or values leave their ranges; nothing "
            "was written",
            remedy="search for settings (leave --recipe out), or choose a smaller --max-error",
        )


def _not_shown(limit: float, why: str) -> AtlasError:
    needed = math.ceil(math.log(1 - CONFIDENCE) / math.log1p(-limit))
    return AtlasError(
        f"the data cannot show that at most {limit:.3g} of the inputs are unsafe",
        why=why,
        remedy=f"hold back at least {needed} inputs (--data, held-back of --ranges), all of them "
        "safe; to make fewer inputs unsafe, give data of all kinds, or a wider margin of --ranges",
    )
