"""Two engines at the same op of a program, and what is found out there.

After each op the target's result is decrypted and compared twice:

* with the simulator's result of **that op on the target's own operands**: the *error* of the op
  alone, whatever went before. It must stay within a *bound*, which is measured the same way: the
  simulator runs the op with the errors of CKKS, and :data:`SAFETY` times what they become in that
  op is allowed. The bound so follows the noise of the backend and what the op does to it, and no
  op is blamed for the error of another one;
* with the reference's result, which comes from the program's inputs: the *difference*, in which
  errors add up and are stretched.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from atlasc.client.program import Packed
from atlasc.compare.state import LiveSlots
from atlasc.ir.errors import AtlasError
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
deviations in 32,768 slots, where a Gaussian one has 4. Twice as much again may be chance."""
NOISE_RUNS = 3
"""Where an op stretches the noise of few slots most, one run may happen to be mild there."""
FLOOR = 1e-8
"""Of the largest value: rounding of an encoded vector (8e-10 was seen at N = 2^16) and of float64,
which the noise model does not have."""
IMAGINARY = 1e-6
"""A reference value with smaller imaginary parts is real, and only real parts are compared."""


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

    op: str
    value: str
    location: str
    level: int
    target_level: int
    error: float
    bound: float
    difference: float
    largest: float
    tolerance: float | None = None

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
        noise: of the target's primitives.
    """

    def __init__(
        self,
        program: Module,
        query: Packed,
        reference: Engine[Any],
        target: Engine[Any],
        noise: NoiseModel,
    ) -> None:
        self.program, self.query = program, query
        self.values: dict[Value, Any] = {}
        self.last_use = {v: n for n, op in enumerate(program.ops) for v in op.operands}
        parameters = target.slots, target.max_level, target.bootstrap_level
        # The range of a bootstrap is the reference's to refuse: noise may leave it by a hair.
        judge = partial(
            SimEngine, *parameters, bootstrap_batch=target.bootstrap_batch, bootstrap_range=np.inf
        )
        exact = judge()
        noisy = [judge(noise=noise, seed=seed) for seed in range(NOISE_RUNS)]
        engines = reference, target, exact, *noisy
        self.reference, self.target, self.exact, *self.noisy = [
            Context(planned(engine, program), program.symbols, query.public) for engine in engines
        ]

    def step(self, position: int, op: Op, tolerance: float | None) -> OpError | None:
        """Run an op; None for one that makes no ciphertexts."""
        found = None
        with np.errstate(over="ignore", invalid="ignore"):
            if op.name == "ckks.public_input":
                self.values[op.value] = self.query.public[op.attributes["name"]]
            elif op.name == "ckks.input":
                found = self._input(op, tolerance)
            elif op.result is not None:
                found = self._op(op, tolerance)
        for operand in op.operands:
            if self.last_use[operand] == position:
                self.values.pop(operand, None)
        return found

    def live(self) -> LiveSlots:
        """Slots and levels of all live ciphertexts, by value: of the reference, of the target."""
        found: LiveSlots = {}
        for value, both in self.values.items():
            if isinstance(both, _Both):
                slots = [self._slots(self.reference, c) for c in both.reference]
                sides = ((self.reference, both.reference), (self.target, both.target))
                ours, theirs = ([self._level(ctx, c) for c in cs] for ctx, cs in sides)
                found[value.name] = (
                    list(zip(slots, ours, strict=True)),
                    list(zip(both.slots, theirs, strict=True)),
                )
        return found

    def restore(self, live: LiveSlots, position: int) -> None:
        """Values as they were at a checkpoint, encrypted anew.

        Raises:
            AtlasError: what is left of the program needs others, or they are not what it makes.
        """
        by_name = {
            op.value.name: op.value
            for op in self.program.ops[:position]
            if op.result is not None and isinstance(op.result.type, CiphertextType)
        }
        needed = {name for name, v in by_name.items() if self.last_use.get(v, -1) >= position}
        if not needed <= live.keys() <= by_name.keys():
            raise _unsuitable("it has other values than this program")
        shape = (self.target.engine.slots,)
        for name, (ours, theirs) in live.items():
            count = by_name[name].ciphertext.ciphertexts
            if len(ours) != count or len(theirs) != count:
                raise _unsuitable(f"%{name} has {count} ciphertexts in this program")
            for slots, level in (*ours, *theirs):
                if slots.shape != shape or slots.dtype.kind not in "fc":
                    raise _unsuitable(f"%{name} is not made of {shape[0]} slots")
                if level > self.target.engine.max_level:
                    raise _unsuitable(f"%{name} has level {level}")
            self.values[by_name[name]] = _Both(
                [_encrypted(self.reference, *one) for one in ours],
                [_encrypted(self.target, *one) for one in theirs],
                [slots for slots, _ in theirs],
            )
        for op in self.program.ops:
            if op.name == "ckks.public_input":
                self.values[op.value] = self.query.public[op.attributes["name"]]

    def _input(self, op: Op, tolerance: float | None) -> OpError:
        name = op.attributes["name"]
        fresh = [(vector, self.query.levels[name]) for vector in self.query.vectors[name]]
        everyone = (self.reference, self.target, self.exact, *self.noisy)
        made = [[_encrypted(ctx, *one) for one in fresh] for ctx in everyone]
        return self._judge(op, *made, tolerance=tolerance)

    def _op(self, op: Op, tolerance: float | None) -> OpError:
        operands = [self.values[operand] for operand in op.operands]

        def given(side: str) -> list[Any]:
            return [getattr(o, side) if isinstance(o, _Both) else o for o in operands]

        def followed(ctx: Context[Any]) -> list[Any]:
            """The target's operands, in the clear."""
            return [self._copies(ctx, o) if isinstance(o, _Both) else o for o in operands]

        judges = (self.exact, *self.noisy)
        return self._judge(
            op,
            apply(self.reference, op, given("reference")),
            apply(self.target, op, given("target")),
            *(apply(ctx, op, followed(ctx)) for ctx in judges),
            tolerance=tolerance,
        )

    def _judge(self, op: Op, *results: list[Any], tolerance: float | None) -> OpError:
        reference, target, exact, *noisy = results
        error = bound = difference = largest = 0.0
        both = _Both(reference, target, [])
        for index, ciphertext in enumerate(target):
            ours = self._slots(self.reference, reference[index])
            imaginary = np.iscomplexobj(ours)
            theirs = self._slots(self.target, ciphertext, imaginary)
            right = self._slots(self.exact, exact[index], imaginary)
            noises = [
                _apart(self._slots(ctx, made[index], imaginary), right)
                for ctx, made in zip(self.noisy, noisy, strict=True)
            ]
            largest = max(largest, float(np.abs(ours).max()))
            error = max(error, _apart(theirs, right))
            bound = max(bound, SAFETY * max(noises) + FLOOR * max(1.0, float(np.abs(right).max())))
            difference = max(difference, _apart(theirs, ours))
            both.slots.append(theirs)
        self.values[op.value] = both
        return OpError(
            op.name,
            op.value.name,
            op.location,
            self._level(self.exact, exact[0]),
            self._level(self.target, target[0]),
            error,
            bound,
            difference,
            largest,
            None if tolerance is None else tolerance * max(1.0, largest),
        )

    def _copies(self, ctx: Context[Any], both: _Both) -> list[Any]:
        levels = [self._level(self.target, ciphertext) for ciphertext in both.target]
        return [_encrypted(ctx, *one) for one in zip(both.slots, levels, strict=True)]

    @staticmethod
    def _level(ctx: Context[Any], ciphertext: Any) -> int:
        return ctx.engine.level(ciphertext)

    @staticmethod
    def _slots(ctx: Context[Any], ciphertext: Any, imaginary: bool | None = None) -> np.ndarray:
        """Decrypted slots, of complex numbers if asked for; by default if they are."""
        engine = ctx.engine
        # Decryption is the cheaper the lower the level; level 1 still holds any sane value.
        low = engine.drop_to(ciphertext, min(1, engine.level(ciphertext)))
        real = engine.decrypt(low)
        if imaginary is False:
            return real
        other = -engine.decrypt(engine.times_i(low))
        if imaginary is None and not np.abs(other).max() > IMAGINARY:
            return real
        return real + 1j * other


def _encrypted(ctx: Context[Any], slots: np.ndarray, level: int) -> Any:
    """Slots, complex ones too, in an engine."""
    ciphertext = ctx.engine.encrypt(np.ascontiguousarray(slots.real), level)
    if not np.iscomplexobj(slots):
        return ciphertext
    other = ctx.engine.encrypt(np.ascontiguousarray(slots.imag), level)
    return ctx.engine.add(ciphertext, ctx.engine.times_i(other))


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
