"""Runs two targets op by op to find the first op that is wrong.

After each op the target's result is decrypted and compared twice:

* with the simulator's result of **that op on the target's own operands**. This gives the *error* of
  the op alone. The error must stay within a *bound*, which is measured in the same way: the
  simulator runs the op with the errors of the target's own noise model, and the error may be
  :data:`TAIL` times the resulting difference, and its root mean square :data:`SAFETY` times that of
  the simulation, which reveals errors in many slots. So the bound follows the noise of the target
  and the op's effect on it, and no op is blamed for the error of another op;
* with the reference's result, which comes from the program's inputs. This gives the *difference*,
  in which errors add up and grow.

Only live values are kept.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import Any

import numpy as np

from atlasc.client.program import Packed
from atlasc.compare.checkpoint import Checkpoint, LiveSlots, OpError, SlotsAndLevels
from atlasc.ir.errors import AtlasError
from atlasc.ir.module import Module, Op, Value
from atlasc.program.engine import Engine
from atlasc.program.execute import Executor, Functions
from atlasc.program.function import EngineParameters
from atlasc.targets.noise import NoiseModel
from atlasc.targets.sim import SimEngine

SAFETY = 3.0
"""Allowed ratio of an op's root mean square error to the simulated one: for chance, and for errors
of the target that the model leaves out."""
TAIL = 4.0
"""Allowed ratio of an op's greatest error to the simulated one. Simulated errors are Gaussian. A
real slot's error is a Gaussian number times the secret's value in that slot, so it has an
exponential tail: in 32,768 slots it reaches 12 standard deviations, a Gaussian number 4."""
NOISE_RUNS = 3
"""Noisy simulations of each op; a single one may add little noise where the op amplifies most."""
FLOOR = 1e-10
"""Allowed error as a share of the largest value, for float64's rounding, which the noise model
lacks."""
IMAGINARY = 1e-6
"""A reference value with smaller imaginary parts counts as real, and only real parts are
compared.
"""


@dataclass
class Comparison:
    """The results of two engines on one program.

    Attributes:
        ops: one entry for each op, in the order of execution.
        refused: the error that stopped the execution, if an engine refused an op.
    """

    ops: list[OpError] = field(default_factory=list)
    refused: AtlasError | None = None

    @property
    def first(self) -> OpError | None:
        """The first op that is wrong."""
        return next((op for op in self.ops if op.parts), None)

    @property
    def worst(self) -> OpError | None:
        """The op with the greatest difference after it."""
        return max(self.ops, key=lambda op: op.difference, default=None)


def compare(
    program: Module,
    query: Packed,
    reference: Engine[Any],
    target: Engine[Any],
    noise: NoiseModel,
    *,
    tolerance: float | None = None,
    keep_going: bool = False,
    before: Callable[[Op], None] | None = None,
    checkpoint: Checkpoint | None = None,
) -> Comparison:
    """Run one query on two engines, up to the first op that is wrong.

    Args:
        program: ckks module.
        query: packed inputs.
        reference: the engine that is trusted, usually the simulator.
        target: the engine to examine; it must be able to decrypt.
        noise: noise model of the target's parameters.
        tolerance: largest difference, for slots up to 1; larger values may differ in proportion.
        keep_going: do not stop at the first wrong op; later ops are judged by their own operands.
        before: called before every op.
        checkpoint: state to continue from; it is updated.

    Raises:
        AtlasError: the engines have different parameters, or the checkpoint does not suit the
            program.
    """
    for name in ("slots", "max_level", "bootstrap_level", "bootstrap_batch"):
        ours, theirs = getattr(reference, name), getattr(target, name)
        if ours != theirs:
            raise AtlasError(
                "two engines of different parameters cannot be compared",
                why=f"{name} is {ours} in the reference and {theirs} in the target",
            )
    run = _LockStep(program, query, reference, target, noise)
    result, start = Comparison(), 0
    if checkpoint is not None and checkpoint.position:
        start, result.ops = checkpoint.position, checkpoint.ops
        run.restore(checkpoint.live, start)
        checkpoint.live = {}
    for position, op in enumerate(program.ops[start:], start):
        if before is not None:
            before(op)
        try:
            found = run.step(position, op, tolerance)
        except AtlasError as error:
            result.refused = error
            return result
        if found is not None:
            result.ops.append(found)
            if found.parts and not keep_going:
                return result
        if checkpoint is not None:
            checkpoint.save_now_and_then(position + 1, result.ops, run.live)
    if checkpoint is not None:
        checkpoint.path.unlink(missing_ok=True)
    return result


@dataclass
class _Both:
    """A live value: the ciphertexts of both engines, and the decrypted slots of the target's."""

    reference: list[Any]
    target: list[Any]
    slots: SlotsAndLevels


class _LockStep:
    """Both programs at the same op, and the simulators that judge the op."""

    def __init__(
        self,
        program: Module,
        query: Packed,
        reference: Engine[Any],
        target: Engine[Any],
        noise: NoiseModel,
    ) -> None:
        self.program, self.query = program, query
        self.last_use = {v: n for n, op in enumerate(program.ops) for v in op.operands}
        self.values: dict[Value, Any] = {
            op.value: query.public[op.attributes["name"]]
            for op in program.ops
            if op.name == "ckks.public_input"
        }
        shape = EngineParameters.of(target)
        functions = Functions(program, shape)
        # Only the reference refuses values outside a bootstrap's range, because noise may leave it.
        judge = partial(SimEngine, *shape, bootstrap_range=np.inf)
        # Reading an operand did its postponed rescale; the target's op did not see its error.
        read = replace(noise, fresh=float(np.hypot(noise.fresh, noise.settle)))
        noisy = (judge(noise=read, seed=seed) for seed in range(NOISE_RUNS))
        self.sides = [
            Executor(engine, functions) for engine in (reference, target, judge(), *noisy)
        ]
        self.reference, self.target = self.sides[:2]

    def step(self, position: int, op: Op, tolerance: float | None) -> OpError | None:
        """Run an op on both sides; None for an op that makes no ciphertexts."""
        found = None
        if op.result is not None and op.result not in self.values:
            with np.errstate(over="ignore", invalid="ignore"):
                found = self._judged(op, [self._result(one, op) for one in self.sides], tolerance)
        for operand in op.operands:
            if self.last_use[operand] == position:
                self.values.pop(operand, None)
        return found

    def live(self) -> LiveSlots:
        """Value -> slots and levels of all its live ciphertexts: of the reference, and of the
        target.
        """
        level = self.reference.engine.level
        return {
            value.name: [
                [(_slots(self.reference, c), level(c)) for c in both.reference],
                both.slots,
            ]
            for value, both in self.values.items()
            if isinstance(both, _Both)
        }

    def restore(self, live: LiveSlots, position: int) -> None:
        """Encrypt the values of a checkpoint again.

        Raises:
            AtlasError: the checkpoint's values are not those that the program has here.
        """
        made = {
            op.value.name: op.value
            for op in self.program.ops[:position]
            if op.result is not None and op.result.encrypted
        }
        needed = {name for name, v in made.items() if self.last_use.get(v, -1) >= position}
        if not needed <= live.keys() <= made.keys():
            raise _unsuitable("the checkpoint has other values than this program")
        shape, top = (self.target.engine.slots,), self.target.engine.max_level
        for name, sides in live.items():
            count = made[name].ciphertext.ciphertexts
            if any(len(side) != count for side in sides) or any(
                slots.shape != shape or slots.dtype.kind not in "fc" or level > top
                for slots, level in chain(*sides)
            ):
                what = f"{count} ciphertexts of {shape[0]} slots, at levels up to {top}"
                raise _unsuitable(f"%{name} is not {what}")
            ours, theirs = map(_encrypted, (self.reference, self.target), sides)
            self.values[made[name]] = _Both(ours, theirs, sides[1])

    def _result(self, side: Executor[Any], op: Op) -> list[Any]:
        """An op's result on an engine; the judges start from the target's operands."""
        if op.name == "ckks.input":
            level = self.query.levels[op.attributes["name"]]
            return _encrypted(side, [(v, level) for v in self.query.vectors[op.attributes["name"]]])
        given = []
        for value in (self.values[operand] for operand in op.operands):
            if not isinstance(value, _Both):
                given.append(value)
            elif side is self.reference or side is self.target:
                given.append(value.reference if side is self.reference else value.target)
            else:
                given.append(_encrypted(side, value.slots))
        return side.apply(op, given)

    def _judged(self, op: Op, results: list[list[Any]], tolerance: float | None) -> OpError:
        both = self.values[op.value] = _Both(results[0], results[1], [])
        figures = [(0.0,) * 6]
        for made in zip(*results, strict=True):
            ours, *others = (_slots(side, one) for side, one in zip(self.sides, made, strict=True))
            # Errors have imaginary parts, which the next op may read.
            both.slots.append((others[0], self.target.engine.level(made[1])))
            if not np.abs(ours.imag).max() > IMAGINARY:
                ours, *others = (slots.real for slots in (ours, *others))
            theirs, right, *noisy = others
            largest = float(np.abs(ours).max())
            floor = FLOOR * max(1.0, float(np.abs(right).max()))
            bound = TAIL * max(_apart(slots, right) for slots in noisy) + floor
            even = SAFETY * max(_deviation(slots, right) for slots in noisy) + floor
            errors = _apart(theirs, right), _deviation(theirs, right)
            figures.append((errors[0], bound, errors[1], even, _apart(theirs, ours), largest))
        error, bound, deviation, even, difference, largest = map(max, zip(*figures))
        allowed = None if tolerance is None else tolerance * max(1.0, largest)
        level = self.sides[2].engine.level(results[2][0])
        facts = (level, both.slots[0][1], error, bound, difference, largest, allowed)
        return OpError(op.name, op.value.name, op.location, *facts, deviation, even)


def _slots(side: Executor[Any], ciphertext: Any) -> np.ndarray:
    """Decrypted slots, as complex numbers."""
    engine = side.engine
    # Decryption is cheaper at a lower level; level 1 still has room for any reasonable value.
    low = engine.drop_to(ciphertext, min(1, engine.level(ciphertext)))
    return engine.decrypt(low) - 1j * engine.decrypt(engine.times_i(low))


def _encrypted(side: Executor[Any], values: SlotsAndLevels) -> list[Any]:
    """Encrypt slots, also complex ones, at their levels."""
    engine, made = side.engine, []
    for slots, level in values:
        ciphertext = engine.encrypt(np.ascontiguousarray(slots.real), level)
        if np.iscomplexobj(slots):
            ciphertext = engine.add_plain(ciphertext, 1j * slots.imag)
        made.append(ciphertext)
    return made


def _apart(one: np.ndarray, other: np.ndarray) -> float:
    """Greatest absolute difference; infinite if there is a NaN."""
    apart = float(np.abs(one - other).max())
    return apart if apart == apart else float("inf")


def _deviation(one: np.ndarray, other: np.ndarray) -> float:
    """Root mean square difference; infinite if there is a NaN."""
    apart = float(np.sqrt(np.square(np.abs(one - other)).mean()))
    return apart if apart == apart else float("inf")


def _unsuitable(why: str) -> AtlasError:
    return AtlasError(
        "the checkpoint does not suit the program",
        why=why,
        remedy="delete the checkpoint, and the comparison starts from the beginning",
    )
