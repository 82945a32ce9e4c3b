"""The calibration of the engine ``cpu``.

The engine relinearizes and rescales late, and does both at once when the result is needed in
another form. A product is therefore measured together with the work that it postpones (``settle``).
The counting engine's ``rescale`` is the division that a product with a number postpones.

The parts of a ``transform`` cannot be timed apart. A few transforms have different numbers of
parts, and the seconds of one part of each kind solve the equations.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import cache, partial
from itertools import count
from typing import Any, NamedTuple, get_args

import numpy as np

from atlasc.program.function import EngineParameters, Function
from atlasc.program.key_plan import KeyPlan
from atlasc.program.plaintexts import Argument, Slots, Table
from atlasc.program.record import Recorder
from atlasc.program.transform_work import TransformKind, TransformTerm, TransformWork
from atlasc.targets.base import no_progress
from atlasc.targets.calibration import MANY, Actions, Calibrator, Seconds
from atlasc.targets.ckks.engine import key_bytes
from atlasc.targets.cpu.engine import CpuEngine
from atlasc.targets.cpu.parameters import CpuParameters
from atlasc.targets.parameters import ParameterSet, require_set
from atlasc.version import __version__

TOGETHER = 8
"""Number of plaintexts in a measured sum: an engine encodes several at once."""
LEVELED = ((3, 2**12), (6, 2**13), (14, 2**14), (20, 2**15), (34, 2**15))
"""Levels and slots of the leveled sets."""
PERIOD = 256
"""Slots after which the plaintexts of a measured ``transform`` repeat."""


class Blocks(NamedTuple):
    """Numbers of the operands, baby steps, giant steps and results of a measured ``transform``. The
    steps are rotations by 1, 2, ...; without baby steps there is one by 0, and as for giant steps.
    """

    operands: int
    babies: int
    giants: int
    results: int
    dense: bool = False


TRANSFORMS = {
    "transform_results": Blocks(1, 0, 0, 8),
    "transform_giants": Blocks(1, MANY, MANY, 1),
    "transform_operands": Blocks(12, 1, 0, 4),
    "transform_babies": Blocks(3, MANY, 0, 4),
    "transform_products": Blocks(12, MANY, 0, 24),
    "transform_vectors": Blocks(1, 4, 0, 8, True),
}
"""Each has many parts of one kind. Three operands are those of 768 features."""


def terms_of(blocks: Blocks, slots: int) -> list[TransformTerm]:
    """The terms of a measured ``transform``; plaintexts are elements of the array ``values``."""
    repeats = 1 if blocks.dense else slots // PERIOD
    table, made = Table("places", partial(np.arange, slots // repeats), repeats), count()
    babies = range(1, blocks.babies + 1) if blocks.babies else [0]
    giants = range(1, blocks.giants + 1) if blocks.giants else [0]
    return [
        TransformTerm(
            baby, giant, Slots.of(Argument("values"), (table, next(made))), operand, result
        )
        for result in range(blocks.results)
        for giant in giants
        for operand in range(blocks.operands)
        for baby in babies
    ]


@cache
def transform_of(shape: EngineParameters, level: int, blocks: Blocks) -> Function:
    """A measured ``transform``."""
    recorder = Recorder(shape)
    operands = [recorder.register(level) for _ in range(blocks.operands)]
    results = recorder.transform(operands, terms_of(blocks, shape.slots))
    return Function(
        "transform",
        shape,
        ((level,) * blocks.operands,),
        tuple(recorder.code),
        tuple(one.number for one in results),
        tuple(one.level for one in results),
    )


class CpuCalibrator(Calibrator):
    """See the base class; the keys of a bootstrap take 6 GB."""

    library = __version__
    bootstrapped = CpuParameters.bootstrapped()
    bootstrap_keys = 60

    def __init__(self) -> None:
        self._made = count()

    def sets(self, quick: bool) -> list[ParameterSet]:
        sets: list[ParameterSet] = [CpuParameters.choose(*need) for need in LEVELED]
        return sets[1:-1] if quick else [*sets, self.bootstrapped]

    def keyed(self, parameters: ParameterSet, plan: KeyPlan) -> tuple[CpuEngine, float]:
        chosen = require_set(parameters, CpuParameters)
        started = time.perf_counter()
        engine = CpuEngine.fresh(chosen, plan, no_progress)
        spent = time.perf_counter() - started
        return engine, spent * chosen.key_bytes(chosen.max_level) / key_bytes(chosen, plan)

    def bootstrapping(self) -> CpuEngine:
        return CpuEngine.fresh(self.bootstrapped, KeyPlan({}), no_progress)

    def actions(self, engine: CpuEngine, ct: Any, other: Any) -> Actions:
        vector = np.random.default_rng(0).uniform(-1, 1, engine.slots)

        def vectors(times: int) -> list[np.ndarray]:
            """New vectors for each call, because the engine keeps plaintexts that it has seen."""
            return [np.roll(vector, next(self._made)) for _ in range(times)]

        level, shape = engine.level(ct), EngineParameters.of(engine)
        transforms = {
            name: partial(
                engine.play, transform_of(shape, level, blocks), [[ct] * blocks.operands], [vector]
            )
            for name, blocks in TRANSFORMS.items()
        }
        return {
            **transforms,
            "scalar": lambda: engine.settle(engine.mul_plain(ct, 0.3)),
            "mul": lambda: engine.settle(engine.mul(ct, other)),
            "mul_lazy": lambda: engine.mul(ct, other),
            "square": lambda: engine.settle(engine.square(ct)),
            "vectors": lambda: vectors(TOGETHER),
            "mul_plain": lambda: engine.dot_plain([ct] * TOGETHER, vectors(TOGETHER)),
            "add_plain": lambda: engine.add_plain(ct, vectors(1)[0]),
        }

    def primitives(self, seconds: Seconds) -> Seconds:
        made, settled = seconds.pop("vectors"), seconds.pop("scalar")
        seconds["rescale"] = rescale = {}
        for level, scalar in settled.items():
            # Keeps differences of noisy times positive.
            rescale[level] = max(scalar - seconds["mul_scalar"][level], scalar / 4)
            for product in ("mul", "square"):
                whole = seconds[product][level]
                seconds[product][level] = max(whole - rescale[level], whole / 4)
            for name, times in (("mul_plain", TOGETHER), ("add_plain", 1)):
                whole = seconds[name][level]
                encoded = whole - made[level] * times / TOGETHER
                seconds[name][level] = max(encoded, whole / 4) / times
        transforms = {name: seconds.pop(name) for name in TRANSFORMS}
        for level in settled:
            alone = {name: transforms[name][level] for name in TRANSFORMS}
            for kind, found in parts_of(alone).items():
                seconds.setdefault(kind, {})[level] = found
        return seconds


def parts_of(measured: Mapping[str, float]) -> dict[str, float]:
    """Kind -> seconds of one part of a ``transform``, positive despite noise.

    Args:
        measured: name of a transform in ``TRANSFORMS`` -> its seconds.
    """
    from scipy.optimize import nnls

    kinds = get_args(TransformKind)
    slots = CpuParameters.bootstrapped().slots
    works = [TransformWork.of(1, terms_of(one, slots), slots) for one in TRANSFORMS.values()]
    # The last column is for the decompositions of operands, which are measured apart as ``hoist``.
    calls = np.array(
        [[*(float(work.calls[kind]) for kind in kinds), work.operands] for work in works]
    )
    times = np.array([[measured[name]] for name in TRANSFORMS])
    found, _ = nnls(calls / times, np.ones(len(times)))
    least = 0.01 * (times / np.maximum(calls, 1)).min(axis=0)
    return dict(zip(kinds, np.maximum(found, least).tolist(), strict=False))
