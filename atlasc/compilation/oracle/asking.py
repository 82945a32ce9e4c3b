"""What the user's module answers, and whether the traced graph answers the same.

The module is called on inputs of several lengths, one after the other, on the first one also a
second time and at the end. So a state that an earlier call left shows, in a buffer, in an attribute
of Python, or in random numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from atlasc.calibration.measure import blas_threads
from atlasc.compilation.oracle.attributes import (
    changed,
    is_attribute,
    remembered,
    writer,
)
from atlasc.compilation.oracle.running import Runner, own_precision, runner_of
from atlasc.ir.errors import AtlasError, first_line, listed
from atlasc.ir.final_functions import finished
from atlasc.ir.interpreter import kept_tokens
from atlasc.ir.module import Module, Op
from atlasc.loading import IDS, MASK
from atlasc.loading.inputs import Inputs
from atlasc.loading.loaded_model import LoadedModel
from atlasc.passes.frontend.exported.locations import forward_of
from atlasc.progress import Note
from atlasc.simulation.simulate import PolynomialSimulator

Arrays = Mapping[str, np.ndarray]
ASKED = 6
"""Number of inputs on which the module is asked."""
SPREAD, ROUNDINGS = 1e-3, 64.0
"""What may come from rounding: a share of how the answers vary from input to input, and this many
roundings of the greatest of them."""
OWN_ROUNDINGS = 16.0
"""As many roundings of a module's own type may part its answers from those in float32, as a share
of their size: an eighth in bfloat16. Deep modules were seen to need 2, with large weights 7."""


@dataclass(frozen=True)
class Asked:
    """Some inputs, and what the user's module answers to them.

    Attributes:
        inputs: the inputs, of several lengths.
        answers: output name -> the module's answers, ``[inputs, ...]``.
        traced: greatest error of the traced graph's answers beside these.
        own: greatest error of these beside the module's answers in the precision that it was
            given in; None if this is the one in which it was asked.
    """

    inputs: Inputs
    answers: Arrays
    traced: float
    own: float | None = None


class Apart(NamedTuple):
    """How far answers to some inputs differ from the module's, for one output.

    Attributes:
        output: name of the output.
        differences: greatest difference of one number, for each input.
        errors: error of each answer: the mean of these differences.
        rounding: difference of one number that may come from rounding.
    """

    output: str
    differences: np.ndarray
    errors: np.ndarray
    rounding: float

    @property
    def worst(self) -> int:
        """Row of the input with the greatest difference; NaN counts as the greatest."""
        return int(np.nan_to_num(self.differences, nan=np.inf).argmax())

    @property
    def largest(self) -> float:
        """The greatest difference of one number."""
        return float(self.differences[self.worst])

    @property
    def excused(self) -> bool:
        """Whether the difference may come from rounding."""
        return self.largest <= self.rounding


def apart(
    module: Module, arrays: Arrays, found: Arrays, wanted: Arrays, epsilon: float = 0.0
) -> list[Apart]:
    """How far answers differ from the module's, for each output. Padding is not compared.

    Args:
        module: a module with the outputs, which are answers before their final function.
        arrays: the inputs, ``[inputs, ...]``.
        found: answers before the final function.
        wanted: what the user's module returned.
        epsilon: machine epsilon of the module's floats.
    """
    return [_apart(module, op, arrays, found, wanted, epsilon) for op in module.outputs]


def _apart(
    module: Module, op: Op, arrays: Arrays, found: Arrays, wanted: Arrays, epsilon: float
) -> Apart:
    name, function = op.attributes["name"], op.attributes.get("function")
    scores, theirs = found[name].astype(np.float64), wanted[name]
    ours = finished(function, scores)
    if ours.size != theirs.size:
        raise AtlasError(
            f"the output {name} has another shape than what the module returns",
            why=f"{ours.shape} for {len(theirs)} inputs, and {theirs.shape}",
            remedy="return a tensor whose first axis is the batch",
        )
    theirs = theirs.reshape(ours.shape)
    with np.errstate(invalid="ignore"):
        if function == "argmax":  # what counts is how far the chosen score is from the best
            chosen = theirs.astype(np.int64)[..., None]
            differences = scores.max(-1) - np.take_along_axis(scores, chosen, -1)[..., 0]
            theirs = scores
        else:
            differences = np.abs(ours - theirs)
    kept = kept_tokens(module, arrays, ours)
    share: np.ndarray | float = 1.0
    if kept is not None:
        differences = np.where(np.broadcast_to(kept, ours.shape) > 0, differences, 0.0)
        share = kept.reshape(len(ours), -1).mean(axis=1)
        theirs = theirs[np.broadcast_to(kept, theirs.shape) > 0]
        varying = float(theirs.std()) if theirs.size else 0.0
    else:
        varying = float(np.sqrt(np.mean(np.square(theirs - theirs.mean(axis=0)))))
    rounding = SPREAD * varying + ROUNDINGS * epsilon * float(np.abs(theirs).max(initial=0.0))
    rows = differences.reshape(len(ours), -1)
    return Apart(name, rows.max(axis=1), rows.mean(axis=1) / share, rounding)


def greatest_error(found: Sequence[Apart]) -> float:
    """The greatest error of an answer, over inputs and outputs; NaN if one is no number."""
    return float(np.max([one.errors for one in found]))


def ask(model: LoadedModel, traced: Module, inputs: Inputs, note: Note) -> Asked | None:
    """Ask the user's module, and compare the traced graph with it.

    Args:
        model: the model.
        traced: its traced module.
        inputs: inputs to choose from.
        note: called with what a user should know of the module.

    Returns:
        None for a model without weights, and for a module that cannot be run, which is said.

    Raises:
        AtlasError: the module answers the same input otherwise at another call, or answers
            otherwise than the traced graph by more than rounding.
    """
    some = inputs.take(several(inputs))
    batch = int(traced.inputs[0].attributes["shape"][0])
    try:
        if (runner := runner_of(model)) is None:
            return None
        with blas_threads(1):
            new = remembered(runner.module)
            size, first = _first(runner, some, batch)
            used = remembered(runner.module)
            # Twice more at once, where a count of calls shows; and once more after all others.
            again = [_answer(runner, some, 0, size) for _ in range(2)]
            others = [_answer(runner, some, row, size) for row in range(1, len(some))]
            answers = [first, *others, *again, _answer(runner, some, 0, size)]
            runner = runner.measured(_rows(some, 0, size))
    except Exception as error:
        note(
            "the program was not compared with the module",
            f"  why: it cannot be run on these inputs: {first_line(error)}",
        )
        return None
    module = runner.module
    moved = [writer(module, *key) for key in changed(module, new)]
    names = [op.attributes["name"] for op in traced.outputs]
    table = {name: np.concatenate([one[name] for one in answers]) for name in names}
    wanted = {name: table[name][: len(some)] for name in names}
    exact = _exact(traced, some.arrays)
    found = apart(traced, some.arrays, exact, wanted, runner.epsilon)
    _require_stateless(runner, table, found, moved, some)
    for one in found:
        if not one.excused:
            raise AtlasError(
                f"the traced graph answers otherwise than the module: {one.largest:.3g} apart in "
                f"the output {one.output}",
                where=[*moved, forward_of(module)],
                why=f"for {some.names[one.worst]}; rounding explains {one.rounding:.2g}. Tracing "
                "fixes what Python decides: a branch on a length, on the batch or on whether the "
                "model is exported, and what an attribute holds",
                remedy="let forward compute the same for each input, or give --data of one kind "
                "and the --sequence-length that these have",
            )
    # Buffers are said by the trace.
    keys = [key for key in changed(module, used) if is_attribute(module, *key)]
    if keys:
        note(
            "the module keeps something of each call in an attribute, which no answer reads",
            f"  where: {listed([writer(module, *key) for key in keys])}",
        )
    with blas_threads(1):
        _say_of_padding(runner, some, size, wanted, found, note)
        own = _own(model, traced, some, size, wanted, note)
    return Asked(some, wanted, greatest_error(found), own)


def several(inputs: Inputs) -> list[int]:
    """Rows of inputs of several lengths, from the shortest to the longest text."""
    count = min(ASKED, len(inputs))
    order = np.arange(len(inputs))
    if MASK in inputs.arrays and inputs.arrays[MASK].ndim == 2:
        order = np.argsort(inputs.arrays[MASK].sum(axis=1), kind="stable")
    places = np.linspace(0, len(inputs) - 1, count).round().astype(int)
    return [int(order[place]) for place in places]


def _rows(some: Inputs, row: int, size: int) -> dict[str, np.ndarray]:
    """An input with those after it as one batch."""
    rows = [(row + place) % len(some) for place in range(size)]
    return {name: array[rows] for name, array in some.arrays.items()}


def _answer(runner: Runner, some: Inputs, row: int, size: int) -> dict[str, np.ndarray]:
    """Output name -> the answer to one input, ``[1, ...]``."""
    found = runner(_rows(some, row, size))
    return {name: y[:1] if y.shape[:1] == (size,) else y[None] for name, y in found.items()}


def _first(runner: Runner, some: Inputs, batch: int) -> tuple[int, dict[str, np.ndarray]]:
    """How many inputs the module takes at once, one or the batch that is compiled, and its answer
    to the first.
    """
    try:
        return 1, _answer(runner, some, 0, 1)
    except Exception:
        if batch == 1:
            raise
        return batch, _answer(runner, some, 0, batch)


def _exact(traced: Module, arrays: Arrays) -> dict[str, np.ndarray]:
    simulator = PolynomialSimulator(traced, np.float64)
    return simulator.cleartext(simulator.prepare(arrays))


def _require_stateless(
    runner: Runner, table: Arrays, found: Sequence[Apart], moved: Sequence[str], some: Inputs
) -> None:
    """Raise AtlasError if the last answers, to the first input, are not the first answer: of
    the same module, so roundings of a coarser type are the same too.
    """
    for one in found:
        y, count = table[one.output], len(some)
        with np.errstate(invalid="ignore"):
            differs = np.abs(y[count:] - y[:1]).max(initial=0.0)
        if differs <= ROUNDINGS * np.finfo(np.float32).eps * np.abs(y[:1]).max(initial=0.0):
            continue
        drawn = "" if moved else "; nothing that it keeps changed, so it may draw random numbers"
        raise AtlasError(
            f"the module answers the same input otherwise at another call: {differs:.3g} apart in "
            f"the output {one.output}",
            where=[*moved, forward_of(runner.module)],
            why=f"{some.names[0]} was asked four times, and a program answers every input alone"
            + drawn,
            remedy="write the state in training alone (if self.training: ...), or take it as an "
            "input of forward and return its new value as an output",
        )


def _say_of_padding(
    runner: Runner, some: Inputs, size: int, wanted: Arrays, found: Sequence[Apart], note: Note
) -> None:
    """Say if the module answers a text otherwise when padding follows it, or if this is unknown."""
    ids, mask = (some.arrays.get(name) for name in (IDS, MASK))
    if ids is None or mask is None or mask.shape != ids.shape:
        return
    lengths = mask.sum(axis=1)
    for row in np.flatnonzero(lengths < ids.shape[1]):
        length = int(lengths[row])
        if not mask[row, :length].all():
            continue
        cut = {
            name: array[:, :length] if array.shape[1:] == ids.shape[1:] else array
            for name, array in some.arrays.items()
        }
        try:
            alone = _answer(runner, replace(some, arrays=cut), int(row), size)
        except Exception as error:
            note(
                "whether padding changes the module's answers is unknown",
                f"  where: {forward_of(runner.module)}\n"
                f"  why: the module takes texts of {ids.shape[1]} tokens, and not "
                f"{some.names[row]} without padding, of {length} tokens: {first_line(error)}\n"
                "  what to do: give a module that takes texts of any length, or make sure that it "
                "drops padding by attention_mask",
            )
            return
        for one in found:
            theirs, ours = alone[one.output], wanted[one.output][row : row + 1]
            if theirs.ndim > 2 and theirs.shape[1] == length:
                ours = ours[:, :length]
            differs = np.abs(theirs - ours).max() if theirs.shape == ours.shape else np.inf
            if not differs <= one.rounding:
                note(
                    f"the module answers a text otherwise when padding follows it: {differs:.3g} "
                    f"apart in the output {one.output}",
                    f"  where: {forward_of(runner.module)}\n"
                    f"  why: for {some.names[row]}, of {length} tokens; the program answers as the "
                    f"module does with padding up to {ids.shape[1]} tokens\n"
                    "  what to do: let the model take attention_mask and drop padding by it, or "
                    "give texts of one length",
                )
                return


def _own(
    model: LoadedModel, traced: Module, some: Inputs, size: int, wanted: Arrays, note: Note
) -> float | None:
    """Greatest error of the answers beside those in the precision that the module came with.

    Raises:
        AtlasError: its answers in that precision are others, by more than rounding.
    """
    if (runner := own_precision(model)) is None:
        return None
    try:
        runner = runner.measured(_rows(some, 0, size))
        answers = [_answer(runner, some, row, size) for row in range(len(some))]
    except Exception as error:
        note(
            "the module cannot be run in the precision that it was given in",
            f"  why: {first_line(error)}; it was compared in float32",
        )
        return None
    table = {name: np.concatenate([one[name] for one in answers]) for name in wanted}
    outputs = {op.attributes["name"]: op.attributes.get("function") for op in traced.outputs}
    names = [name for name, function in outputs.items() if function != "argmax"]
    for name in names:
        _require_rounding(table[name], wanted[name], runner, name)
    apart = (np.abs(table[n] - wanted[n]).reshape(len(some), -1) for n in names)
    return max((float(one.mean(axis=1).max()) for one in apart), default=None)


def _require_rounding(own: np.ndarray, wanted: np.ndarray, runner: Runner, name: str) -> None:
    """Raise AtlasError if answers in a module's own precision differ from those in float32, in the
    root mean square, by more than many roundings. Answers that overflow there are no numbers.
    """
    differs, size = (float(np.sqrt(np.mean(np.square(y)))) for y in (own - wanted, wanted))
    if not differs > OWN_ROUNDINGS * runner.epsilon * size:
        return
    raise AtlasError(
        f"the module answers otherwise in its own precision than in float32: {differs:.3g} apart "
        f"in the output {name}",
        where=forward_of(runner.module),
        why=f"the answers are of size {size:.3g}, and a program computes as the module does in "
        "float32; so much is no rounding, but what a branch on a type does",
        remedy="let forward compute the same for each type; or give model.float(), if its answers "
        "in float32 are the right ones",
    )
