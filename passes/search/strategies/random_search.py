"""Uniform random settings: what any search has to beat."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from atlasc.ir.errors import AtlasError
from atlasc.passes.search.front import Front
from atlasc.passes.search.journal import EXTENDS
from atlasc.passes.search.problem import SearchProblem
from atlasc.passes.search.session import ProgressCallback, Session


@dataclass(frozen=True)
class RandomOptions:
    """Budget of a random search.

    Attributes:
        seed: equal seeds give equal fronts.
        evaluations: settings to draw; as many as the paper's search makes.
        batch: settings between two reports of progress.
    """

    seed: int = 0
    evaluations: int = field(default=24_144, metadata=EXTENDS)
    batch: int = 96

    def __post_init__(self) -> None:
        if min(self.evaluations, self.batch) < 1:
            raise AtlasError("a random search needs at least 1 evaluation")


def search(
    problem: SearchProblem,
    options: RandomOptions | None = None,
    progress: ProgressCallback | None = None,
) -> Front:
    """Draw settings uniformly from the whole space."""
    options = options or RandomOptions()
    session = Session(problem, options, progress)
    generator = np.random.default_rng(options.seed)
    with session:
        while session.done < options.evaluations:
            count = min(options.batch, options.evaluations - session.done)
            session.evaluate(session.objective.space.random(count, generator))
    return session.front("random")
