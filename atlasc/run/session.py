"""Runs a compiled program in one process: its polynomials in the clear, and both roles on an
engine. In :mod:`atlasc.api.roles` client and server are apart, but take the same steps.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from atlasc.bundle.folder import Bundle
from atlasc.client.checks import Answers, functions_of
from atlasc.client.program import (
    TOGETHER,
    ClientProgram,
    batches,
    decrypt_all,
    encrypt_all,
    rows_of,
)
from atlasc.ir.errors import AtlasError
from atlasc.ir.module import Module
from atlasc.program.engine import Engine
from atlasc.progress import Steps, silent
from atlasc.run.timing import Course, Pace, Timing
from atlasc.simulation.poly_values import interpret_poly
from atlasc.simulation.watch import both_answers, knows_model
from atlasc.targets import find_target
from atlasc.targets.base import Progress, no_progress


def simulate(
    client: ClientProgram,
    poly: Module,
    arrays: Mapping[str, np.ndarray],
    progress: Progress = no_progress,
) -> dict[str, np.ndarray]:
    """Evaluate the polynomials of a program in the clear, for any number of raw inputs.

    Returns output name -> array ``[count, ...]``.
    """
    outputs: list[dict[str, np.ndarray]] = []
    for start, part in batches(arrays, TOGETHER):
        progress("", start, rows_of(arrays))
        with np.errstate(all="ignore"):  # inputs that leave a range overflow
            outputs.append(interpret_poly(poly, client.embedded(part)))
    return joined(outputs)


def simulate_both(
    client: ClientProgram,
    poly: Module,
    arrays: Mapping[str, np.ndarray],
    progress: Progress = no_progress,
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray] | None]:
    """Evaluate the polynomials of a program and the model in the clear, for any number of raw
    inputs.

    Returns two mappings, output name -> array ``[count, ...]``. The second one is None if the
    program does not know the model's answers.
    """
    if not knows_model(poly):
        return simulate(client, poly, arrays, progress), None
    pairs = []
    for start, part in batches(arrays, TOGETHER):
        progress("", start, rows_of(arrays))
        pairs.append(both_answers(poly, client.embedded(part)))
    answers, model = zip(*pairs, strict=True)
    return joined(answers), joined(model)


def joined(parts: Sequence[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """The outputs of several batches as one."""
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def placed(values: np.ndarray, rows: Sequence[int], count: int) -> np.ndarray:
    """Values ``[rows, ...]`` in their rows of ``[count, ...]``; NaN in all others."""
    whole = np.full((count, *values.shape[1:]), np.nan)
    whole[list(rows)] = values
    return whole


class Stopwatch:
    """Seconds by phase of a run.

    Attributes:
        seconds: phase (keys, encrypt, execute, decrypt) -> seconds.
    """

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(("keys", "encrypt", "execute", "decrypt"), 0.0)
        self._since = time.perf_counter()

    def lap(self, phase: str) -> None:
        """End a phase; it began when the previous phase ended."""
        now = time.perf_counter()
        self.seconds[phase], self._since = self.seconds[phase] + now - self._since, now


@dataclass(frozen=True, repr=False)
class RunResult(Answers):
    """The results of a run.

    Attributes:
        expected: output name -> results of the polynomials in the clear.
        model: output name -> the model's answers in the clear; None if they are not known.
        seconds: phase (keys, encrypt, execute, decrypt) -> seconds.
        target: name of the target.
        timing: seconds of each op; None if nothing was encrypted.
    """

    expected: dict[str, np.ndarray]
    seconds: dict[str, float]
    target: str
    timing: Timing | None = None
    model: dict[str, np.ndarray] | None = None

    @property
    def max_error(self) -> float:
        """Greatest difference of one number from the polynomials' answer; NaN without answers."""
        return max(float(errors.max()) for errors in self._differences(self.expected))

    @property
    def mean_error(self) -> float:
        """Mean absolute difference from the polynomials' answers; NaN without answers."""
        return float(np.mean([errors.mean() for errors in self._differences(self.expected)]))

    def _differences(self, others: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        answered = [row for row in range(rows_of(self.outputs)) if row not in self.refused]
        if not answered:
            return [np.array([np.nan])]
        pairs = ((values, others[name]) for name, values in self.outputs.items())
        return [np.abs(values[answered] - expected[answered]) for values, expected in pairs]


def run(
    bundle: Bundle,
    arrays: Mapping[str, np.ndarray],
    target: str | None = None,
    *,
    steps: Steps = silent,
    engine: Engine[Any] | None = None,
    expected: Mapping[str, np.ndarray] | None = None,
    unchecked: bool = False,
) -> RunResult:
    """Make keys, encrypt, execute and decrypt in one process, to try a program.

    If the engine refuses a batch, this batch has no answers; the other batches have.

    Args:
        bundle: a compiled model.
        arrays: raw inputs by name; inputs beyond one batch are answered in further runs, with the
            same keys.
        target: a target to use instead of the bundle's own.
        steps: progress.
        engine, expected: an existing engine, or existing results of the polynomials, to reuse.
        unchecked: encrypt inputs that are far larger than the inputs of calibration.

    Raises:
        AtlasError: the inputs or the keys are refused, or the engine refuses every batch.
    """
    chosen, client = find_target(target or bundle.target), bundle.client
    if expected is None:
        expected = simulate(client, bundle.poly, arrays)
    watch = Stopwatch()
    if engine is None:
        with steps("generating keys") as step:
            engine = chosen.make_engine(bundle.program, bundle.parameters, step.report)
    watch.lap("keys")
    parts: list[dict[str, np.ndarray]] = []
    refused: dict[int, float] = {}
    failed: dict[int, AtlasError] = {}
    with steps(f"running on {chosen.name}", total=100) as step:
        runs = -(-rows_of(arrays) // client.batch)
        pace = Pace(Course.stored(bundle.server), chosen, runs, step.report)
        for start, rows in batches(arrays, client.batch):
            packed = client.query(rows, unchecked=unchecked)
            encrypted = encrypt_all(engine, packed)
            watch.lap("encrypt")
            try:
                results = bundle.server.play(engine, encrypted, packed.public, pace)
            except AtlasError as error:  # values of this batch that an op cannot take
                lost = range(start, start + packed.count)
                failed |= dict.fromkeys(lost, error)
                parts.append({n: np.full_like(y[lost], np.nan) for n, y in expected.items()})
                continue
            pace.finish()
            watch.lap("execute")
            answers = client.answers(decrypt_all(engine, results), packed.count)
            parts.append(answers.outputs)
            refused |= {start + row: share for row, share in answers.refused.items()}
            watch.lap("decrypt")
    if len(failed) == rows_of(arrays):
        raise failed[0]
    refused = dict(sorted((refused | dict.fromkeys(failed, 1.0)).items()))
    facts = dict(expected), watch.seconds, chosen.name, pace.timing()
    functions = functions_of(client.interface)
    return RunResult(joined(parts), refused, *facts, functions=functions)
