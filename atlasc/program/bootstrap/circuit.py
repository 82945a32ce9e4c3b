"""The bootstrap in primitives: recorded once, replayed by every engine.

The steps are ModRaise, CoeffsToSlots (CtS), the modular reduction of real and imaginary parts
(EvalMod), and SlotsToCoeffs (StC). A raised ciphertext has the scale q0, and its slots are U (I +
e): I are random integers, and e are the message's coefficients times scale/q0.

A narrow bootstrap is for slots that repeat after p slots, which is half of all or less (Cheon, Han,
Kim, Kim, Song, EUROCRYPT 2018; there "sparsely packed"). The sum of all blocks of p slots removes
the coefficients that hold only integers I and nothing of the message. 2p coefficients are left.
They fit into the slots of one ciphertext, real parts beside imaginary parts, for one modular
reduction. CtS and StC have fewer butterflies and so fewer stages, and the levels of the others are
left out: a modulus is raised less far, and what was reduced drops to where StC begins.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import sqrt
from typing import NamedTuple, TypeAlias

import numpy as np

from atlasc.program.bootstrap.narrow import narrow
from atlasc.program.bootstrap.reduction import Reduction, choose_bound, make_reduction
from atlasc.program.bootstrap.sets import SETS, BootstrapSet
from atlasc.program.bootstrap.stages import (
    Stage,
    baby_giant,
    coeffs_to_slots,
    slots_to_coeffs,
    whole_groups,
)
from atlasc.program.engine import LEAST_COPIES, is_narrow
from atlasc.program.function import EngineParameters, Function
from atlasc.program.paterson_stockmeyer import Coefficient, evaluate_plan, plan_chebyshev
from atlasc.program.plaintexts import Plaintext, Root, Slots, Table, Term
from atlasc.program.record import Recorder, Register

Steps: TypeAlias = Callable[[Recorder, list[Register]], list[Register]]
"""Records a bootstrap of one or of two ciphertexts."""


class Circuit(NamedTuple):
    """Functions of ciphertexts at level 0; see :func:`circuit`."""

    one: Function
    two: Function


@lru_cache(maxsize=64)
def circuit(name: str, slots: int, period: int) -> Circuit:
    """The bootstrap of a set of ``SETS``: for one ciphertext, and for two as one complex
    ciphertext.

    The imaginary part of a ciphertext is lost, or spoils the partner if there is one.

    One real ciphertext takes one modular reduction instead of two. The coefficient of X^(N - k) is
    the negated coefficient of X^k, so the lower coefficients h determine all of them: m = h +
    conj(h), if h has half the coefficient of X^0.

    Args:
        name: name of the set.
        slots: half the ring degree, a power of two from 8 on. Other numbers than 2^15 are for tests
            and protect no secrets.
        period: number of slots after which the slots of the ciphertexts repeat, a power of two.
            Slots that do not repeat are lost.
    """
    chosen = SETS[name]
    steps = _narrow(chosen, slots, period) if is_narrow(period, slots) else _whole(chosen, slots)

    def recorded(count: int) -> Function:
        engine = Recorder(EngineParameters(slots, chosen.top))
        operands = [engine.register(0) for _ in range(count)]
        results = steps(engine, operands)
        return Function(
            f"refresh_{count}_{period}",
            EngineParameters(slots, chosen.top),
            ((0,),) * count,
            tuple(engine.code),
            tuple(one.number for one in results),
            tuple(one.level for one in results),
        )

    return Circuit(recorded(1), recorded(2))


@lru_cache(maxsize=16)
def reduction_of(chosen: BootstrapSet, slots: int) -> Reduction:
    """The modular reduction of a set, for the coefficients behind ``slots`` slots."""
    bound = choose_bound(2 * slots, chosen.secret_weight, chosen.log2_failure)
    return make_reduction(chosen.degree, bound, chosen.double_angles)


def _whole(chosen: BootstrapSet, slots: int) -> Steps:
    """The steps of a bootstrap of slots that do not repeat."""
    reduction = reduction_of(chosen, slots)
    # CtS takes the half of both parts, c + conj c and i (conj c - c), into its factor; StC that of
    # the message and its conjugate.
    into = coeffs_to_slots(slots, whole_groups(slots, chosen.cts_stages), 0.5 * _unit(reduction))
    groups = whole_groups(slots, chosen.stc_stages)[::-1]
    out = slots_to_coeffs(slots, groups, 0.5 * chosen.ratio / reduction.gain)

    def steps(engine: Recorder, operands: list[Register]) -> list[Register]:
        real = len(operands) == 1
        x = engine.raise_modulus(_joined(engine, operands), chosen.top, 1)
        x = _transformed(engine, x, into)
        conjugate = engine.conjugate(x)
        lower = _reduced(engine, engine.add(x, conjugate), reduction, real)
        if real:
            x = lower
        else:
            upper = _reduced(engine, engine.times_i(engine.sub(conjugate, x)), reduction, False)
            x = engine.add(lower, engine.times_i(upper))
        found = _parts(engine, _transformed(engine, x, out), real)
        return [engine.add(found[0], found[0])] if real else found

    return steps


def _narrow(chosen: BootstrapSet, slots: int, period: int) -> Steps:
    """The steps of a bootstrap of slots that repeat."""
    reduction = reduction_of(chosen, slots)
    copies = LEAST_COPIES if LEAST_COPIES * period <= slots else 1
    plan = narrow(slots, period, copies, chosen.cts_stages, chosen.stc_stages)
    level = chosen.top - chosen.cts_stages + len(plan.into)
    # Slots of a raised ciphertext are coefficients over the scale of its level, not over q0. CtS
    # makes a mean of the sum of all copies.
    unit = _unit(reduction) * 2.0 ** (chosen.log_scales[level] - chosen.log_scales[chosen.top])
    into = coeffs_to_slots(slots, plan.into, 0.5 * unit * period / slots)
    out = slots_to_coeffs(slots, plan.out, 0.5 * chosen.ratio / reduction.gain)
    # Imaginary parts move into the real parts of every other block, and back.
    into[-1] = _turned(into[-1], slots, period, 3)
    out[0] = _turned(out[0], slots, period, 1)

    def steps(engine: Recorder, operands: list[Register]) -> list[Register]:
        x = engine.raise_modulus(_joined(engine, operands), level, copies)
        for amounts in plan.sums:
            x = engine.rotate_sum(x, amounts)
        x = _transformed(engine, x, into)
        x = _reduced(engine, engine.add(x, engine.conjugate(x)), reduction, False)
        x = engine.drop_to(x, chosen.levels_left + len(out))
        x = _transformed(engine, x, out[:1])
        x = engine.add(x, engine.rotate(x, period))
        return _parts(engine, _transformed(engine, x, out[1:]), len(operands) == 1)

    return steps


def _joined(engine: Recorder, operands: list[Register]) -> Register:
    """Two real ciphertexts as one complex one."""
    first, *second = operands
    return engine.add(first, engine.times_i(second[0])) if second else first


def _parts(engine: Recorder, half: Register, real: bool) -> list[Register]:
    """The real part of twice a ciphertext, and the imaginary part unless it is ``real``."""
    conjugate = engine.conjugate(half)
    total = engine.add(half, conjugate)
    return [total] if real else [total, engine.times_i(engine.sub(conjugate, half))]


def _turned(stage: Stage, slots: int, period: int, quarters: int) -> Stage:
    """A stage that also multiplies by i^quarters in every other block of ``period`` slots."""
    blocks = Table("blocks", lambda: np.array([0, quarters * slots]), slots // (2 * period))
    return stage.times(Slots.of(Root(4 * slots), (blocks, 0)))


def _transformed(engine: Recorder, x: Register, stages: list[Stage]) -> Register:
    for stage in stages:
        [x] = engine.transform([x], baby_giant(stage))
    return x


def _unit(reduction: Reduction) -> float:
    """What CtS makes of 1: its square is 2 t^2 where an even sum begins with T_2 = 2 t^2 - 1."""
    return (sqrt(2.0) if reduction.double_angles else 1.0) / reduction.domain


def _reduced(engine: Recorder, x: Register, reduction: Reduction, first_halved: bool) -> Register:
    """EvalMod. ``first_halved``: slot 0, which holds the coefficient of X^0, gets half its result.
    A factor of all coefficients in this slot is a factor of the sum, and each double angle squares
    it.
    """
    first = Table("first", lambda: np.arange(engine.slots) == 0)

    def plaintext(coefficient: Coefficient, halvings: float) -> Plaintext:
        number = float(coefficient)
        if not first_halved:
            return number
        return Slots((Term(number, ()),)) + Slots.where(first) * (number * (0.5**halvings - 1))

    if reduction.double_angles:
        x = engine.add_plain(x, -reduction.shift * _unit(reduction))
        x = engine.add_plain(engine.square(x), -1.0)
    plan = plan_chebyshev(reduction.coefficients)
    halvings = 0.5**reduction.double_angles
    x = evaluate_plan(engine, x, plan, lambda one: plaintext(one, halvings))
    for _ in range(reduction.double_angles):
        halvings *= 2
        x = engine.add_plain(engine.square(x), plaintext(-2.0, halvings))
    return x
