"""The bootstrap in primitives: recorded once, replayed by every engine.

The steps are SlotsToCoeffs (StC), ModRaise, CoeffsToSlots (CtS), and the modular reduction of real
and imaginary parts (EvalMod). StC brings the slots into the coefficients of the message. It comes
first, where a ciphertext has few primes left and a rotation costs little. A raised ciphertext has
the scale q0, and its slots are U (I + e): I are random integers, and e are the message's
coefficients times scale/q0. CtS brings I + e back into the slots, and EvalMod leaves e, which is
the message.

A narrow bootstrap is for slots that repeat after p slots, which is half of all or less (Cheon, Han,
Kim, Kim, Song, EUROCRYPT 2018; there "sparsely packed"). The sum of all blocks of p slots removes
the coefficients that hold only integers I and nothing of the message. CtS and StC have fewer
butterflies and so fewer stages, and a modulus is raised less far.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, reduce
from math import sqrt
from typing import NamedTuple, TypeAlias

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
from atlasc.program.lanes import in_step
from atlasc.program.paterson_stockmeyer import evaluate_plan, plan_chebyshev
from atlasc.program.record import Recorder, Register

Steps: TypeAlias = Callable[[Recorder, list[Register]], list[Register]]
"""Records a bootstrap of one or of two ciphertexts."""


class Circuit(NamedTuple):
    """Functions of ciphertexts at the level ``stc_stages`` of the set, or above; see
    :func:`circuit`."""

    one: Function
    two: Function


@lru_cache(maxsize=64)
def circuit(name: str, slots: int, period: int, lanes: int = 1) -> Circuit:
    """The bootstrap of a set of ``SETS``: for one ciphertext, and for two as one complex
    ciphertext, which takes two modular reductions instead of one.

    The imaginary part of a ciphertext is lost, or spoils the partner if there is one.

    Args:
        name: name of the set.
        slots: half the ring degree, a power of two from 8 on. Other numbers than 2^15 are for tests
            and protect no secrets.
        period: number of slots after which the slots of the ciphertexts repeat, a power of two.
            Slots that do not repeat are lost.
        lanes: of `in_step`.
    """
    chosen = SETS[name]
    steps = _narrow(chosen, slots, period) if is_narrow(period, slots) else _whole(chosen, slots)

    def recorded(count: int) -> Function:
        engine = Recorder(EngineParameters(slots, chosen.top))
        operands = [engine.register(chosen.levels) for _ in range(count)]
        results = steps(engine, operands)
        return Function(
            f"refresh_{count}_{period}",
            EngineParameters(slots, chosen.top),
            ((chosen.levels,),) * count,
            in_step(engine.code, lanes),
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
    groups = whole_groups(slots, chosen.stc_stages, chosen.babies)[::-1]
    out = slots_to_coeffs(slots, groups, chosen.shrink)
    # CtS takes the half of both parts, c + conj c and i (conj c - c), into its factor.
    groups_into = whole_groups(slots, chosen.cts_stages, chosen.babies)
    into = coeffs_to_slots(slots, groups_into, 0.5 * _unit(reduction))

    def steps(engine: Recorder, operands: list[Register]) -> list[Register]:
        x = engine.drop_to(_joined(engine, operands), len(out))
        x = _transformed(engine, x, out)
        x = _transformed(engine, engine.raise_modulus(x, chosen.top, 1), into)
        return _parts_reduced(engine, x, reduction, chosen, len(operands))

    return steps


def _narrow(chosen: BootstrapSet, slots: int, period: int) -> Steps:
    """The steps of a bootstrap of slots that repeat."""
    reduction = reduction_of(chosen, slots)
    copies = LEAST_COPIES if LEAST_COPIES * period <= slots else 1
    plan = narrow(slots, period, copies, chosen.cts_stages, chosen.stc_stages, chosen.babies)
    level = chosen.top - chosen.cts_stages + len(plan.into)
    # Slots of a raised ciphertext are coefficients over the scale of its level, not over q0. CtS
    # makes a mean of the sums of copies. They come first: a sum of 32 results of CtS has the
    # roundings of all (2^-19.6 instead of 2^-21.6 for 64 slots).
    unit = _unit(reduction) * 2.0 ** (chosen.log_scales[level] - chosen.log_scales[chosen.top])
    into = coeffs_to_slots(slots, plan.into, 0.5 * unit * period * copies / slots)
    out = slots_to_coeffs(slots, plan.out, chosen.shrink)

    def steps(engine: Recorder, operands: list[Register]) -> list[Register]:
        x = engine.drop_to(_joined(engine, operands), len(out))
        x = engine.raise_modulus(_transformed(engine, x, out), level, copies)
        for paths in plan.sums:
            x = _summed(engine, x, paths)
        x = _transformed(engine, x, into)
        return _parts_reduced(engine, x, reduction, chosen, len(operands))

    return steps


def _parts_reduced(
    engine: Recorder, half: Register, reduction: Reduction, chosen: BootstrapSet, count: int
) -> list[Register]:
    """EvalMod of the real part of twice a ciphertext, and of the imaginary part if there are two
    operands."""
    conjugate = engine.conjugate(half)
    parts = [engine.add(half, conjugate)]
    if count == 2:
        parts.append(engine.times_i(engine.sub(conjugate, half)))
    return [_reduced(engine, part, reduction, chosen.ratio / reduction.gain) for part in parts]


def _joined(engine: Recorder, operands: list[Register]) -> Register:
    """Two real ciphertexts as one complex one."""
    first, *second = operands
    return engine.add(first, engine.times_i(second[0])) if second else first


def _transformed(engine: Recorder, x: Register, stages: list[Stage]) -> Register:
    for stage in stages:
        [x] = engine.transform([x], baby_giant(stage), stage.chained)
    return x


def _summed(engine: Recorder, x: Register, paths: Sequence[tuple[int, ...]]) -> Register:
    """The sum of the rotations by some paths. Those of one rotation share what they can."""
    total = engine.rotate_sum(x, [path[0] for path in paths if len(path) == 1])
    for path in paths:
        if len(path) > 1:
            total = engine.add(total, reduce(engine.rotate, path, x))
    return total


def _unit(reduction: Reduction) -> float:
    """What CtS makes of 1: its square is 2 t^2 where an even sum begins with T_2 = 2 t^2 - 1."""
    return (sqrt(2.0) if reduction.double_angles else 1.0) / reduction.domain


def _reduced(engine: Recorder, x: Register, reduction: Reduction, factor: float) -> Register:
    """``factor`` times EvalMod: a factor of all coefficients of the sum, squared by each double
    angle.
    """
    if reduction.double_angles:
        x = engine.add_plain(x, -reduction.shift * _unit(reduction))
        x = engine.add_plain(engine.square(x), -1.0)
    power = 0.5**reduction.double_angles
    x = evaluate_plan(engine, x, plan_chebyshev(reduction.coefficients * factor**power))
    for _ in range(reduction.double_angles):
        power *= 2
        x = engine.add_plain(engine.square(x), -2.0 * factor**power)
    return x
