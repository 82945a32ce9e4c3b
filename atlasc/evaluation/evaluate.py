"""``evaluate``: accuracy and agreement of a compiled program on a labelled set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from atlasc.bundle.folder import Bundle
from atlasc.client.verdict import Verdict
from atlasc.evaluation.module import from_module
from atlasc.evaluation.stages import (
    ENCRYPTED,
    PACKED,
    POLYNOMIALS,
    Stage,
    clear_stages,
    executed,
    sample,
)
from atlasc.ir.errors import AtlasError, counted, listed
from atlasc.loading.inputs import Inputs
from atlasc.loading.labels import Labels, labels_of, names_of_classes
from atlasc.progress import Note, Steps, quiet, silent
from atlasc.simulation.agreement import UNKNOWN, Comparison, Promise, compared
from atlasc.simulation.confusion import Confusion, confusion
from atlasc.simulation.intervals import fisher, wilson
from atlasc.simulation.scores import correlation, log_probabilities, ranks, right

WORST = 10
"""Number of inputs that a report lists as the worst."""


@dataclass(frozen=True)
class Figures:
    """The figures of one stage.

    Attributes:
        stage: see `MEANINGS`.
        inputs: number of answered inputs.
        labelled: number of these with a label.
        accuracy: share of right classes; None without labels or classes.
        accuracy_interval: its 95% confidence interval (Wilson).
        pearson, spearman: correlation of values with labels; None without labels or for classes.
        pearson_interval: its 95% confidence interval (Fisher).
        agreement: share of answers that agree with the model's.
        agreement_interval: its 95% confidence interval (Wilson).
        divergence: mean Kullback-Leibler divergence of the program's probabilities from the
            model's, in nats; None without classes. This and all following figures leave out unsafe
            inputs, which get no answer.
        max_error, mean_error: greatest and mean error of an answer: the mean absolute difference
            of its numbers from the model's, in the unit of the output, without padding.
        least_cosine: least cosine with the model's answers.
        seconds: seconds of a run on an engine; None for stages in the clear.
    """

    stage: str
    inputs: int
    labelled: int
    accuracy: float | None
    accuracy_interval: tuple[float, float] | None
    pearson: float | None
    pearson_interval: tuple[float, float] | None
    spearman: float | None
    agreement: float
    agreement_interval: tuple[float, float]
    divergence: float | None
    max_error: float
    mean_error: float
    least_cosine: float
    seconds: float | None = None


@dataclass(frozen=True)
class Judged:
    """One input: its label, and the answers of model and program.

    Attributes:
        input: name of the input.
        verdict: safe, undecided or unsafe.
        why: why it is not safe; empty if it is.
        label, model, program: names of classes, or values; None if there is none.
        error: error of the polynomials' answer: the mean absolute difference of its numbers from
            the model's.
        agreement: agreement with the model's answer, from 0 to 1.
    """

    input: str
    verdict: str
    why: str
    label: str | float | None
    model: str | float | None
    program: str | float | None
    error: float
    agreement: float


@dataclass(frozen=True)
class Evaluation:
    """Quality of a program on a labelled set.

    Attributes:
        program: name of the model.
        measure: how agreement with the model is judged: class, tokens or values.
        promise: the program's promise, in words.
        inputs: number of given inputs.
        figures: one row for each stage, the model first.
        judged: one row for each input that can be encrypted, in the order of the inputs.
        unsafe: name of an unsafe input -> why it is unsafe.
        undecided: name of an input on which the model itself hardly decides -> why.
        left_out: name of an input that cannot be encrypted -> why; no stage answers it.
        unlabelled: name of an input without a usable label -> why.
        notes: what a reader should know.
        module: how far the program is from the user's own module on the inputs that were kept, see
            `from_module`; None if none were.
    """

    program: str
    measure: str
    promise: str
    inputs: int
    figures: tuple[Figures, ...]
    judged: tuple[Judged, ...]
    unsafe: dict[str, str]
    undecided: dict[str, str]
    left_out: dict[str, str]
    unlabelled: dict[str, str]
    notes: tuple[str, ...] = ()
    module: dict[str, float | None] | None = None

    def stage(self, name: str) -> Figures:
        """The figures of a stage; raises KeyError if the stage was not run."""
        return {one.stage: one for one in self.figures}[name]

    @property
    def accuracy(self) -> float | None:
        """Accuracy of the polynomials; None without labels."""
        return self.stage(POLYNOMIALS).accuracy

    @property
    def agreement(self) -> float:
        """Share of the polynomials' answers that agree with the model's."""
        return self.stage(POLYNOMIALS).agreement

    @property
    def worst(self) -> tuple[Judged, ...]:
        """The inputs whose answers differ most from the model's: those of another class first."""
        ordered = sorted(self.judged, key=lambda one: (one.agreement, -one.error))
        return tuple(ordered[:WORST])

    @property
    def confusion(self) -> Confusion | None:
        """Which classes the model and the polynomials take for which; None without labels."""
        if self.measure != "class":
            return None
        return confusion((one.label, one.model, one.program) for one in self.judged)

    def to_dict(self) -> dict[str, Any]:
        """The evaluation as JSON values."""
        whole = {"accuracy": self.accuracy, "agreement": self.agreement}
        found = self.confusion
        return {
            **asdict(self), **whole, "worst": [asdict(one) for one in self.worst],
            "confusion": None if found is None else asdict(found),
        }  # fmt: skip


def evaluate(
    bundle: Bundle,
    inputs: Inputs,
    verdicts: Sequence[Verdict],
    *,
    encrypted: int = 0,
    simulated: int = 0,
    target: str = "",
    seed: int = 0,
    steps: Steps = silent,
    note: Note = quiet,
) -> Evaluation:
    """Measure a program on inputs, with or without labels.

    Args:
        bundle: the whole bundle: client's and server's part.
        inputs: inputs of the program, see ``Bundle.load_inputs``.
        verdicts: one verdict for each input.
        encrypted: how many inputs, chosen at random, are answered on ciphertexts.
        simulated: how many inputs are answered by the packed program on the simulator, with the
            errors of CKKS; this takes about as long as encryption.
        target: target for ``encrypted``; empty for the program's own.
        seed: seed for the choice of inputs and for the errors.
        steps: progress.
        note: called with a headline and details for each warning.

    Raises:
        AtlasError: no input can be encrypted; there are labels, but none is usable; or the target
            cannot run.
    """
    promise = Promise.of(bundle.poly) or _without_promise(bundle)
    rows = tuple(row for row, one in enumerate(verdicts) if not one.fault)
    if not rows:
        raise AtlasError(
            "no input can be encrypted",
            why=listed([f"{one.input}: {one.fault}" for one in verdicts]),
            remedy="give inputs like those that the program was compiled with",
        )
    said: list[str] = []

    def tell(headline: str, details: str = "") -> None:
        said.append(headline)
        note(headline, details)

    stages = clear_stages(bundle, inputs, rows, steps, seed)
    labels = _labels(bundle, inputs, promise, stages[0], tell)
    likely = tuple(row for row in rows if not verdicts[row].unsafe)
    for count, name in ((simulated, PACKED), (encrypted, ENCRYPTED)):
        if count:
            chosen = sample(likely, count, seed)
            if not chosen:
                tell(f"no input is safe, so nothing was run on {name}")
                continue
            where = target or bundle.target
            stages.append(executed(bundle, inputs, chosen, where, steps, name))
    unsafe = np.array([one.unsafe for one in verdicts])
    figures = tuple(
        _figures(bundle, inputs, promise, stages[0], one, labels, unsafe) for one in stages
    )
    judged = _judged(bundle, inputs, promise, stages, labels, verdicts)
    return Evaluation(
        bundle.manifest.model.name,
        promise.measure,
        str(promise) if np.isfinite(promise.error) else "nothing, because it was compiled without",
        len(inputs),
        figures,
        judged,
        {one.input: one.why for one in verdicts if one.unsafe and not one.fault},
        {one.input: one.why for one in verdicts if one.kind == "undecided"},
        {one.input: one.fault for one in verdicts if one.fault},
        {inputs.names[row]: why for row, why in labels.faults.items()},
        tuple(said),
        from_module(bundle, steps, (target or bundle.target) if encrypted else ""),
    )


def _without_promise(bundle: Bundle) -> Promise:
    """How answers are compared, for a program without a promise."""
    shape = bundle.interface.outputs[0].shape
    return replace(UNKNOWN, measure="class") if len(shape) == 2 and shape[-1] > 1 else UNKNOWN


def _labels(bundle: Bundle, inputs: Inputs, promise: Promise, model: Stage, tell: Note) -> Labels:
    """The labels of the inputs; notes say which labels cannot be used.

    Raises:
        AtlasError: there are labels, but none is usable.
    """
    found = labels_of(inputs, bundle.model.config, promise.measure, model.answers.shape[-1])
    remedy = "use names or numbers of the model's classes, or numbers for a model of values"
    if promise.measure == "values" and model.answers.shape[-1] > 1:
        remedy = "leave the labels out: answers of several numbers are compared with the model's"
    if inputs.labels is None or (not found.known and not found.faults):
        tell(
            "the inputs have no labels, so only agreement with the model is measured",
            '  what to do: give labels, such as {"text": ..., "label": 1} a line, or a folder of '
            "images for each class",
        )
    elif not found.known:
        lines = [f"{inputs.names[row]}: {why}" for row, why in found.faults.items()]
        raise AtlasError("the labels do not match the model", why=listed(lines), remedy=remedy)
    elif found.faults or found.known < len(inputs):
        lines = [f"{inputs.names[row]}: {why}" for row, why in found.faults.items()]
        count = counted(len(inputs) - found.known, "input has", "inputs have")
        details = f"  why: {listed(lines)}\n" if lines else ""
        tell(
            f"{count} no usable label: accuracy leaves them out",
            f"{details}  what to do: {remedy}",
        )
    return found


def _figures(
    bundle: Bundle,
    inputs: Inputs,
    promise: Promise,
    model: Stage,
    stage: Stage,
    labels: Labels,
    unsafe: np.ndarray,
) -> Figures:
    """The figures of a stage.

    Args:
        unsafe: [inputs] whether each input is unsafe.
    """
    beside = _beside(bundle, inputs, promise, model, stage)
    agreement = beside.agreement(replace(promise, noise=0.0))
    truth = labels.values[list(stage.rows)]
    known = np.isfinite(truth)
    answers, truth = stage.answers[known], truth[known]
    accuracy = pearson = spearman = None
    if promise.measure == "class" and len(truth):
        accuracy = float(right(answers, truth).mean())
    if promise.measure == "values" and len(truth) > 1:
        values = answers.reshape(len(answers), -1)[:, 0]
        pearson, spearman = correlation(values, truth), correlation(ranks(values), ranks(truth))
    count, given = len(stage.rows), np.flatnonzero(~unsafe[list(stage.rows)])
    return Figures(
        stage.name,
        count,
        len(truth),
        accuracy,
        None if accuracy is None else wilson(accuracy * len(truth), len(truth)),
        pearson,
        None if pearson is None else fisher(pearson, len(truth)),
        spearman,
        float(agreement.mean()),
        wilson(float(agreement.sum()), count),
        _divergence(bundle, inputs, promise, model, stage, given),
        float(beside.errors[given].max()) if len(given) else float("inf"),
        float(beside.errors[given].mean()) if len(given) else float("inf"),
        float(beside.cosines[given].min(initial=1.0)),
        stage.seconds,
    )


def _beside(
    bundle: Bundle, inputs: Inputs, promise: Promise, model: Stage, stage: Stage
) -> Comparison:
    """Comparison of a stage's answers with the model's."""
    arrays = inputs.take(stage.rows).arrays
    return compared(promise, bundle.poly, arrays, {"": stage.answers}, {"": model.of(stage.rows)})


def _divergence(
    bundle: Bundle,
    inputs: Inputs,
    promise: Promise,
    model: Stage,
    stage: Stage,
    given: np.ndarray,
) -> float | None:
    """Mean Kullback-Leibler divergence in nats, over given inputs and the tokens that a mask keeps.

    Infinite if an answer is not finite.
    """
    if promise.measure == "values" or not len(given):
        return None
    from atlasc.ir.interpreter import kept_tokens

    theirs, ours = (log_probabilities(y) for y in (model.of(stage.rows), stage.answers))
    with np.errstate(all="ignore"):
        found = (np.exp(theirs) * (theirs - ours)).sum(axis=-1)
    found = np.where(np.isfinite(found), found, np.inf)
    kept = kept_tokens(bundle.poly, inputs.take(stage.rows).arrays, theirs)
    some = found[given] if kept is None else found[given][kept[given][..., 0] > 0]
    return float(some.mean())


def _judged(
    bundle: Bundle,
    inputs: Inputs,
    promise: Promise,
    stages: Sequence[Stage],
    labels: Labels,
    verdicts: Sequence[Verdict],
) -> tuple[Judged, ...]:
    """One row for each input that was answered."""
    model, program = stages[0], stages[1]
    beside = _beside(bundle, inputs, promise, model, program)
    agreement = beside.agreement(replace(promise, noise=0.0))
    names = names_of_classes(bundle.model.config, model.answers.shape[-1])

    def shown(values: np.ndarray) -> str | float | None:
        if promise.measure == "class":
            return names[int(values.argmax())] if np.isfinite(values).all() else None
        return float(values.reshape(-1)[0]) if values.size == 1 else None

    def label(row: int) -> str | float | None:
        value = float(labels.values[row])
        if np.isnan(value):
            return None
        return names[int(value)] if promise.measure == "class" else value

    return tuple(
        Judged(
            inputs.names[row],
            verdicts[row].kind,
            verdicts[row].why,
            label(row),
            shown(model.answers[place]),
            shown(program.answers[place]),
            float(beside.errors[place]),
            float(agreement[place]),
        )
        for place, row in enumerate(program.rows)
    )
