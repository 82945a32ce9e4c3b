"""The answers of a program in stages, from the model in the clear to ciphertexts.

Each stage adds one source of error to the previous stage.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from atlasc.bundle.folder import Bundle
from atlasc.ir.errors import AtlasError
from atlasc.loading.inputs import Inputs
from atlasc.progress import Steps
from atlasc.run import session
from atlasc.simulation.agreement import NOISE
from atlasc.targets import find_target
from atlasc.targets.sim import TARGET as SIM

MODEL, POLYNOMIALS, NOISY = "model", "polynomials", "simulation"
PACKED, ENCRYPTED = "packed simulation", "ciphertexts"
MEANINGS = {
    MODEL: "the model in the clear: the functions that the polynomials approximate",
    POLYNOMIALS: "the polynomials in the clear",
    NOISY: "the polynomials, with a random error as large as the program's bound for encryption",
    PACKED: "the packed program on the simulator, each primitive with the errors of CKKS",
    ENCRYPTED: "ciphertexts: encrypted, executed and decrypted",
}


@dataclass(frozen=True)
class Stage:
    """Answers to some of the inputs.

    Attributes:
        name: one of `MEANINGS`.
        rows: row numbers of the answered inputs.
        answers: [rows, ...] answers of the program's first output.
        seconds: seconds of execution; None if nothing is timed.
    """

    name: str
    rows: tuple[int, ...]
    answers: np.ndarray
    seconds: float | None = None

    def of(self, rows: tuple[int, ...]) -> np.ndarray:
        """The answers to some of these inputs."""
        places = {row: place for place, row in enumerate(self.rows)}
        return self.answers[[places[row] for row in rows]]


def clear_stages(
    bundle: Bundle, inputs: Inputs, rows: tuple[int, ...], steps: Steps, seed: int = 0
) -> list[Stage]:
    """Three stages in the clear: the model, its polynomials, and these with the errors of
    encryption.

    All rows must be inputs that can be encrypted.

    Raises:
        AtlasError: the program does not know the model's answers.
    """
    arrays = inputs.take(rows).arrays
    with steps("model and polynomials in the clear", total=len(rows)) as step:
        found, model = session.simulate_both(bundle.client, bundle.poly, arrays, step.report)
    if model is None:
        raise AtlasError(
            "the program does not know the model's answers",
            where=str(bundle.folder),
            why="the polynomials of its recipe do not name the functions that they approximate",
            remedy="compile without --recipe, or with --recipe is",
        )
    answers = _first(found)
    stages = [Stage(MODEL, rows, _first(model)), Stage(POLYNOMIALS, rows, answers)]
    bound = bundle.poly.attributes.get(NOISE)
    if bound is not None:
        errors = np.random.default_rng(seed).normal(scale=bound, size=answers.shape)
        stages.append(Stage(NOISY, rows, answers + errors))
    return stages


def executed(
    bundle: Bundle, inputs: Inputs, rows: tuple[int, ...], target: str, steps: Steps, name: str
) -> Stage:
    """Answers of the packed program on a target; NaN where an answer is refused.

    Raises:
        AtlasError: the target cannot run here, or it refuses an op for every input.
    """
    engine = None
    if name == PACKED:
        with steps("preparing the simulator") as step:
            engine = SIM.make_engine(bundle.program, bundle.parameters, step.report, noise=True)
    else:
        find_target(target).check()
    arrays = inputs.take(rows).arrays
    chosen = "sim" if name == PACKED else target
    result = session.run(bundle, arrays, chosen, steps=steps, engine=engine)
    answers = _first(result.outputs).astype(np.float64)
    answers[list(result.refused)] = np.nan
    return Stage(name, rows, answers, sum(result.seconds.values()))


def sample(rows: tuple[int, ...], count: int, seed: int) -> tuple[int, ...]:
    """A random sample of the rows, in their order."""
    chosen = np.random.default_rng([seed, 3]).permutation(len(rows))[:count]
    return tuple(rows[place] for place in sorted(chosen.tolist()))


def _first(outputs: Mapping[str, np.ndarray]) -> np.ndarray:
    return next(iter(outputs.values()))
