"""How far a program is from the user's own module, on the inputs that its owner kept."""

from __future__ import annotations

import numpy as np

from atlasc.bundle.folder import Bundle
from atlasc.bundle.kept import KEPT, kept_of
from atlasc.compilation.oracle.asking import Arrays, apart, greatest_error
from atlasc.ir.errors import explained
from atlasc.progress import Steps
from atlasc.run import session


def from_module(bundle: Bundle, steps: Steps, target: str = "") -> dict[str, float | None] | None:
    """Greatest errors beside the module's answers, as `compile` measured them, and the number of
    inputs; None if nothing was kept, or it is not here.

    Torch is not needed: the answers were kept when the program was compiled.

    Args:
        bundle: the whole bundle.
        steps: progress.
        target: a target that also answers the first batch of these inputs; empty for none.

    Raises:
        AtlasError: what was kept was changed, or does not fit the program; or the target cannot
            run.
    """
    if (kept := kept_of(bundle)) is None:
        return None

    def far(found: Arrays) -> float:
        rows = len(next(iter(found.values())))
        some, wanted = ({n: a[:rows] for n, a in one.items()} for one in kept)
        return greatest_error(apart(bundle.poly, some, found, wanted))

    remedy = "compile the model again, or remove the folder: programs run without it"
    with (
        steps("the model's own answers"),
        explained("what the bundle keeps does not fit its program", KEPT, remedy),
    ):
        sums, functions = session.simulate_both(bundle.client, bundle.poly, kept.inputs)
        figures = {
            "inputs": len(next(iter(kept.inputs.values()))),
            "functions": None if functions is None else far(functions),
            "polynomials": far(sums),
        }
    if not target:
        return figures
    first = {name: array[: bundle.batch] for name, array in kept.inputs.items()}
    answers = session.run(bundle, first, target, steps=steps, unchecked=True)
    known = {name: y.astype(np.float64) for name, y in answers.outputs.items()}
    count = len(next(iter(first.values())))
    return figures | {"ciphertexts": far(known), "ciphertexts_inputs": count}
