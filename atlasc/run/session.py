"""Running a compiled program with all roles in one process.

:mod:`atlasc.run.roles` has client and server apart, made of the same steps.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from atlasc.bundle.folder import Bundle
from atlasc.client.program import Packed, batches, rows_of
from atlasc.ir.module import Module, Op
from atlasc.passes.execution.engine import Engine
from atlasc.passes.execution.execute import Execution
from atlasc.run.ranges import simulate
from atlasc.run.timing import Pace, Timing
from atlasc.targets import find_target
from atlasc.targets.base import Progress, no_progress

PHASES = ("keys", "encrypt", "execute", "decrypt")


@dataclass(frozen=True)
class RunResult:
    """What a run gave.

    Attributes:
        outputs: answers by output name, ``[count, ...]``.
        expected: the same from the polynomial simulation.
        seconds: time by phase: keys, encrypt, execute, decrypt.
        target: name of the target.
        timing: seconds of each op; None where nothing was encrypted.
        refused: inputs whose answer is none; see :class:`atlasc.client.answers.Answers`.
    """

    outputs: dict[str, np.ndarray]
    expected: dict[str, np.ndarray]
    seconds: dict[str, float]
    target: str
    timing: Timing | None = None
    refused: dict[int, float] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """Number of inputs."""
        return rows_of(self.outputs)

    @property
    def max_error(self) -> float:
        """Greatest difference of an answer from the polynomial simulation; NaN without answers."""
        return max(float(np.abs(d).max()) for d in self._differences())

    @property
    def mean_error(self) -> float:
        """Mean absolute difference from the polynomial simulation."""
        return float(np.mean([np.abs(d).mean() for d in self._differences()]))

    def _differences(self) -> list[np.ndarray]:
        answered = [row for row in range(self.count) if row not in self.refused]
        if not answered:
            return [np.array([np.nan])]
        return [
            self.outputs[name][answered] - self.expected[name][answered] for name in self.outputs
        ]


def run(
    bundle: Bundle,
    arrays: Mapping[str, np.ndarray],
    target: str | None = None,
    progress: Progress = no_progress,
    observe: Callable[[Op, list[Any]], None] | None = None,
    engine: Engine[Any] | None = None,
    expected: Mapping[str, np.ndarray] | None = None,
    unchecked: bool = False,
) -> RunResult:
    """Key generation, encryption, execution and decryption in one process, for a try-out.

    Args:
        bundle: a compiled model.
        arrays: raw inputs by name; more than a batch are answered in several runs, with one set
            of keys.
        target: name of another target than the bundle's own.
        progress: called before each key, and for each op with predicted hundredths of all runs.
        observe: called with every op and its ciphertexts.
        engine: an engine made before, to answer several queries with one set of keys.
        expected: the polynomial simulation of the inputs, where it was made before.
        unchecked: encrypt inputs that are far larger than those of calibration.

    Raises:
        AtlasError: of the inputs, of the keys, or an op that the engine refuses.
    """
    chosen = find_target(target or bundle.target)
    if expected is None:
        expected = simulate(bundle.client, bundle.poly, arrays).outputs
    seconds = dict.fromkeys(PHASES, 0.0)
    clock = time.perf_counter()

    def lap(phase: str) -> None:
        nonlocal clock
        now = time.perf_counter()
        seconds[phase], clock = seconds[phase] + now - clock, now

    if engine is None:
        engine = chosen.make_engine(bundle.program, bundle.parameters, progress)
    lap("keys")
    batch = bundle.client.batch
    pace = Pace(bundle, chosen, -(-rows_of(arrays) // batch), progress)
    parts: list[dict[str, np.ndarray]] = []
    refused: dict[int, float] = {}
    for start, rows in batches(arrays, batch):
        packed = bundle.client.query(rows, unchecked=unchecked)
        encrypted = encrypt_all(engine, packed)
        lap("encrypt")
        results = execute(engine, bundle.program, encrypted, packed.public, pace, observe)
        pace.finish()
        lap("execute")
        answers = bundle.client.answers(decrypt_all(engine, results), packed.count)
        parts.append(answers.outputs)
        refused |= {start + row: share for row, share in answers.refused.items()}
        lap("decrypt")
    outputs = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    return RunResult(outputs, dict(expected), seconds, chosen.name, pace.timing(), refused)


def encrypt_all(engine: Engine[Any], packed: Packed) -> dict[str, list[Any]]:
    """Ciphertexts of a packed query."""
    return {
        name: [engine.encrypt(vector, packed.levels[name]) for vector in vectors]
        for name, vectors in packed.vectors.items()
    }


def decrypt_all(engine: Engine[Any], results: Mapping[str, list[Any]]) -> dict[str, np.ndarray]:
    """Slots ``[ciphertexts, slots]`` by output name."""
    return {name: np.stack([engine.decrypt(c) for c in cs]) for name, cs in results.items()}


def execute(
    engine: Engine[Any],
    program: Module,
    encrypted: Mapping[str, list[Any]],
    public: Mapping[str, np.ndarray],
    before: Callable[[Op], None] | None = None,
    observe: Callable[[Op, list[Any]], None] | None = None,
) -> dict[str, list[Any]]:
    """Run the server's program on ciphertexts.

    Args:
        engine: with evaluation keys.
        program: ckks module.
        encrypted: ciphertexts by input name.
        public: inputs in the clear by name.
        before: called before every op; a :class:`atlasc.run.timing.Pace` makes it progress.
        observe: called with every op and its ciphertexts.
    """
    # On sim an input outside the ranges overflows; decryption then says so, in one message.
    with np.errstate(over="ignore", invalid="ignore"):
        return Execution(program, engine, observe, before).run(encrypted, public)
