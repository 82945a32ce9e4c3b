"""Two engines at the same op of a program, and the errors that are measured there.

After each op the target's result is decrypted and compared twice:

* with the simulator's result of **that op on the target's own operands**: the *error* of the op
  alone. It must stay within a *bound*, which is measured in the same way: the simulator runs the op
  with the errors of CKKS, and :data:`SAFETY` times the resulting difference is allowed. So the
  bound follows the noise of the target and the op's effect on it, and no op is blamed for the error
  of another one;
* with the reference's result, which comes from the program's inputs: the *difference*, in which
  errors add up and grow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import numpy as np
from pydantic import ConfigDict, Field

from atlasc.client.program import Packed
from atlasc.ir.errors import AtlasError
from atlasc.ir.files.json_text import STRICT, Amount
from atlasc.ir.module import Module, Op, Value
from atlasc.ir.types import CiphertextType
from atlasc.passes.execution.engine import Engine
from atlasc.passes.execution.execute import apply
from atlasc.passes.execution.kernels.context import Context
from atlasc.passes.execution.rotation_plan import planned
from atlasc.targets.noise import NoiseModel
from atlasc.targets.sim.engine import SimEngine

SAFETY = 10.0
"""The noise model is Gaussian; a real slot's error has an exponential tail, up to 12 standard
deviations in 32,768 slots, where a Gaussian one has 4. Chance may double that."""
NOISE_RUNS = 3
"""Noisy simulations of each op: one of them may add little noise where the op amplifies most."""
FLOOR = 1e-8
"""Of the largest value: rounding of an encoded vector (8e-10 was seen at N = 2^16) and of float64,
which the noise model does not have."""
IMAGINARY = 1e-6
"""A reference value with smaller imaginary parts is real, and only real parts are compared."""

Slots = list[tuple[np.ndarray, int]]
"""Slots and level of the ciphertexts of one value."""
LiveSlots = dict[str, tuple[Slots, Slots]]
"""By value: of the reference, and of the target."""
AnyNumber = Annotated[float, Field(strict=False, allow_inf_nan=True)]
"""A target that is wrong may leave any number; JSON has infinity as a string."""


@dataclass(frozen=True)
class OpError:
    """What one op of the target did.

    Attributes:
        op, value, location: which op, its result's name, and its module path.
        level: of the result, as it should be.
        target_level: of the target's; another one is an error too.
        error: greatest error over all slots that the op alone added.
        bound: on ``error``.
        difference: greatest absolute difference from the reference, of all ops so far.
        largest: greatest absolute slot of the reference.
        tolerance: bound on ``difference``, if there is one.
    """

    __pydantic_config__ = ConfigDict({**STRICT, "ser_json_inf_nan": "strings"})

    op: str
    value: str
    location: str
    level: int
    target_level: int
    error: AnyNumber
    bound: AnyNumber
    difference: AnyNumber
    largest: AnyNumber
    tolerance: Amount | None = None

    @property
    def parts(self) -> bool:
        """Whether the op is wrong, or the programs are too far apart here."""
        apart = self.tolerance is not None and not self.difference <= self.tolerance
        return apart or not self.error <= self.bound or self.level != self.target_level


@dataclass
class _Both:
    """A live value: ciphertexts of both engines, and the target's slots."""

    reference: list[Any]
    target: list[Any]
    slots: list[np.ndarray]


class LockStep:
    """Both programs at the same op, and the simulators that judge it.

    Args:
        program: ckks module.
        query: packed inputs.
        reference, target: two engines of equal parameters.
    """

    def __init__(
        self,
        program: Module,
        query: Packed,
        reference: Engine[Any],
        target: Engine[Any],
    ) -> None:
        self.program, self.query = program, query
        self.values: dict[Value, Any] = {}
        self.last_use = {v: n for n, op in enumerate(program.ops) for v in op.operands}
        parameters = target.slots, target.max_level, target.bootstrap_level
        # The reference alone refuses values outside the range of a bootstrap: noise may leave it.
        judge = partial(
            SimEngine, *parameters, bootstrap_batch=target.bootstrap_batch, bootstrap_range=np.inf
        )
        noise = NoiseModel.ckks(2 * target.slots)
        noisy = (judge(noise=noise, seed=seed) for seed in range(NOISE_RUNS))
        self.contexts = [
            Context(planned(engine, program), program.symbols, query.public)
            for engine in (reference, target, judge(), *noisy)
        ]
        self.reference, self.target, *self.judges = self.contexts

    def step(self, position: int, op: Op, tolerance: float | None) -> OpError | None:
        """Run an op; None for one that makes no ciphertexts."""
        found = None
        with np.errstate(over="ignore", invalid="ignore"):
            if op.name == "ckks.public_input":
                self.values[op.value] = self.query.public[op.attributes["name"]]
            elif op.name == "ckks.input":
                name = op.attributes["name"]
                level, vectors = self.query.levels[name], self.query.vectors[name]
                fresh = [(vector, level) for vector in vectors]
                found = self._judge(op, [_encrypted(c, fresh) for c in self.contexts], tolerance)
            elif op.result is not None:
                found = self._judge(op, self._results(op), tolerance)
        for operand in op.operands:
            if self.last_use[operand] == position:
                self.values.pop(operand, None)
        return found

    def live(self) -> LiveSlots:
        """Slots and levels of all live ciphertexts, by value: of the reference, of the target."""
        found: LiveSlots = {}
        for value, both in self.values.items():
            if isinstance(both, _Both):
                slots = [_slots(self.reference, c) for c in both.reference]
                found[value.name] = (
                    list(zip(slots, _levels(self.reference, both.reference), strict=True)),
                    list(zip(both.slots, _levels(self.target, both.target), strict=True)),
                )
        return found

    def restore(self, live: LiveSlots, position: int) -> None:
        """Encrypt again the values of a checkpoint.

        Raises:
            AtlasError: the rest of the program needs other values, or the program makes others.
        """
        by_name = {
            op.value.name: (op.value, op.result.type.ciphertexts)
            for op in self.program.ops[:position]
            if op.result is not None and isinstance(op.result.type, CiphertextType)
        }
        needed = {n for n, (v, _) in by_name.items() if self.last_use.get(v, -1) >= position}
        if not needed <= live.keys() <= by_name.keys():
            raise _unsuitable("it has other values than this program")
        shape, top = (self.target.engine.slots,), self.target.engine.max_level
        for name, (ours, theirs) in live.items():
            value, count = by_name[name]
            if len(ours) != count or len(theirs) != count:
                raise _unsuitable(f"%{name} has {count} ciphertexts in this program")
            for slots, level in (*ours, *theirs):
                if slots.shape != shape or slots.dtype.kind not in "fc":
                    raise _unsuitable(f"%{name} is not made of {shape[0]} slots")
                if level > top:
                    raise _unsuitable(f"%{name} has level {level}")
            self.values[value] = _Both(
                _encrypted(self.reference, ours),
                _encrypted(self.target, theirs),
                [slots for slots, _ in theirs],
            )
        for op in self.program.ops:
            if op.name == "ckks.public_input":
                self.values[op.value] = self.query.public[op.attributes["name"]]

    def _results(self, op: Op) -> list[list[Any]]:
        """What all engines make of an op; the judges start from the target's operands."""
        operands = [self.values[operand] for operand in op.operands]
        found = []
        for ctx in self.contexts:
            given = list(operands)
            for n, both in enumerate(operands):
                if not isinstance(both, _Both):
                    continue
                if ctx is self.reference:
                    given[n] = both.reference
                elif ctx is self.target:
                    given[n] = both.target
                else:
                    levels = _levels(self.target, both.target)
                    given[n] = _encrypted(ctx, list(zip(both.slots, levels, strict=True)))
            found.append(apply(ctx, op, given))
        return found

    def _judge(self, op: Op, results: list[list[Any]], tolerance: float | None) -> OpError:
        error = bound = difference = largest = 0.0
        both = self.values[op.value] = _Both(results[0], results[1], [])
        for made in zip(*results, strict=True):
            ours = _slots(self.reference, made[0])
            imaginary = np.iscomplexobj(ours)
            theirs, right, *noisy = (
                _slots(ctx, one, imaginary)
                for ctx, one in zip(self.contexts[1:], made[1:], strict=True)
            )
            noise = max(_apart(slots, right) for slots in noisy)
            largest = max(largest, float(np.abs(ours).max()))
            error = max(error, _apart(theirs, right))
            bound = max(bound, SAFETY * noise + FLOOR * max(1.0, float(np.abs(right).max())))
            difference = max(difference, _apart(theirs, ours))
            both.slots.append(theirs)
        return OpError(
            op.name,
            op.value.name,
            op.location,
            _levels(self.judges[0], results[2])[0],
            _levels(self.target, both.target)[0],
            error,
            bound,
            difference,
            largest,
            None if tolerance is None else tolerance * max(1.0, largest),
        )


def _levels(ctx: Context[Any], ciphertexts: Sequence[Any]) -> list[int]:
    return [ctx.engine.level(ciphertext) for ciphertext in ciphertexts]


def _slots(ctx: Context[Any], ciphertext: Any, imaginary: bool | None = None) -> np.ndarray:
    """Decrypted slots: complex or not as asked for, by default as they are."""
    engine = ctx.engine
    # Decryption is cheaper at a lower level; level 1 still holds any sane value.
    low = engine.drop_to(ciphertext, min(1, engine.level(ciphertext)))
    real = engine.decrypt(low)
    if imaginary is False:
        return real
    other = -engine.decrypt(engine.times_i(low))
    if imaginary is None and not np.abs(other).max() > IMAGINARY:
        return real
    return real + 1j * other


def _encrypted(ctx: Context[Any], values: Slots) -> list[Any]:
    """Slots, complex ones too, in an engine."""
    engine, made = ctx.engine, []
    for slots, level in values:
        ciphertext = engine.encrypt(np.ascontiguousarray(slots.real), level)
        if np.iscomplexobj(slots):
            other = engine.encrypt(np.ascontiguousarray(slots.imag), level)
            ciphertext = engine.add(ciphertext, engine.times_i(other))
        made.append(ciphertext)
    return made


def _apart(one: np.ndarray, other: np.ndarray) -> float:
    """Greatest absolute difference; infinite where one is not a number."""
    apart = float(np.abs(one - other).max())
    return apart if apart == apart else float("inf")


def _unsuitable(why: str) -> AtlasError:
    return AtlasError(
        "the checkpoint does not suit the program",
        why=why,
        remedy="delete it, and the comparison starts from the beginning",
    )
