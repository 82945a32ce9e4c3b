"""Kernels of elementwise ops, sums and changes of level, and of data movement between
ciphertexts.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial

import numpy as np

from atlasc.ir.errors import AtlasError
from atlasc.ir.layout import REPLICATED, UNUSED, Layout
from atlasc.ir.module import Op
from atlasc.ir.opdef import Symbol, number
from atlasc.program.kernels.context import Context, has_mask, layout_of, place_of
from atlasc.program.paterson_stockmeyer import (
    ChebyshevPlan,
    Coefficient,
    evaluate_plan,
    plan_chebyshev,
    sum_of_parts,
)
from atlasc.program.plaintexts import MASK, Argument, Literal, Plaintext, Slots
from atlasc.program.record import Register


def binary(ctx: Context, op: Op, x: list[Register], y: list[Register]) -> list[Register]:
    """Kernel of ``ckks.add``, ``ckks.sub`` and ``ckks.mul``: the engine's method of that name. A
    reduced operand is repeated.
    """
    method, full = getattr(ctx.engine, op.name.removeprefix("ckks.")), layout_of(op.value)
    one, other = (full.ciphertexts_of(layout_of(operand)) for operand in op.operands)
    return [method(x[i], y[j]) for i, j in zip(one, other, strict=True)]


def square(ctx: Context, op: Op, x: list[Register]) -> list[Register]:
    """Kernel of ``ckks.square``."""
    return [ctx.engine.square(ciphertext) for ciphertext in x]


def _constant(ctx: Context, op: Op) -> Sequence[Plaintext]:
    """The constant of an op in the layout of its result, one plaintext per ciphertext."""
    value, layout = op.attributes["value"], layout_of(op.value)
    if has_mask(op):
        tables = ctx.places(layout, (layout.extent("b"), layout.extent("t"), 1, 1), ("b",))
        weights = Argument(MASK, "last_kept" if op.attributes.get("last") else "shares")
        return [Slots.of(weights, (table, 0)) * number(value) for table in tables]
    only_first = op.attributes.get("only_first")
    if isinstance(value, Symbol):
        shape = op.site(ctx.symbols).constant_shape("value") or (1,)
        found = ctx.array_slots(op, Argument("value"), shape)
        return [one * ctx.first_of_unused(layout) for one in found] if only_first else found
    if only_first:
        return [ctx.first_of_unused(layout) * number(value)] * layout.ciphertexts
    if op.attributes.get("zero_padding"):
        return ctx.array_slots(op, Literal(np.array([value], dtype=np.float64)), (1,))
    return [value] * layout.ciphertexts


def add_plain(ctx: Context, op: Op, x: list[Register]) -> list[Register]:
    """Kernel of ``ckks.add_plain``."""
    return [ctx.engine.add_plain(*pair) for pair in zip(x, _constant(ctx, op), strict=True)]


def mul_plain(ctx: Context, op: Op, x: list[Register]) -> list[Register]:
    """Kernel of ``ckks.mul_plain``."""
    sources = layout_of(op.value).ciphertexts_of(layout_of(op.operands[0]))
    pairs = zip((x[i] for i in sources), _constant(ctx, op), strict=True)
    return [ctx.engine.mul_plain(*pair) for pair in pairs]


def double(ctx: Context, op: Op, x: list[Register]) -> list[Register]:
    """Kernel of ``ckks.double``."""
    for _ in range(op.attributes["times"]):
        x = [ctx.engine.add(ciphertext, ciphertext) for ciphertext in x]
    return x


def chebyshev(ctx: Context, op: Op, x: list[Register]) -> list[Register]:
    """Kernel of ``ckks.chebyshev``. Coefficients ``[F, degree + 1]`` differ by feature, and are 0
    in the padding.
    """
    coefficients = op.site(ctx.symbols).constant("coefficients")
    if not np.isfinite(coefficients).all():
        raise AtlasError("a coefficient is not finite", remedy="compile the model again")
    by_feature = coefficients.ndim > 1
    if ctx.costs_only and (by_feature or not coefficients.any()):
        coefficients = _outlined(coefficients)
    if not by_feature:
        copies = op.attributes.get("copies", 1)
        plan = _plan(tuple(coefficients.tolist()), copies)
        if copies > 1:
            return _in_copies(ctx, layout_of(op.value), plan, copies, x)
        return [evaluate_plan(ctx.engine, ciphertext, plan) for ciphertext in x]
    plan, known = plan_chebyshev(coefficients), dict[int, list[Slots]]()

    def evaluated(position: int) -> Register:
        def plaintext(coefficient: Coefficient) -> Slots:
            if id(coefficient) not in known:
                numbers = np.asarray(coefficient)
                known[id(coefficient)] = ctx.array_slots(op, Literal(numbers), numbers.shape)
            return known[id(coefficient)][position]

        return evaluate_plan(ctx.engine, x[position], plan, plaintext)

    return [evaluated(position) for position in range(len(x))]


def _outlined(coefficients: np.ndarray) -> np.ndarray:
    """Coefficients ``[1, degree + 1]`` of the same cost, for a module without its arrays."""
    present = coefficients.reshape(-1, coefficients.shape[-1]).any(axis=0)
    # All different, like real coefficients.
    numbers = 1.0 / np.arange(1, coefficients.shape[-1] + 1)
    if present.any():
        numbers *= present
    return numbers if coefficients.ndim == 1 else numbers[None]


@lru_cache(maxsize=512)
def _plan(coefficients: tuple[float, ...], copies: int) -> ChebyshevPlan:
    return plan_chebyshev(coefficients, copies)


def _in_copies(
    ctx: Context, layout: Layout, plan: ChebyshevPlan, copies: int, x: list[Register]
) -> list[Register]:
    """Chebyshev sums of values that repeat: neighbouring copies evaluate different parts, and the
    sum over them is a sum over all parts, in every copy.
    """
    period, repeats = layout.period, layout.copies // copies
    number = ctx.table("copy", (layout.slots, period, copies), partial(np.arange, copies), repeats)

    def plaintext(coefficient: Coefficient) -> Slots:
        numbers = Literal(np.asarray(coefficient))
        return ctx.slots(Slots.of, numbers, (number, 0), repeats=repeats)

    found = (evaluate_plan(ctx.engine, ciphertext, plan, plaintext) for ciphertext in x)
    return [sum_of_parts(ctx.engine, parts, copies, period) for parts in found]


def rotate_sum(ctx: Context, op: Op, x: list[Register]) -> list[Register]:
    """Kernel of ``ckks.rotate_sum``: sums over ciphertexts, then over slots by rotate-and-add."""
    source = layout_of(op.operands[0])
    fields = [field for field in source.fields if field.axis in op.attributes["axes"]]
    groups = source.ciphertexts_of(layout_of(op.value))
    result = []
    for total in ctx.totals(zip(groups, x, strict=True)).values():
        for field in fields:
            total = ctx.double_and_add(total, 1 << source.offset(field), field.bits)
        result.append(total)
    return result


def select(ctx: Context, op: Op, x: list[Register]) -> list[Register]:
    """Kernel of ``ckks.select``: rotate the wanted index to index 0 of its field."""
    stride = layout_of(op.operands[0]).stride(op.attributes["layout_axis"])
    amount = op.attributes["index"] * stride
    return [ctx.engine.rotate(ciphertext, amount) if amount else ciphertext for ciphertext in x]


def drop(ctx: Context, op: Op, x: list[Register]) -> list[Register]:
    """Kernel of ``ckks.drop``."""
    return [ctx.engine.drop_to(ciphertext, op.attributes["level"]) for ciphertext in x]


def bootstrap(ctx: Context, op: Op, x: list[Register]) -> list[Register]:
    """Kernel of ``ckks.bootstrap``."""
    level = op.attributes["level"]
    return ctx.engine.bootstrap_many(x, op.attributes.get("period"), level)


def gather(ctx: Context, op: Op, x: list[Register]) -> list[Register]:
    """Kernel of ``ckks.gather``: bring the ciphertexts of a sum into one ciphertext.

    The sum is equal in all copies along its axis, so each ciphertext fills the slots of some
    copies. Slots without a ciphertext hold the first one, so that a polynomial stays in its range
    there. Of a sum in index 0 alone, that index is moved to the first of these copies, and copied.
    """
    source = layout_of(op.operands[0])
    places = _Places(ctx, source.without((UNUSED,), REPLICATED))
    if source.field(UNUSED) is None:
        masks = [places.mask(number) for number in places.numbers]
        everywhere = ctx.table("everywhere", None, lambda: np.array([True]))
        masks[0] = sum((mask * -1.0 for mask in masks[1:]), Slots.where(everywhere))
        return [ctx.engine.dot_plain(x, masks)]
    free = sorted({*range(places.count)} - {*places.numbers})
    pairs = [*zip(x, places.numbers, strict=True), *((x[0], number) for number in free)]
    one = ctx.engine.dot_plain(
        [ctx.engine.rotate(sum_, -number * places.stride) for sum_, number in pairs],
        [places.first(number) for _, number in pairs],
    )
    copies = (places.stride // places.copy_stride).bit_length() - 1
    return [ctx.double_and_add(one, -places.copy_stride, copies)]


def spread(ctx: Context, op: Op, x: list[Register]) -> list[Register]:
    """Kernel of ``ckks.spread``, the inverse of ``gather``."""
    layout, result = layout_of(op.value), []
    places, bits = _Places(ctx, layout), sum(field.bits for field in layout.outer)
    for place in places.numbers:
        one = ctx.engine.mul_plain(x[0], places.mask(place))
        if places.cyclic:
            result.append(ctx.double_and_add(one, places.stride, bits))
        else:
            one = ctx.engine.rotate(one, place * places.stride)
            result.append(ctx.double_and_add(one, -places.stride, bits))
    return result


class _Places:
    """The slots of each ciphertext of a layout in the one ciphertext that holds them all.

    Attributes:
        numbers: place of each ciphertext.
        count: number of places.
        stride, copy_stride: slots between neighbouring places, and between copies in one place.
        cyclic: whether a rotation by places wraps around.
    """

    def __init__(self, ctx: Context, layout: Layout) -> None:
        gathered, at = layout.gathered, layout.copied
        assert gathered is not None and at is not None
        self._ctx, self._slots = ctx, layout.slots
        bits = sum(field.bits for field in layout.outer)
        self.count, self.cyclic = 1 << bits, at == 0
        self.copy_stride = 1 << sum(field.bits for field in layout.fields[at + 1 :])
        self.stride = self.copy_stride << (layout.fields[at].bits - bits)
        firsts = [place_of(gathered, index)[1] for index in layout.ciphertext_index]
        self.numbers = [first // self.stride for first in firsts]

    def mask(self, number: int) -> Slots:
        """1 in the slots of a place, 0 elsewhere."""
        return self._where(f"place.{number}", self.count, number)

    def first(self, number: int) -> Slots:
        """1 in the slots of the first copy of a place, 0 elsewhere."""
        copies = self.stride // self.copy_stride
        return self._where(f"first of place.{number}", self.count * copies, number * copies)

    def _where(self, name: str, parts: int, part: int) -> Slots:
        repeats = self._slots // (self.count * self.stride)
        make = partial(np.equal, np.arange(parts), part)
        return Slots.where(self._ctx.table(name, (parts, repeats), make, repeats))
