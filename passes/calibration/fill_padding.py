"""``fill-padding``: padding tokens become copies of a real token, before they are encrypted.

A polynomial is evaluated in the slots of padding too, so a range must hold what padding reaches.
No model was trained on what its padding becomes, and it may reach further than every real token.
But attention hides padding, and nothing reads its outputs. So the client, which knows the mask, may
encrypt a copy of a real token in its place: in an encoder it then takes the values of that token.
This costs the server nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from atlasc.calibration.calibrate import Calibration, Padding, calibrate
from atlasc.calibration.measure import LARGEST_CHUNK, blas_threads
from atlasc.calibration.ranges import LEAST_MARGIN
from atlasc.calibration.streams import measured_streams, rescaled
from atlasc.ir.interpreter import interpret, kept_tokens
from atlasc.ir.module import Module, Op
from atlasc.ir.rewriting import Rewriter
from atlasc.passes.calibration.calibrated_pass import CalibratedPass, other_model
from atlasc.passes.calibration.scale_tokens import token_factors, with_scaled_tokens
from atlasc.passes.framework.pass_base import Report
from atlasc.polynomials.range_levels import levels_of_ranges

TOKENS: dict[Padding, int] = {"first": 0, "last": -1}
"""The token that padding copies -> ``token`` of ``nn.fill_padding``."""
FEWEST_INPUTS = 8
"""Least number of inputs with padding; with fewer, padding stays as it is."""
MOST_INPUTS = 64
"""Greatest number of inputs that the copies are compared on, evenly spaced by length."""
TOLERANCE = 1e-4
"""Greatest difference of outputs in float32, as a share of their greatest magnitude."""


@dataclass(frozen=True)
class FillPadding(CalibratedPass):
    """Let the client encrypt copies of a real token as padding; real tokens' outputs stay the same.

    Attributes:
        ranges: JSON file of a calibration; without it the pass does nothing.
    """

    name = "fill-padding"

    def changed(self, module: Module, calibration: Calibration, report: Report) -> Module:
        """Nn module to nn module."""
        if not calibration.padding:
            report.say("the calibration leaves padding as it is")
        return with_filled_padding(module, calibration.padding)


def with_filled_padding(module: Module, padding: Padding) -> Module:
    """A new module whose client encrypts copies of a token as padding; the module itself without.

    Padding that is filled already stays.

    Raises:
        AtlasError: the module has no padding.
    """
    if not padding or any(op.name == "nn.fill_padding" for op in module.ops):
        return module
    mask = _mask(module)
    places = [op for op in module.ops if mask is not None and _takes(op, mask)]
    if mask is None or not places:
        raise other_model("the padding cannot be filled, because the model has none")
    rewriter = Rewriter(module)
    for op in module.ops:
        if op in places:
            if mask.value not in rewriter.values:  # it comes after what is encrypted
                rewriter.copy(mask)
            operands = [*rewriter.operands(op), rewriter.values[mask.value]]
            token = {"token": TOKENS[padding]}
            rewriter.copy(op, [rewriter.add(op, "nn.fill_padding", operands, token)])
        elif op is not mask or mask.value not in rewriter.values:
            rewriter.copy(op)
    return rewriter.module


def padding_to_fill(
    module: Module,
    arrays: Mapping[str, np.ndarray],
    *,
    scale_tokens: bool = True,
    margin: float | None = LEAST_MARGIN,
    report: Report | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Padding:
    """What padding should hold: the choice with the fewest levels of polynomials.

    Padding is filled only if the outputs of real tokens then stay the same on the inputs.

    Args:
        module: nn module.
        arrays: inputs by name, [N, ...].
        scale_tokens: compare the levels after `token_factors`.
        margin: margin of the ranges that are compared, as of `calibrate`.
        report: receives the levels of each choice, or why there is none.
        progress: called with (inputs done, all inputs).

    Raises:
        AtlasError: as `calibrate`.
    """
    report, mask = report or Report(), _mask(module)
    if mask is None or not any(_takes(op, mask) for op in module.ops):
        report.say("the model has no padding")
        return ""
    kept = arrays[mask.attributes["name"]].astype(bool).sum(axis=1)
    padded = int((kept < mask.value.tensor.shape[1]).sum())
    if padded < FEWEST_INPUTS:
        report.say(f"padding stays as it is, because {padded} inputs have any")
        return ""
    order = np.argsort(kept, kind="stable")
    some = order[np.linspace(0, len(order) - 1, min(len(order), MOST_INPUTS)).astype(int)]
    arrays = {name: array[some] for name, array in arrays.items()}
    choices: dict[Padding, Module] = {one: with_filled_padding(module, one) for one in TOKENS}
    if not _same_outputs(module, list(choices.values()), arrays):
        report.say("padding stays as it is, because the outputs of real tokens depend on it")
        return ""
    costs: dict[Padding, tuple[int, float]] = {}
    done, count = 0, len(some) * (1 + len(choices))

    def step(inputs: int, _: int) -> None:
        if progress is not None:
            progress(done + inputs, count)

    for choice, changed in {"": module, **choices}.items():
        streams, measured = measured_streams(changed, arrays, step)
        done += len(some)
        if scale_tokens:
            factors = token_factors(changed, streams, margin=margin)
            changed = with_scaled_tokens(changed, factors)
            measured = rescaled(measured, changed, streams, factors)
        ranges = calibrate(changed, arrays, margin=margin, known=measured).ranges
        costs[choice] = levels_of_ranges(ranges), sum(one.widest_factor for one in ranges)
        name = f"copies of the {choice} token" if choice else "padding as it is"
        report.say(f"{name}: {costs[choice][0]} levels of polynomials")
    return min(costs, key=lambda choice: costs[choice])


def _mask(module: Module) -> Op | None:
    """The public mask of the tokens."""
    return next((op for op in module.inputs if op.attributes["side"] == "public"), None)


def _takes(op: Op, mask: Op) -> bool:
    """Whether an op encrypts the tokens of a mask."""
    if op.name != "nn.encrypt":
        return False
    shape = op.value.tensor.shape
    return len(shape) == 3 and shape[:2] == mask.value.tensor.shape


def _same_outputs(
    module: Module, filled: Sequence[Module], arrays: Mapping[str, np.ndarray]
) -> bool:
    """Whether the outputs of the tokens that the mask keeps agree, on the inputs with the most
    padding.
    """
    arrays = {name: array[:LARGEST_CHUNK] for name, array in arrays.items()}
    with blas_threads(1):
        before, *after = (interpret(one, arrays, np.float32) for one in (module, *filled))
    for name, wanted in before.items():
        kept = kept_tokens(module, arrays, wanted)
        real = 1.0 if kept is None else kept
        most = TOLERANCE * np.abs(wanted * real).max()
        if any(np.abs((one[name] - wanted) * real).max() > most for one in after):
            return False
    return True
